//! Stores over the browser's WebSockets. Knows nothing of sockets.

use std::sync::Arc;
use std::time::Duration;

use polyrank::Result;
use polyrank::rendezvous::{OpeningStore, install_store_opener};
use polyrank::store::{Store, WebSocketStore, WebSocketStoreOptions, grace_to_ms};

use crate::connections;
use crate::sockets::BrowserDialer;

/// Seconds that stand for no limit.
const EVER: Duration = Duration::from_secs(1 << 30);

/// Makes the core open stores here.
pub(crate) fn install() {
    install_store_opener(|url, options| -> OpeningStore {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(open(url, options).await?);
            Ok(store)
        })
    });
}

/// Opens the store at `url`.
async fn open(url: String, options: WebSocketStoreOptions) -> Result<WebSocketStore> {
    let timeout = options.timeout;
    let limit = if timeout.is_zero() { EVER } else { timeout.min(EVER) };
    let grace_ms = grace_to_ms(options.reconnect_grace).unwrap_or(0);
    let dialer = Box::new(BrowserDialer);
    let (client, used) = connections::open(url.clone(), dialer, grace_ms, limit);
    client.opened().await?;
    Ok(WebSocketStore::over(client, url, options, used))
}
