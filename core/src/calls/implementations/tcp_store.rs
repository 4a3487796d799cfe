//! `TCPStore`, where there are sockets.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::generated::error::Result;

#[cfg(feature = "tcp")]
pub(crate) use here::{host, new, port};

#[cfg(feature = "tcp")]
mod here {
    use std::time::Duration;

    use super::{Answer, IntoAnswer, Invocation, Result};
    use crate::calls::object::StoreObject;
    use crate::calls::parameters::tcp_store::*;
    use crate::generated::error::Error;
    use crate::store::{TcpStore, TcpStoreOptions};

    /// Connects, and serves if asked to.
    pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
        let host: String = call.take(new::HOST_NAME)?;
        let port: u16 = call.take(new::PORT)?;
        let world_size: Option<i32> = call.take(new::WORLD_SIZE)?;
        let is_master: bool = call.take(new::IS_MASTER)?;
        let timeout: Duration = call.take(new::TIMEOUT)?;
        let wait_for_workers: bool = call.take(new::WAIT_FOR_WORKERS)?;
        let multi_tenant: bool = call.take(new::MULTI_TENANT)?;
        let listen_fd: Option<i32> = call.take(new::MASTER_LISTEN_FD)?;
        let use_libuv: bool = call.take(new::USE_LIBUV)?;
        let mut options = TcpStoreOptions::new(host, port)
            // A negative number of users, as in c10d, is an unknown one.
            .world_size(world_size.and_then(|size| u32::try_from(size).ok()))
            .is_master(is_master)
            .timeout(timeout)
            .wait_for_workers(wait_for_workers)
            .multi_tenant(multi_tenant)
            .use_libuv(use_libuv);
        match (listen_fd, call.take_listener()) {
            (Some(_), Some(listener)) => options = options.listener(listener),
            (Some(_), None) => {
                let who = "this language".to_owned();
                return Err(Error::Unsupported { who, operation: "master_listen_fd".to_owned() });
            }
            (None, _) => {}
        }
        StoreObject::from(TcpStore::new(options)?).into_answer()
    }

    /// The host that was given.
    pub(crate) fn host(call: Invocation) -> Result<Answer> {
        call.this_store()?.tcp().ok_or_else(no_tcp_store)?.host.as_str().into_answer()
    }

    fn no_tcp_store() -> Error {
        Error::InvalidType { message: "the store is not a TCPStore".to_owned() }
    }

    /// The port on which the server listens.
    pub(crate) fn port(call: Invocation) -> Result<Answer> {
        call.this_store()?.tcp().ok_or_else(no_tcp_store)?.port.into_answer()
    }
}

/// There are no sockets here.
#[cfg(not(feature = "tcp"))]
pub(crate) async fn new(call: Invocation) -> Result<Answer> {
    port(call)
}

/// There is no such store here.
#[cfg(not(feature = "tcp"))]
pub(crate) fn host(call: Invocation) -> Result<Answer> {
    port(call)
}

/// There is no such store here.
#[cfg(not(feature = "tcp"))]
pub(crate) fn port(_: Invocation) -> Result<Answer> {
    let (who, operation) = ("a browser".to_owned(), "TCPStore".to_owned());
    Err(crate::generated::error::Error::Unsupported { who, operation })
}

/// Whether the server is libuv's; never.
pub(crate) fn libuv_backend(_: Invocation) -> Result<Answer> {
    false.into_answer()
}
