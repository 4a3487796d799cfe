//! What each rank finds in its environment, and the port on which rank 0 will listen.
//! Knows nothing of processes or of what the ranks do with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use super::arguments::Job;
use polyrank::env;
use polyrank::env::variable::{self, Variable};

/// What tells a rank its place in the job, in the order of [`Meeting::variables`].
pub(super) const PLACE: [Variable; 9] = [
    variable::RANK,
    variable::LOCAL_RANK,
    variable::WORLD_SIZE,
    variable::LOCAL_WORLD_SIZE,
    variable::GROUP_RANK,
    variable::GROUP_WORLD_SIZE,
    variable::MASTER_ADDR,
    variable::MASTER_PORT,
    variable::POLYRANK_RUN_ID,
];

/// The variables that are the same for every rank of a job.
pub(super) struct JobEnvironment {
    master_addr: String,
    master_port: u16,
    run_id: String,
    /// Keeps the port from being given to anybody else while the job runs.
    _reservation: Option<Socket>,
}

impl JobEnvironment {
    /// Chooses the port and the name of the job.
    pub(super) fn new(job: &Job) -> io::Result<JobEnvironment> {
        let (master_port, reservation) = match job.master_port {
            0 => reserve_port()?,
            port => (port, None),
        };
        let run_id = match job.run_id.clone().or_else(env::run_id) {
            Some(name) => name,
            // Every node must derive the same name without talking to the others.
            // The address may be spelled in another way on each.
            None if job.node_count > 1 => format!("port-{master_port}"),
            None => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                format!("{:x}-{:x}", since_1970.as_micros(), std::process::id())
            }
        };
        let master_addr = job.master_addr.clone();
        Ok(JobEnvironment { master_addr, master_port, run_id, _reservation: reservation })
    }

    /// The ranks that join from elsewhere and the URL by which each does.
    pub(super) fn external_urls(&self, job: &Job) -> Vec<(u32, String)> {
        let JobEnvironment { master_addr, master_port, .. } = self;
        let size = job.world_size();
        // An IPv6 address is in brackets.
        let host = match master_addr.contains(':') && !master_addr.starts_with('[') {
            true => format!("[{master_addr}]"),
            false => master_addr.clone(),
        };
        let run_id = encoded(&self.run_id);
        let url = |rank| {
            format!("ws://{host}:{master_port}/?rank={rank}&world_size={size}&run_id={run_id}")
        };
        (job.started_world_size()..size).map(|rank| (rank, url(rank))).collect()
    }

    /// The variables of one rank, by its number on this host.
    pub(super) fn variables(&self, job: &Job, local_rank: u32) -> Vec<(&'static str, String)> {
        let local_world_size = job.local_world_size();
        let rank = job.node_rank * local_world_size + local_rank;
        let place = [
            rank.to_string(),
            local_rank.to_string(),
            job.world_size().to_string(),
            local_world_size.to_string(),
            job.node_rank.to_string(),
            job.node_count.to_string(),
            self.master_addr.clone(),
            self.master_port.to_string(),
            self.run_id.clone(),
        ];
        let mut variables: Vec<_> = PLACE.into_iter().zip(place).collect();
        // A rank that is killed loses what Python still holds in its buffer: its last lines.
        let mut unless_set = vec![(variable::PYTHONUNBUFFERED, "1")];
        if local_world_size > 1 {
            // Each rank would otherwise start a thread per core in its numerical library.
            unless_set.push((variable::OMP_NUM_THREADS, "1"));
        }
        unless_set.retain(|(variable, _)| !variable.is_set());
        variables
            .extend(unless_set.into_iter().map(|(variable, value)| (variable, value.to_owned())));
        variables.into_iter().map(|(variable, value)| (variable.name(), value)).collect()
    }
}

/// `text` as a part of a URL's query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Finds a free port and holds on to it without listening.
///
/// On Linux two sockets with `SO_REUSEADDR` may share a port as long as at most one of them
/// listens, and a port that is bound is given to nobody who asks for any free one (socket(7),
/// ip(7)). So rank 0 can take this port and a stranger does not get it by chance. Elsewhere the
/// socket must be closed first, and a short race remains.
pub(crate) fn reserve_port() -> io::Result<(u16, Option<Socket>)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    let address = socket.local_addr()?.as_socket();
    let port = address.map(|address| address.port()).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((port, cfg!(target_os = "linux").then_some(socket)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_can_be_taken_by_rank_0_and_by_nobody_else() {
        let (port, _reservation) = reserve_port().unwrap();
        for _ in 0..200 {
            let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            assert_ne!(stranger.local_addr().unwrap().port(), port);
        }
        // The standard library sets SO_REUSEADDR, as every store server does.
        TcpListener::bind(("0.0.0.0", port)).unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
