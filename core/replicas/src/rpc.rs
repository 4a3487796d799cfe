//! Calls of managers, from threads that may wait: each is run by a thread that does nothing else,
//! so that connections are kept alive while the program computes for long.

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};

use polyrank::store::{INTERRUPT_CHECK_INTERVAL, is_interrupted};
use polyrank_quorum::{ClientOptions, ManagerClient, QuorumError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Where calls are run.
pub(crate) struct Rpc {
    /// None when all has ended.
    runtime: Mutex<Option<Runtime>>,
    closed: watch::Sender<bool>,
}

impl Rpc {
    /// With a thread of its own.
    pub(crate) fn new() -> std::io::Result<Rpc> {
        let builder = &mut Builder::new_multi_thread();
        let runtime =
            builder.worker_threads(1).thread_name("manager-calls").enable_all().build()?;
        Ok(Rpc { runtime: Mutex::new(Some(runtime)), closed: watch::Sender::new(false) })
    }

    /// What comes of `call`; none if all calls were ended meanwhile, or the one who waits is wanted
    /// elsewhere, as by Ctrl-C. May be called anywhere, also where tasks are run.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let runtime = {
            let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.as_ref()?.handle().clone()
        };
        let mut closed = self.closed.subscribe();
        let (answer, answered) = sync_channel(1);
        runtime.spawn(async move {
            tokio::select! {
                _ = closed.wait_for(|closed| *closed) => {}
                // Who asked waits for it.
                outcome = call => drop(answer.send(outcome)),
            }
        });
        loop {
            match answered.recv_timeout(INTERRUPT_CHECK_INTERVAL) {
                Ok(outcome) => return Some(outcome),
                Err(RecvTimeoutError::Timeout) if !is_interrupted() => {}
                Err(_) => return None,
            }
        }
    }

    /// As [`Rpc::run`], of what blocks its thread.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // It ends by a panic, which has been printed, or not at all.
        self.run(async move { tokio::task::spawn_blocking(call).await.ok() })?
    }

    /// Connects to a manager.
    pub(crate) fn connect(
        &self,
        address: &str,
        options: ClientOptions,
    ) -> Option<Result<ManagerClient, QuorumError>> {
        let address = address.to_owned();
        self.run(async move { ManagerClient::connect(&address, options).await })
    }

    /// Ends the calls that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Ends all calls, and the connections: whoever serves them learns that this rank has left.
    pub(crate) fn end(&self) {
        self.close();
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // It does not wait, and so may be dropped where tasks are run.
            runtime.shutdown_background();
        }
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        self.end();
    }
}
