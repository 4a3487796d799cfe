//! The backend that runs schedules over a transport of ours. Knows no process group.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Backend, Call, Capabilities, Issued, Transfer, Waiting};
use crate::executor::{Bindings, Completion, Driver, Executor, Message, Operation};
use crate::process_group::executed;
use crate::schedule::Place;
use crate::schedule::cache::Cache;
use crate::schedule::select::{Overrides, select};
use crate::store::Store;
use crate::transport::Transport;
use crate::wire::frame::Fingerprint;
use crate::{Error, Result};

/// Runs the operations of one group as schedules, over TCP.
pub struct ScheduledBackend {
    group: String,
    rank: u32,
    size: u32,
    driver: Arc<Driver>,
    issuing: Mutex<Issuing>,
    overrides: Overrides,
}

/// What must go together: numbers are given in the order in which operations are issued.
struct Issuing {
    collectives: u64,
    messages: u64,
    schedules: Cache,
}

impl Backend for ScheduledBackend {
    fn name(&self) -> &str {
        "tcp"
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
        issuing.collectives += 1;
        let sequence = issuing.collectives;
        let operation = Operation {
            sequence,
            fingerprint,
            schedule: issuing.schedules.get(collective, algorithm, place),
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
}
