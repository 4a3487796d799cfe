//! How the state of one replica comes to another. There is one way now, over the group itself, by
//! one source and without a digest; a faster one takes its place behind the same trait.

use std::time::{Duration, Instant};

use polyrank::{DType, Error, ProcessGroup, Region, Tensor, Work};

/// Bytes of one message.
const CHUNK: usize = 8 << 20;
/// The tag of the message that says what comes, and of those that bring it.
const TAGS: (u32, u32) = (0x7073_0001, 0x7073_0002);

/// Why a state did not travel.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The group failed, or a rank of it.
    #[error(transparent)]
    Group(#[from] Error),
    /// It was not there in time.
    #[error("{bytes} bytes of {all} had been moved when its time was over; raise timeout")]
    Late {
        /// So many had.
        bytes: u64,
        /// Of so many; 0 if that was not known yet.
        all: u64,
    },
    /// The source is at another step.
    #[error("the source sent the state of step {sent}, where that of step {expected} was expected")]
    Step {
        /// What came.
        sent: i64,
        /// What the quorum says.
        expected: i64,
    },
    /// It is larger than the memory.
    #[error("cannot allocate {0} bytes for a state")]
    Memory(u64),
    /// Another way has failed.
    #[error("{0}")]
    Other(String),
}

/// How states travel: torchft's `CheckpointTransport`, for bytes. Ranks are those of the quorum, by
/// which the group was made. A manager that is shut down waits for what runs here: keep to the
/// deadline.
pub trait StateTransport: Send + Sync {
    /// How a state of this rank is to be had, for those that take it; may be empty.
    fn metadata(&self) -> String;

    /// Whether [`StateTransport::receive`] needs the `metadata` of the source. Its manager is asked
    /// for it then, at the address that the quorum has, with the token of the job.
    fn needs_metadata(&self) -> bool {
        true
    }

    /// Gives `state`, that of `step`, to those ranks; or has it ready for them until
    /// [`StateTransport::disallow`].
    ///
    /// # Errors
    /// It did not get there.
    fn send(
        &self,
        destinations: &[u32],
        step: i64,
        state: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), TransportError>;

    /// Takes the state of `step` from rank `source`, whose `metadata` this is.
    ///
    /// # Errors
    /// It did not come.
    fn receive(
        &self,
        source: u32,
        metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError>;

    /// The state changes from now on: none is given any longer.
    fn disallow(&self);
}

/// States as messages of the group: first how long it is, then its parts, one after the other.
#[derive(Debug)]
pub struct GroupTransport {
    group: ProcessGroup,
}

impl GroupTransport {
    /// Over this group, whose members the manager replaces.
    #[must_use]
    pub fn new(group: ProcessGroup) -> GroupTransport {
        GroupTransport { group }
    }

    fn take(
        &self,
        tensor: Tensor,
        source: u32,
        tag: u32,
        moved: Moved,
    ) -> Result<Tensor, TransportError> {
        let work = self.group.recv_async(tensor, Some(source), tag)?;
        moved.wait(&work)?;
        let tensors = work.into_result()?;
        // A receive has one.
        tensors.into_iter().next().ok_or(TransportError::Memory(0))
    }
}

/// How far it is, and until when it has to be done.
#[derive(Clone, Copy)]
struct Moved {
    bytes: u64,
    all: u64,
    deadline: Instant,
}

impl Moved {
    fn wait(self, work: &Work) -> Result<(), TransportError> {
        let Moved { bytes, all, deadline } = self;
        let left = deadline.saturating_duration_since(Instant::now());
        // Zero would be no limit.
        match work.wait(Some(left.max(Duration::from_nanos(1)))) {
            Err(Error::WaitTimeout { .. }) => Err(TransportError::Late { bytes, all }),
            ended => Ok(ended?),
        }
    }
}

impl StateTransport for GroupTransport {
    fn metadata(&self) -> String {
        "group".to_owned()
    }

    fn needs_metadata(&self) -> bool {
        false
    }

    fn send(
        &self,
        destinations: &[u32],
        step: i64,
        state: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), TransportError> {
        let all = state.len() as u64;
        let region = Region::from_vec(state);
        let mut moved = Moved { bytes: 0, all, deadline };
        // A header has no state that is as long as a number may be.
        let header = vec![step, i64::try_from(all).unwrap_or(i64::MAX)];
        let to_all = |tag, tensor: &dyn Fn() -> Tensor| {
            let sends = destinations.iter().map(|rank| self.group.send_async(tensor(), *rank, tag));
            sends.collect::<Result<Vec<Work>, Error>>()
        };
        let mut before = to_all(TAGS.0, &|| Tensor::from(header.clone()))?;
        for start in (0..region.len()).step_by(CHUNK) {
            let end = region.len().min(start + CHUNK);
            let part = || {
                let part = region.slice(start..end);
                Tensor::contiguous(part, DType::U8, vec![end - start]).read_only()
            };
            // One is on its way while the next one begins.
            let sends = to_all(TAGS.1, &part)?;
            before.iter().try_for_each(|work| moved.wait(work))?;
            moved.bytes = start as u64;
            before = sends;
        }
        before.iter().try_for_each(|work| moved.wait(work))
    }

    fn receive(
        &self,
        source: u32,
        _metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError> {
        let mut moved = Moved { bytes: 0, all: 0, deadline };
        let header = self.take(vec![0_i64; 2].into(), source, TAGS.0, moved)?;
        let header = header.into_vec::<i64>()?;
        let sent = header[0];
        if sent != step {
            return Err(TransportError::Step { sent, expected: step });
        }
        let all = u64::try_from(header[1]).map_err(|_| {
            TransportError::Other(format!("the source sent a state of {} bytes", header[1]))
        })?;
        moved.all = all;
        let mut state = Vec::new();
        while moved.bytes < all {
            // It is at most a chunk.
            let length = (all - moved.bytes).min(CHUNK as u64) as usize;
            state.try_reserve(length).map_err(|_| TransportError::Memory(all))?;
            let part = self.take(vec![0_u8; length].into(), source, TAGS.1, moved)?;
            part.region().read(|bytes| state.extend_from_slice(bytes));
            moved.bytes += length as u64;
        }
        Ok(state)
    }

    fn disallow(&self) {}
}
