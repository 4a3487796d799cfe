//! The WebSocket of a native client: a thread that opens it, moves its packets, and opens it again
//! when it breaks. Knows nothing of requests.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::blocking;
use super::client::{Client, PacketMover};
use super::connect::{Failure, Stream, connect};
use super::socket::{End, run};
use super::store::WebSocketStore;
use super::url::SocketUrl;
use crate::clock::Instant;
use crate::env::WebSocketEnvironment;
use crate::generated::error::{Error, Result};
use crate::store::deadline::WaitError;
use crate::store::{Deadline, WebSocketStoreOptions, expired, grace_to_ms};
use crate::wire::session::{DEFAULT_WINDOW_BYTES, Next, Reconnect};

/// First and longest pause between two attempts to reach a server for the first time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// Longest attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// How often a server may hang up before it is believed to speak no WebSocket.
const HANG_UPS: u32 = 3;

impl WebSocketStore {
    /// Connects to the store's server at `url`, `ws://host:port` or `wss://host:port`. Tries until
    /// `timeout`, so ranks may start before the server.
    ///
    /// A lost connection is opened again for as long as the server waits for it, 1.5 s unless the
    /// server or this process says otherwise (`POLYRANK_RECONNECT_GRACE_MS`).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `url` is none; [`Error::Network`] if no server of polyrank
    /// answers there within `timeout`, or it refuses.
    pub fn connect(url: &str, timeout: Duration) -> Result<Self> {
        Self::connect_with(url, WebSocketStoreOptions::new(timeout))
    }

    /// As [`WebSocketStore::connect`], with options.
    ///
    /// # Errors
    /// As [`WebSocketStore::connect`].
    pub fn connect_with(url: &str, options: WebSocketStoreOptions) -> Result<Self> {
        let timeout = options.timeout;
        let target = SocketUrl::parse(url)?;
        let text = target.text.clone();
        let of_environment = WebSocketEnvironment::read()?.reconnect_grace_ms;
        let grace_ms = grace_to_ms(options.reconnect_grace).or(of_environment);
        let client = Client::new(DEFAULT_WINDOW_BYTES, grace_ms.unwrap_or(0));
        let deadline = Deadline::after(timeout);
        let mover = Arc::new(Mover::start(client.clone(), target)?);
        let mut gave_up = None;
        let opened = blocking::wait_for(client.opened(), &deadline, |why| {
            gave_up = Some(why);
            client.lose("the store was not reached in time");
        });
        match (opened, gave_up) {
            (Some(Ok(())), None) => Ok(Self::over(client, text, options, mover)),
            (_, Some(WaitError::TimedOut)) => Err(Error::Network {
                message: format!(
                    "the store at {text} was not reached within {} ms: {}",
                    deadline.limit_ms(),
                    mover.shared.failure()
                ),
            }),
            (_, Some(why)) => Err(expired(why, "connect", &[&text], &deadline)),
            (Some(Err(error)), None) => Err(error),
            (None, None) => Err(Error::Network { message: format!("{text} was not reached") }),
        }
    }
}

/// The thread that moves a client's packets. It ends when this is dropped.
#[derive(Debug)]
struct Mover {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    /// A forked child has no such thread, and must not wait for it.
    process: u32,
}

impl PacketMover for Mover {
    fn local_address(&self) -> Option<IpAddr> {
        self.shared.lock().local_address
    }
}

/// What the thread and those who ask share.
#[derive(Debug, Default)]
struct SharedState {
    stop: watch::Sender<bool>,
    seen: Mutex<Observations>,
}

#[derive(Debug, Default)]
struct Observations {
    failure: Option<String>,
    local_address: Option<IpAddr>,
}

impl SharedState {
    /// Ends when the thread is to end.
    async fn stopped(&self) {
        // The sender lives as long as this.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// The result of `future`, unless the thread is to end before.
    async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let (mut stopped, mut future) = (pin!(self.stopped()), pin!(future));
        poll_fn(|context| match stopped.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => future.as_mut().poll(context).map(Some),
        })
        .await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the last attempt failed.
    fn failure(&self) -> String {
        self.lock().failure.clone().unwrap_or_else(|| "no answer".into())
    }
}

