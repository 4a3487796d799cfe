//! An operation that MPI runs: its requests, and what must stay where it is until they end.
//! Knows no store.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::abi::{Handle, Status};
use super::group::Group;
use super::job::Job;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::error::{Error, Result};
use crate::tensor::Region;

/// How long MPI may take, after an operation failed, to be done with memory that was only lent.
pub(super) const DRAIN: Duration = Duration::from_millis(500);

/// Requests of one operation; most have one.
pub(super) enum Requests<H> {
    One(H),
    Many(Vec<H>),
}

/// What MPI uses until the requests end.
pub(super) struct RequestBuffers<H> {
    /// The memory.
    pub(super) regions: Vec<Region>,
    pub(super) lists: Option<Box<Lists<H>>>,
}

/// Arguments that are lists: of what is sent, and of what is received.
pub(super) struct Lists<H> {
    pub(super) counts: [Vec<c_int>; 2],
    pub(super) displacements: [Vec<c_int>; 2],
    pub(super) types: [Vec<H>; 2],
    /// Types that were made for this operation.
    pub(super) made: Vec<H>,
}

impl<H> Default for Lists<H> {
    fn default() -> Lists<H> {
        Lists {
            counts: Default::default(),
            displacements: Default::default(),
            types: [Vec::new(), Vec::new()],
            made: Vec::new(),
        }
    }
}

impl<H> RequestBuffers<H> {
    pub(super) fn new(regions: Vec<Region>) -> RequestBuffers<H> {
        RequestBuffers { regions, lists: None }
    }

    /// Whether somebody waits to have the memory back, so that it cannot be kept.
    pub(super) fn is_borrowed(&self) -> bool {
        self.regions.iter().any(Region::is_borrowed)
    }
}

/// An operation that was issued.
pub(super) struct RunningOperation<H: Handle> {
    pub(super) group: Arc<Group<H>>,
    pub(super) name: &'static str,
    /// Its number among the group's collectives, or messages.
    pub(super) sequence: u64,
    pub(super) is_collective: bool,
    pub(super) requests: Requests<H>,
    pub(super) kept: RequestBuffers<H>,
    /// Since when it is known not to be over; operations that are short never are.
    pub(super) since: Option<Instant>,
    pub(super) deadline: Instant,
    pub(super) finish: Option<Outcome>,
    /// The sender, for a receive.
    pub(super) source: Option<u32>,
    /// Who is notified; nobody any more when the group broke.
    pub(super) completion: Option<Arc<Completion>>,
    /// What it ends with when MPI is done with memory that is to be given back.
    pub(super) failed: Option<Box<(Error, Instant)>>,
}

/// An operation that is over, to be settled without any lock.
pub(super) struct FinishedOperation {
    completion: Arc<Completion>,
    result: Result<()>,
}

impl FinishedOperation {
    pub(super) fn new(completion: Arc<Completion>, result: Result<()>) -> FinishedOperation {
        FinishedOperation { completion, result }
    }

    /// Settles the completion. Runs callbacks and wakers, so no lock may be held.
    pub(super) fn settle(self) {
        self.completion.complete(self.result);
    }
}

