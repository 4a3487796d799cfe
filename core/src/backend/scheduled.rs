//! The backend that runs schedules over a transport of ours. Knows no process group.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::registry::BackendName;
use super::stall::{AGAIN, StallInspector};
use super::{Backend, Call, Capabilities, Issued, Transfer, Waiting, meet};
use crate::clock::{CAN_BLOCK, Instant};
use crate::executor::{
    Bindings, Completion, Driver, Executor, FAREWELL, GroupIdentity, Message, Operation, SpinPolicy,
};
use crate::schedule::Place;
use crate::schedule::cache::{Cache, Key};
use crate::schedule::select::{Overrides, select};
use crate::store::Store;
use crate::transport::Transport;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;
use crate::{Error, ReduceOp, Result};

/// Runs the operations of one group as schedules, over what leads from rank to rank: `tcp` and
/// `websocket` are two names of it.
pub struct ScheduledBackend {
    backend: BackendName,
    rank: u32,
    size: u32,
    driver: Arc<Driver>,
    issuing: Mutex<Issuing>,
    overrides: Overrides,
    inspector: Arc<StallInspector>,
}

/// What must go together: numbers are given in the order in which operations are issued.
struct Issuing {
    collectives: u64,
    messages: u64,
    schedules: Cache,
}

impl ScheduledBackend {
    /// Joins, as the backend called `backend`, the group `name` of `size` ranks that meet in
    /// `store`, when all are there.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] naming the ranks that did not come within `timeout`.
    pub(crate) async fn connect(
        backend: BackendName,
        store: &Arc<dyn Store>,
        (rank, size): (u32, u32),
        name: &str,
        timeout: Duration,
    ) -> Result<ScheduledBackend> {
        let overrides = overrides()?;
        let meeting = meet::meet(store, name, (rank, size), timeout).await?;
        let spin = SpinPolicy::for_host(meeting.ranks_on_host);
        let transport: Box<dyn Transport> = meeting.transport;
        let group = GroupIdentity { name: name.into(), generation: 0 };
        let executor = Executor::new(transport, group, Instant::now());
        let issuing = Issuing { collectives: 0, messages: 0, schedules: Cache::new() };
        let driver = Driver::new(executor, spin)?;
        let inspector = StallInspector::install(&driver, store, (rank, size), meeting.sessions);
        Ok(ScheduledBackend {
            backend,
            rank,
            size,
            driver,
            issuing: Mutex::new(issuing),
            overrides,
            inspector,
        })
    }
}

impl Backend for ScheduledBackend {
    fn name(&self) -> &str {
        self.backend.as_str()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { finds_mismatches: true, split: true, tags: true }
    }

    fn collective(&self, call: Call, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        let Call { collective, dtype, reduce_op, root, .. } = call;
        let algorithm = select(collective, self.size, call.shared_bytes, &self.overrides);
        let place = Place { rank: self.rank, size: self.size, root };
        let fingerprint = Fingerprint {
            collective: collective as u8,
            dtype: dtype as u8,
            reduce_op: reduce_op.code(),
            algorithm: algorithm as u8,
            root,
            elements: call.elements,
            detail: call.detail,
        };
        let completion = Arc::new(Completion::new());
        let mut issuing = self.issuing();
        let key = Key { collective, algorithm, place };
        let schedule = issuing.schedules.get(key).ok_or_else(|| Error::Unsupported {
            who: format!("the {} backend", self.backend),
            operation: call.name.into(),
        })?;
        issuing.collectives += 1;
        let sequence = issuing.collectives;
        let operation = Operation {
            sequence,
            fingerprint,
            schedule,
            bindings: Bindings { input: call.input, output: call.output },
            dtype,
            reduce_op: executed(reduce_op),
            deadline,
            finish: call.finish,
            completion: completion.clone(),
        };
        self.driver.submit(operation, waiting);
        drop(issuing);
        Ok(Issued { sequence, completion })
    }

    fn send(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        self.message(transfer, deadline, |message| self.driver.send(message, waiting))
    }

    fn recv(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        self.message(transfer, deadline, |message| self.driver.recv(message, waiting))
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        let glance = until.is_some_and(|until| until <= Instant::now());
        loop {
            let slice = Instant::now() + AGAIN;
            let last = until.is_some_and(|until| until <= slice);
            let until = if last { until } else { Some(slice) };
            if self.driver.wait(completion, until) {
                return true;
            }
            // Also at the end of a short wait: who waits in slices stalls all the same. A look at
            // whether it is done does not wait for the store.
            if !glance {
                self.inspector.inspect();
            }
            if last || !CAN_BLOCK {
                return completion.is_done();
            }
        }
    }

    fn is_broken(&self) -> bool {
        self.driver.is_broken()
    }

    fn abort(&self, why: &str) {
        self.driver.break_with(Abort::User { rank: self.rank, why: why.into() });
    }

    fn shutdown(&self, limit: Duration) {
        self.driver.wait(&self.driver.idle(Instant::now() + limit), None);
        self.driver.wait(&self.driver.leave(Instant::now() + FAREWELL), None);
        self.driver.end();
    }

    fn shutdown_async(&self, limit: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.driver.idle(Instant::now() + limit).ended().await;
            self.driver.leave(Instant::now() + FAREWELL).ended().await;
            self.driver.end();
        })
    }
}

impl ScheduledBackend {
    fn issuing(&self) -> MutexGuard<'_, Issuing> {
        self.issuing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn message(
        &self,
        transfer: Transfer,
        deadline: Instant,
        start: impl FnOnce(Message),
    ) -> Result<Issued> {
        let completion = Arc::new(Completion::new());
        let Transfer { peer, tag, memory, finish } = transfer;
        let mut issuing = self.issuing();
        issuing.messages += 1;
        let sequence = issuing.messages;
        start(Message { peer, tag, memory, deadline, finish, completion: completion.clone() });
        Ok(Issued { sequence, completion })
    }
}

/// The operator that kernels apply: averages and scaled sums are sums there.
fn executed(reduce_op: ReduceOp) -> ReduceOp {
    match reduce_op {
        ReduceOp::Avg | ReduceOp::PremulSum(_) => ReduceOp::Sum,
        other => other,
    }
}

fn overrides() -> Result<Overrides> {
    let text = std::env::var("POLYRANK_ALGORITHM").unwrap_or_default();
    Overrides::parse(&text)
        .map_err(|error| Error::InvalidArgument { message: format!("POLYRANK_ALGORITHM: {error}") })
}