impl Mover {
    fn start(client: Client, target: SocketUrl) -> Result<Mover> {
        let failed = |error: std::io::Error| Error::Network {
            message: format!("the store's client cannot start its thread: {error}"),
        };
        let shared = Arc::new(SharedState::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let thread = std::thread::Builder::new().name("polyrank-websocket".into()).spawn({
            let shared = shared.clone();
            move || {
                runtime.block_on(serve(&client, &target, &shared));
                client.lose("the store was closed");
                // A look-up of a name under way must not hold up who drops the store.
                runtime.shutdown_background();
            }
        });
        let thread = Some(thread.map_err(failed)?);
        Ok(Mover { shared, thread, process: std::process::id() })
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed by it; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// From the first attempt to the end of the session.
async fn serve(client: &Client, target: &SocketUrl, shared: &SharedState) {
    let Some(reached) = shared.unless_stopped(reach(client, target, shared)).await else { return };
    let mut stream = match reached {
        Ok(stream) => stream,
        Err(why) => return client.lose(why),
    };
    let start = Instant::now();
    let now_ms = || start.elapsed().as_millis() as u64;
    let mut reconnect = Reconnect::new(client.grace_ms());
    loop {
        client.attach();
        let end = run(client, stream, shared.stopped()).await;
        if client.is_open() {
            // Each time the session stood again, the server waits anew.
            reconnect = Reconnect::new(client.grace_ms());
        }
        client.detach();
        let why = match end {
            End::Stopped => return,
            End::Closed(why) => return client.lose(why),
            End::Lost(why) => why,
        };
        tracing::debug!("the store's WebSocket was lost: {why}");
        let next = async {
            if !client.is_welcomed() {
                // A server that answers, and does not serve, is not asked again immediately.
                shared.lock().failure = Some(why);
                tokio::time::sleep(PAUSES.1).await;
                return reach(client, target, shared).await;
            }
            let lost = || format!("the connection to {} was lost: {why}", target.text);
            reconnect.lost(now_ms());
            come_back(client, target, &mut reconnect, now_ms).await.ok_or_else(lost)
        };
        let Some(next) = shared.unless_stopped(next).await else { return };
        match next {
            Ok(next) => stream = next,
            Err(why) => return client.lose(why),
        }
    }
}

/// The socket after one that was lost, if there is one before the server gives the session up.
async fn come_back(
    client: &Client,
    target: &SocketUrl,
    reconnect: &mut Reconnect,
    now_ms: impl Fn() -> u64,
) -> Option<Stream> {
    loop {
        match reconnect.next(now_ms()) {
            Next::Nothing | Next::Try => {
                reconnect.trying();
                let limit = Duration::from_millis(u64::from(client.grace_ms())).min(ATTEMPT);
                match tokio::time::timeout(limit, connect(target)).await {
                    Ok(Ok((stream, _))) => return Some(stream),
                    _ => reconnect.lost(now_ms()),
                }
            }
            Next::Wait { until_ms } => {
                let pause = until_ms.saturating_sub(now_ms());
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            Next::GiveUp => return None,
        }
    }
}

/// The first socket. Tries for as long as somebody waits.
async fn reach(
    client: &Client,
    target: &SocketUrl,
    shared: &SharedState,
) -> Result<Stream, String> {
    let (mut pause, mut hang_ups) = (PAUSES.0, 0);
    while client.end().is_none() {
        let failure = match tokio::time::timeout(ATTEMPT, connect(target)).await {
            Ok(Ok((stream, local_address))) => {
                shared.lock().local_address = local_address;
                return Ok(stream);
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unreachable("no answer".into()),
        };
        match failure {
            Failure::Refused(why) => return Err(why),
            Failure::HungUp(why) => {
                hang_ups += 1;
                if hang_ups == HANG_UPS {
                    return Err(why);
                }
                shared.lock().failure = Some(why);
            }
            Failure::Unreachable(why) => shared.lock().failure = Some(why),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSES.1);
    }
    Err("nobody waits for the store any more".into())
}