impl<H: Handle> RunningOperation<H> {
    /// What was just started, of this name and number. Nobody is notified of its end yet.
    pub(super) fn new(
        group: Arc<Group<H>>,
        (name, sequence): (&'static str, u64),
        requests: Requests<H>,
        kept: RequestBuffers<H>,
        deadline: Instant,
    ) -> RunningOperation<H> {
        RunningOperation {
            group,
            name,
            sequence,
            is_collective: false,
            requests,
            kept,
            since: None,
            deadline,
            finish: None,
            source: None,
            completion: None,
            failed: None,
        }
    }

    /// Whether MPI is done with it, making progress.
    ///
    /// # Errors
    /// What MPI says of a request that failed.
    pub(super) fn test(&mut self, job: &Job<H>) -> Result<bool> {
        match &mut self.requests {
            Requests::One(request) => test(job, request),
            Requests::Many(requests) => {
                while let Some(last) = requests.last_mut() {
                    let tested = test(job, last);
                    if let Ok(false) = tested {
                        return Ok(false);
                    }
                    // The others continue, also where this one failed.
                    requests.pop();
                    tested?;
                }
                Ok(true)
            }
        }
    }

    /// Whether no request is left, after one failed.
    pub(super) fn is_over(&self) -> bool {
        match &self.requests {
            Requests::One(_) => true,
            Requests::Many(requests) => requests.is_empty(),
        }
    }

    /// Ends it with `error`: immediately if MPI may continue with the memory, which is kept; if the
    /// memory was only lent, when MPI is done with it, for which it has until `until`. Returns the
    /// operation if it is finished.
    pub(super) fn fail(&mut self, error: Error, until: Instant) -> Option<FinishedOperation> {
        if self.completion.is_none() || self.failed.is_some() {
            return None;
        }
        if self.kept.is_borrowed() {
            self.failed = Some(Box::new((error, until)));
            return None;
        }
        self.give_up(error)
    }

    /// Ends it, when MPI is done with it. Returns what is to be settled, if anybody waits for it.
    pub(super) fn end(mut self, job: &Job<H>, result: Result<()>) -> Option<FinishedOperation> {
        self.group.in_library.fetch_sub(1, Ordering::SeqCst);
        self.free_types(job);
        let completion = self.completion.take()?;
        self.group.in_flight.fetch_sub(1, Ordering::SeqCst);
        let result = self.failed.take().map_or(result, |failed| Err(failed.0));
        if let (Ok(()), Some(finish)) = (&result, self.finish.take()) {
            finish();
        }
        if let Some(source) = self.source {
            completion.set_source_rank(source);
        }
        Some(FinishedOperation::new(completion, result))
    }

    fn give_up(&mut self, error: Error) -> Option<FinishedOperation> {
        let completion = self.completion.take()?;
        self.group.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.finish = None;
        Some(FinishedOperation::new(completion, Err(error)))
    }

    fn free_types(&mut self, job: &Job<H>) {
        for mpi_type in self.kept.lists.iter_mut().flat_map(|lists| &mut lists.made) {
            // SAFETY: made for this operation, which is over, and freed once.
            unsafe { (job.functions.type_free)(mpi_type) };
        }
    }
}

/// Whether a request ended, making progress.
pub(super) fn test<H: Handle>(job: &Job<H>, request: &mut H) -> Result<bool> {
    let mut flag: c_int = 0;
    let ignore = job.constants.status_ignore as *mut c_void;
    // SAFETY: the request is the library's, and has not ended: its handle is dropped when it has.
    let code = unsafe { (job.functions.test)(request, &raw mut flag, ignore) };
    if code != 0 {
        job.check(code, "MPI_Test")?;
    }
    Ok(flag != 0)
}

/// A message that is awaited and has not come. MPI knows nothing of it yet, so that it can be given
/// up at any time.
pub(super) struct PendingReceive<H: Handle> {
    pub(super) group: Arc<Group<H>>,
    pub(super) sequence: u64,
    pub(super) peer: Option<u32>,
    pub(super) tag: u32,
    pub(super) memory: Region,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    pub(super) finish: Option<Outcome>,
    pub(super) completion: Arc<Completion>,
}

/// A message that came.
pub(super) struct MatchedMessage<H> {
    pub(super) message: H,
    pub(super) source: u32,
    pub(super) bytes: u64,
}

impl<H: Handle> PendingReceive<H> {
    /// Whether a message for `self` could be one for `other`, too.
    pub(super) fn meets(&self, other: &PendingReceive<H>) -> bool {
        let peers = match (self.peer, other.peer) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.tag == other.tag && peers && Arc::ptr_eq(&self.group, &other.group)
    }

    /// The message, if it has come.
    ///
    /// # Errors
    /// What MPI says of the communicator.
    pub(super) fn probe(&self, job: &Job<H>) -> Result<Option<MatchedMessage<H>>> {
        let (functions, constants) = (&job.functions, &job.constants);
        let source = self.peer.map_or(constants.any_source, |peer| peer as c_int);
        let mut status = Status::default();
        let (mut flag, mut message): (c_int, H) = (0, H::from_bits(0));
        // SAFETY: the status is large enough for any ABI; the communicator is the group's.
        let code = unsafe {
            (functions.improbe)(
                source,
                self.tag as c_int,
                self.group.comm,
                &raw mut flag,
                &raw mut message,
                status.as_mut_ptr(),
            )
        };
        job.check(code, "MPI_Improbe")?;
        if flag == 0 {
            return Ok(None);
        }
        let mut bytes: i64 = 0;
        // SAFETY: the status was written above, as a message came.
        let code = unsafe {
            (functions.get_elements_x)(status.as_mut_ptr(), constants.types.byte, &raw mut bytes)
        };
        job.check(code, "MPI_Get_elements_x")?;
        let source = status.source(job.abi) as u32;
        Ok(Some(MatchedMessage { message, source, bytes: bytes as u64 }))
    }
}
