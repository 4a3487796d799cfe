//! Connections: HTTP/2 for replicas, HTTP/1 for browsers, told apart by their first bytes. What one
//! of them may hold is bounded before anything is known of it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Most connections at a time; more wait until one ends.
const MAX_CONNECTIONS: usize = 8192;
/// Most calls of one connection at a time.
const MAX_STREAMS: u32 = 64;
/// Most bytes of headers.
const MAX_HEADERS: u32 = 16 << 10;
/// What a call, and a connection, may send ahead.
const WINDOWS: (u32, u32) = (128 << 10, 512 << 10);
/// How long a client may take to say what it wants.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How often a replica that waits is asked whether it is there, and how long it may take to answer:
/// a host that vanished closes no connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long nobody is let in when that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // It is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("nobody can be let in: {error}");
                // There are no descriptors: some may be free soon.
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, router: Router) {
    // Without it, answers are a little late.
    drop(stream.set_nodelay(true));
    if !matches!(timeout(GREETING_LIMIT, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_LIMIT)
        .max_buf_size(MAX_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1);
    let service = TowerToHyperService::new(router);
    // A client that goes away is no concern of the others.
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}
