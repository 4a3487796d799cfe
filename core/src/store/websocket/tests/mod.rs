//! The store over real WebSockets: what breaks them, who does not belong there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod broken;
mod connection;
mod ending;
mod foreign;
mod hostile;

use std::time::Duration;

use crate::store::{TcpStore, TcpStoreOptions};

const LIMIT: Duration = Duration::from_secs(60);

/// A server of this process on a free port.
fn server() -> TcpStore {
    TcpStore::new(TcpStoreOptions::new("127.0.0.1", 0).is_master(true).timeout(LIMIT)).unwrap()
}

fn url(port: u16) -> String {
    format!("ws://127.0.0.1:{port}")
}
