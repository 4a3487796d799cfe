//! Stores behind WebSockets, as the browser opens them. Knows nothing of sockets.

use std::sync::Arc;
use std::time::Duration;

use polyrank::Result;
use polyrank::rendezvous::{OpeningStore, install_store_opener};
use polyrank::store::{Store, WebSocketStore};

use crate::connections;
use crate::sockets::BrowserDialer;

/// Seconds that stand for no limit.
const EVER: Duration = Duration::from_secs(1 << 30);

/// Has the core open stores here.
pub(crate) fn install() {
    install_store_opener(|url, timeout| -> OpeningStore {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(open(url, timeout).await?);
            Ok(store)
        })
    });
}

/// Opens the store at `url` within `timeout`; zero is no limit.
async fn open(url: String, timeout: Duration) -> Result<WebSocketStore> {
    let limit = if timeout.is_zero() { EVER } else { timeout.min(EVER) };
    let dialer = Box::new(BrowserDialer);
    let (client, used) = connections::open(url.clone(), dialer, limit);
    client.opened().await?;
    Ok(WebSocketStore::over(client, url, timeout, used))
}
