//! How clients are made: with patience, of a server that is known, and of one of this host by the
//! way that another client came. Knows no request.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Client, SUCCESSION, State};
use crate::generated::error::{Error, Result};
use crate::store::deadline::WaitError;
use crate::store::tcp::client_errors::no_files;
use crate::store::tcp::connect;
use crate::store::tcp::connection::{Connection, Fault, Opened};
#[cfg(target_os = "linux")]
use crate::store::tcp::local::LocalName;
use crate::store::tcp::timed_mutex::TimedMutex;
use crate::store::{Deadline, TimeoutSetting, expired};

impl Client {
    /// Connects, with patience up to `timeout`.
    pub(in crate::store::tcp) fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        Self::connect_until(connect::open, &Deadline::after(timeout), host, port, timeout)
    }

    /// As [`Client::connect`], to a server that was there before and is not waited for.
    pub(in crate::store::tcp) fn connect_known(
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<Self> {
        Self::connect_until(connect::open_known, &Deadline::after(timeout), host, port, timeout)
    }

    /// As [`Client::connect`], and counts this client at the server. One that lets clients in and
    /// ends, as that of a group before this one may, was not the one to find: its successor is.
    pub(in crate::store::tcp) fn connect_and_count(
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        loop {
            let client = Self::connect_until(connect::open, &deadline, host, port, timeout)?;
            match client.count_worker() {
                Err(error @ Error::Network { .. }) => match deadline.sleep(SUCCESSION) {
                    Ok(()) => {}
                    Err(WaitError::TimedOut) => return Err(error),
                    Err(why) => return Err(expired(why, "connect", &[host], &deadline)),
                },
                counted => return counted.map(|_| client),
            }
        }
    }

    fn connect_until(
        open: fn(&str, u16, &Deadline) -> Opened,
        deadline: &Deadline,
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<Self> {
        let connection = open(host, port, deadline).map_err(|fault| match fault {
            Fault::Closed(message) | Fault::Malformed(message) => Error::Network { message },
            Fault::Expired(why) => expired(why, "connect", &[host], deadline),
            Fault::NoFiles => Error::Network { message: no_files() },
        })?;
        Ok(Self::over(connection, host, port, timeout))
    }

    fn over(connection: Connection, host: &str, port: u16, timeout: Duration) -> Self {
        Self {
            host: host.to_owned(),
            port,
            local_address: connection.local_address(),
            #[cfg(target_os = "linux")]
            local_name: connection.local_name.clone(),
            state: TimedMutex::new(State::Open(connection)),
            timeout: TimeoutSetting::new(timeout),
            pipelines: AtomicBool::new(true),
            members: Mutex::default(),
        }
    }

    /// A client of a server of this host whose socket has this name, and to which the address
    /// `local_address` of this host leads; none if it does not answer there at once.
    #[cfg(target_os = "linux")]
    pub(in crate::store::tcp) fn connect_local(
        name: &LocalName,
        (host, port): (&str, u16),
        local_address: Option<IpAddr>,
        timeout: Duration,
    ) -> Option<Self> {
        let mut connection = connect::open_local(name, (host, port), &Deadline::after(timeout))?;
        connection.local_address = local_address;
        Some(Self::over(connection, host, port, timeout))
    }

    /// Another client of the same server, by the same socket, if this one came by one that has a
    /// name; otherwise as `connect` makes it in what is left of the time.
    fn connect_as_before_or(
        &self,
        timeout: Duration,
        connect: fn(&str, u16, Duration) -> Result<Self>,
    ) -> Result<Self> {
        let began = Instant::now();
        if let Some(client) = self.connect_as_before(timeout) {
            return Ok(client);
        }
        // Zero is no limit.
        let left = match timeout.is_zero() {
            true => timeout,
            false => timeout.saturating_sub(began.elapsed()).max(Duration::from_millis(1)),
        };
        let client = connect(&self.host, self.port, left)?;
        client.set_timeout(timeout);
        Ok(client)
    }

    fn connect_as_before(&self, timeout: Duration) -> Option<Self> {
        #[cfg(target_os = "linux")]
        {
            let server = (self.host.as_str(), self.port);
            let name = self.local_name.as_ref()?;
            Self::connect_local(name, server, self.local_address, timeout)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = timeout;
            None
        }
    }

    /// Another client of the same server, with this one's timeout.
    pub(in crate::store::tcp) fn connect_again(&self) -> Result<Self> {
        let timeout = self.timeout();
        self.connect_as_before_or(timeout, Self::connect)
    }

    /// Another client of the same server, which may be gone, with this timeout.
    pub(in crate::store::tcp) fn connect_to_known(&self, timeout: Duration) -> Result<Self> {
        self.connect_as_before_or(timeout, Self::connect_known)
    }
}
