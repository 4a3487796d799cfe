//! Where processes meet that have no store in common yet: a store that one of them hosts, or that
//! of a WebSocket. A place is a text that others may be given: `tcp://10.0.0.1:40111/1b9c…`, with a
//! number that no other place has, and that stands in its store: when its host is gone, another may
//! listen on its port. Knows nothing of what they do there.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::open_web_socket_store;
#[cfg(feature = "tcp")]
use crate::blocking::unblock;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::random;
use crate::store::{Store, WebSocketStoreOptions};

/// What the key begins with that says which place the store is.
const PLACE: &str = "polyrank-place/";

/// The place that this process hosts, as long as it has this.
pub(crate) struct HostedPlace {
    /// The store, through a connection of this process.
    pub(crate) store: Arc<dyn Store>,
    /// Where the others find it.
    pub(crate) url: String,
}

#[cfg(feature = "tcp")]
impl HostedPlace {
    /// For those that come from now on it is gone; those that are here stay.
    pub(super) fn close_to_newcomers(&self) {
        let Some((_, number)) = self.url.rsplit_once('/') else { return };
        if let Err(error) = self.store.delete_key(&format!("{PLACE}{number}")) {
            tracing::debug!(%error, "could not close a place to newcomers");
        }
    }
}

/// Hosts a store at the address of the interfaces that the environment names, else at `near`, else
/// on this host only.
///
/// # Errors
/// [`Error::Network`] if that is not possible.
#[cfg(feature = "tcp")]
pub(crate) fn host(near: Option<IpAddr>) -> Result<HostedPlace> {
    use std::net::{Ipv4Addr, SocketAddr};

    use crate::env::TransportEnvironment;
    use crate::store::{TcpStore, TcpStoreOptions};
    use crate::transport::tcp;

    let near = near.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let address = match TransportEnvironment::read()?.interfaces {
        Some((variable, list)) => tcp::addresses(variable, &list, near)?.first().copied(),
        None => None,
    };
    let address = address.unwrap_or(near);
    let options = TcpStoreOptions::new(address.to_string(), 0).is_master(true);
    let store = TcpStore::new(options.timeout(Duration::ZERO))?;
    let number = match store.local_number() {
        // Those of this host find its socket by that.
        Some(number) => number.to_owned(),
        None => format!("{:016x}", u64::from_le_bytes(random::bytes::<8>()?)),
    };
    store.set(&format!("{PLACE}{number}"), b"")?;
    let url = format!("tcp://{}/{number}", SocketAddr::new(address, store.port()));
    Ok(HostedPlace { store: Arc::new(store), url })
}

/// The address of the interface that leads to the host of `url`, else to the one that the
/// environment names as the place of a store (`MASTER_ADDR`); none within this host.
#[cfg(feature = "tcp")]
pub(crate) fn near(url: Option<&str>) -> Result<Option<IpAddr>> {
    use crate::env::Environment;
    use crate::store::interface_toward;
    use crate::store::url::Url;

    let parsed = url.and_then(Url::parse);
    let host = parsed.map(|url| url.host_and_port().0.to_owned()).filter(|host| !host.is_empty());
    let host = match host {
        Some(host) => Some(host),
        None => Environment::read()?.master_addr,
    };
    Ok(host.and_then(|host| interface_toward(&host)))
}

/// A browser knows no addresses of its own.
#[cfg(not(feature = "tcp"))]
#[allow(clippy::unnecessary_wraps, reason = "as elsewhere")]
pub(crate) fn near(_: Option<&str>) -> Result<Option<IpAddr>> {
    Ok(None)
}

/// The store at a place, through a connection of its own. Whoever hosted it did before its place
/// was known, so that it is not waited for.
///
/// # Errors
/// [`Error::Network`] if nobody listens there, or another process does; [`Error::StoreTimeout`] if
/// there is no answer within `timeout` (zero is no limit).
pub(crate) async fn open(url: &str, timeout: Duration) -> Result<Arc<dyn Store>> {
    let Some(place) = url.strip_prefix("tcp://") else {
        return open_web_socket_store(url, WebSocketStoreOptions::new(timeout)).await;
    };
    let (address, number) = place.split_once('/').ok_or_else(|| no_place(place))?;
    let store = open_tcp(address, Some(number), timeout).await?;
    if is_place(&*store, number).await? {
        return Ok(store);
    }
    let message = format!("another process listens at {address} than the one that was met there");
    Err(Error::Network { message })
}

async fn is_place(store: &dyn Store, number: &str) -> Result<bool> {
    store.check_async(&[&format!("{PLACE}{number}")]).await
}

fn no_place(text: &str) -> Error {
    let message = format!("'{text}' is not an address; expected host:port/number");
    Error::InvalidArgument { message }
}

#[cfg(feature = "tcp")]
async fn open_tcp(
    address: &str,
    number: Option<&str>,
    timeout: Duration,
) -> Result<Arc<dyn Store>> {
    use crate::store::TcpStore;

    let (host, port) = split(address)?;
    let number = number.map(str::to_owned);
    let open = move || {
        let local = number.and_then(|it| TcpStore::of_local(&it, (&host, port), timeout));
        local.map_or_else(|| TcpStore::of_known(&host, port, timeout), Ok)
    };
    Ok(Arc::new(unblock(open).await?))
}

/// A browser opens no such connection, but the server speaks WebSocket, too.
#[cfg(not(feature = "tcp"))]
async fn open_tcp(
    address: &str,
    _number: Option<&str>,
    timeout: Duration,
) -> Result<Arc<dyn Store>> {
    let url = format!("ws://{address}");
    open_web_socket_store(&url, WebSocketStoreOptions::new(timeout)).await
}

#[cfg(feature = "tcp")]
fn split(address: &str) -> Result<(String, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| {
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse::<u16>().ok()?))
    });
    parts.ok_or_else(|| no_place(address))
}

/// Whether it is certain that the process that hosted a place is gone: its host says that nobody
/// listens there, or the store there is another. A host that does not answer says nothing.
#[cfg(feature = "tcp")]
pub(crate) async fn is_gone(url: &str) -> bool {
    use std::io::ErrorKind;
    use std::net::{TcpStream, ToSocketAddrs};

    /// How long a host may take to answer.
    const ANSWER_LIMIT: Duration = Duration::from_millis(500);

    let place = url.strip_prefix("tcp://").and_then(|place| place.split_once('/'));
    let Some((address, number)) = place else { return false };
    let Ok((host, port)) = split(address) else { return false };
    let looked = unblock(move || {
        let found = (host.as_str(), port).to_socket_addrs().ok().and_then(|mut it| it.next());
        let Some(address) = found else { return Ok(false) };
        let tried = TcpStream::connect_timeout(&address, ANSWER_LIMIT);
        Ok(tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
    });
    if looked.await.unwrap_or(false) {
        return true;
    }
    match open_tcp(address, None, ANSWER_LIMIT).await {
        Ok(store) => is_place(&*store, number).await.is_ok_and(|is_place| !is_place),
        Err(_) => false,
    }
}

/// A browser is not told why it cannot connect.
#[cfg(not(feature = "tcp"))]
#[allow(clippy::unused_async, reason = "as elsewhere")]
pub(crate) async fn is_gone(_: &str) -> bool {
    false
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::blocking::block_on;

    #[test]
    fn a_place_is_found_as_long_as_it_is_hosted() {
        let place = host(None).unwrap();
        let far = block_on(open(&place.url, Duration::from_secs(10))).unwrap();
        far.set("key", b"value").unwrap();
        assert_eq!(place.store.get("key").unwrap(), b"value");
        let gone = |url: &str| block_on(async { Ok(is_gone(url).await) }).unwrap();
        assert!(!gone(&place.url));
        drop(far);
        let url = place.url.clone();
        drop(place);
        assert!(gone(&url));
    }

    #[test]
    fn who_listens_where_a_place_was_is_not_taken_for_it() {
        let place = host(None).unwrap();
        let (address, _) = place.url.rsplit_once('/').unwrap();
        let earlier = format!("{address}/0123456789abcdef");
        let gone = |url: &str| block_on(async { Ok(is_gone(url).await) }).unwrap();
        assert!(gone(&earlier) && !gone(&place.url));
        let error = block_on(open(&earlier, Duration::from_secs(10))).err().unwrap();
        assert!(error.to_string().contains("another process listens"), "{error}");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for address in ["", "host", "host:port", "host:70000"] {
            assert!(split(address).is_err(), "{address}");
        }
        assert_eq!(split("[::1]:80").unwrap(), ("::1".to_owned(), 80));
    }
}
