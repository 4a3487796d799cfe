//! Operations on tensors that are called on the thread of an event loop: which of them it waits for
//! a moment, and which another thread moves until they are done. Knows no tensors.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::time::{Duration, Instant};

use super::adaptive_wait::AdaptiveWait;
use super::group_handles::drop_operation;
use super::waiters;
use crate::calls::staged::{CallerMemory, Loans, StagedOperation};
use crate::completion::WaitIntent;
use crate::generated::error::Result;
use crate::work::Work;

/// Operations on more than this take longer than the event loop should wait: it moves them itself,
/// as long as there is something to move.
const LARGE_BYTES: usize = 256 << 10;

/// Operations on more than this are not given the language's own memory, since what they have would
/// have to be copied, all at once, if they are not over in time.
const MAX_LENT_BYTES: usize = 128 << 20;

/// The event loop moves a large operation for at most half a nanosecond a byte, in the call that
/// issues it: the copies, in and out, would take it as long. In any case for as long as this.
const MIN_TURN_LIMIT: Duration = Duration::from_millis(4);

/// How long it waits for something to move, of a large operation, and a part of the former besides.
/// A rank that did not wait long enough comes to its next operation as late as the copies and the
/// waking of two threads made it, and if that is too late for another rank, that one is late in
/// turn, and so on.
const IDLE_LIMIT: Duration = Duration::from_micros(300);
const IDLE_PART: u32 = 2;

/// As much of a result is copied out in the call that issues the operation.
const SMALL_BYTES: usize = 64 << 10;

/// An operation on tensors, from its preparation to its result.
#[derive(Debug)]
pub struct LoopOperation {
    staged: RefCell<StagedOperation>,
    wait: AdaptiveWait,
    /// Whether it is known to be done.
    is_done: Cell<bool>,
    /// Whether another thread moves it until it is done.
    has_waiter: Cell<bool>,
    /// Whether its result is copied out already.
    is_over: Cell<bool>,
}

impl LoopOperation {
    /// An operation that is prepared, on a thread that waits as `wait` learns.
    pub fn new(staged: StagedOperation, wait: AdaptiveWait) -> LoopOperation {
        let staged = RefCell::new(staged);
        let [is_done, has_waiter, is_over] = [const { Cell::new(false) }; 3];
        LoopOperation { staged, wait, is_done, has_waiter, is_over }
    }

    /// An operation on small arrays, in `memories`, that was issued at `start`. If it is done in a
    /// moment, its result is copied out.
    pub fn issued<M: CallerMemory>(
        staged: StagedOperation,
        wait: AdaptiveWait,
        memories: &[M],
        start: Instant,
    ) -> LoopOperation {
        let operation = LoopOperation::new(staged, wait);
        operation.see_to(start, false);
        operation.finish_small(memories);
        operation
    }

    /// What it is.
    pub fn staged(&self) -> Ref<'_, StagedOperation> {
        self.staged.borrow()
    }

    /// What it is, to copy in or out.
    pub fn staged_mut(&self) -> RefMut<'_, StagedOperation> {
        self.staged.borrow_mut()
    }

    /// Whether it went well and is over, so that nothing is left to be asked or copied.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The sequence number of an operation that went well and is over.
    pub fn sequence_if_over(&self) -> Option<u64> {
        let staged = self.staged.borrow();
        staged.work().filter(|_| self.is_over.get()).map(Work::sequence)
    }

    /// As [`StagedOperation::give_up`].
    pub fn give_up(&self, why: &str) {
        self.staged.borrow_mut().give_up(why);
    }

    /// Issues it on `memories` and moves it for a moment: in the language's own memory where that
    /// can be lent, else on copies, which are made now. If it is done then, copies a small result
    /// out. Nothing of the language may have run since it gave the memories. Nothing happens, and
    /// false is returned, if more than `most_copied` bytes would be copied in.
    ///
    /// # Errors
    /// Those of [`StagedOperation::copy_in`] and [`StagedOperation::issue`].
    pub fn begin<M: CallerMemory>(&self, memories: &[M], most_copied: usize) -> Result<bool> {
        let start = Instant::now();
        let is_large = self.staged.borrow().bytes() > LARGE_BYTES;
        let loans = self.borrow(memories, is_large)?;
        let (bytes, lends) = (self.staged.borrow().bytes_in(), !loans.is_empty());
        if bytes > most_copied {
            self.staged.borrow_mut().give_back(loans);
            return Ok(false);
        }
        let issued = match bytes {
            0 => Ok(0),
            _ => self.staged.borrow_mut().copy_in(memories, bytes),
        };
        let issued = issued.and_then(|_| self.staged.borrow_mut().issue(WaitIntent::Soon));
        let is_over = issued.is_ok() && self.move_on(start, is_large);
        self.staged.borrow_mut().give_back(loans);
        if is_large && lends {
            self.wait.note_loan(is_over);
        }
        issued?;
        if !is_over {
            self.hand_over(start, is_large);
        }
        self.finish_small(memories);
        Ok(true)
    }

    /// What can be lent of `memories`, if it pays: nobody else moves operations of the group.
    fn borrow<M: CallerMemory>(&self, memories: &[M], is_large: bool) -> Result<Loans> {
        let mut staged = self.staged.borrow_mut();
        let is_busy = staged.group().is_none_or(waiters::has_waiter);
        // What is not over in time has to be copied at once.
        let is_too_large = staged.bytes() > MAX_LENT_BYTES;
        if is_busy || is_too_large || (is_large && !self.wait.is_loan_due()) {
            return Ok(Loans::default());
        }
        staged.borrow(memories)
    }

    /// Copies a small result out, if it is there.
    fn finish_small<M: CallerMemory>(&self, memories: &[M]) {
        let mut staged = self.staged.borrow_mut();
        let went_well = self.is_done.get() && staged.work().is_some_and(Work::is_success);
        if went_well && staged.bytes_out() <= SMALL_BYTES {
            // What fails is found again when the result is asked for.
            self.is_over.set(matches!(staged.copy_out(memories, SMALL_BYTES), Ok(0)));
        }
    }

    /// Issues it, once everything is copied in, and sees to it that somebody moves it on.
    ///
    /// # Errors
    /// Those of [`StagedOperation::issue`].
    pub fn issue(&self) -> Result<()> {
        let start = Instant::now();
        // Nobody else is woken for what is done in a moment; a large one is not this thread's to
        // move, which has copied as much as it should by now.
        let is_large = self.staged.borrow().bytes() > LARGE_BYTES;
        let waiting = if is_large { WaitIntent::OtherThread } else { WaitIntent::Soon };
        self.staged.borrow_mut().issue(waiting)?;
        self.see_to(start, is_large);
        Ok(())
    }

    /// Waits a moment for what was issued at `start`, else has somebody move it on.
    fn see_to(&self, start: Instant, is_large: bool) {
        let is_over = match is_large {
            true => self.note_success(),
            false => self.move_on(start, is_large),
        };
        if !is_over {
            self.hand_over(start, is_large);
        }
    }

    /// Moves for a moment what was issued at `start`; whether it needs nobody to move it any more.
    fn move_on(&self, start: Instant, is_large: bool) -> bool {
        let staged = self.staged.borrow();
        let (Some(work), Some(group)) = (staged.work(), staged.group()) else { return true };
        // It is not asked to move: that would wake the thread that looks after what nobody waits
        // for.
        let is_done = work.is_success()
            || (!waiters::has_waiter(group)
                && match is_large {
                    true => {
                        let copies = time_of_copies(staged.bytes());
                        let idle_limit = IDLE_LIMIT + copies / IDLE_PART;
                        work.poll_while_moving(idle_limit, copies.max(MIN_TURN_LIMIT))
                    }
                    false => work.poll_for(self.wait.limit()),
                });
        if is_done && !is_large {
            self.wait.learn_immediate(start);
        }
        self.is_done.set(is_done);
        is_done
    }

    /// Notes that it went well, if it is known to be done.
    fn note_success(&self) -> bool {
        let is_over = self.staged.borrow().work().is_none_or(Work::is_success);
        self.is_done.set(is_over);
        is_over
    }

    /// Has another thread move what was issued at `start`.
    fn hand_over(&self, start: Instant, is_large: bool) {
        let staged = self.staged.borrow();
        let (Some(work), Some(group)) = (staged.work(), staged.group()) else { return };
        if !is_large {
            let wait = self.wait.clone();
            work.on_awaited_end(move || wait.learn(start));
        }
        waiters::wait_in_background(group, work.clone());
        self.has_waiter.set(true);
    }

    /// Whether it is done; moves it once, without waiting.
    pub fn is_done(&self) -> bool {
        if !self.is_done.get() {
            let staged = self.staged.borrow();
            let is_done = match staged.work() {
                Some(work) if self.has_waiter.get() => work.is_done(),
                Some(work) => work.is_completed(),
                None => staged.is_issued(),
            };
            self.is_done.set(is_done);
        }
        self.is_done.get()
    }

    /// Calls `callback` when it is done, immediately if it is, or if it was not issued.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        match self.staged.borrow().work() {
            Some(work) if self.has_waiter.get() => work.on_awaited_end(callback),
            Some(work) => work.on_end(callback),
            None => callback(),
        }
    }

    /// The language drops it, on a thread that ends or not: what is not done continues, if its
    /// group does, though the handle on that may be gone already.
    pub fn end(&self, is_ending: bool) {
        let is_done = self.is_done();
        let staged = self.staged.borrow();
        if let (false, Some(group), Some(_)) = (is_done, staged.group(), staged.work()) {
            drop_operation(group.clone(), is_ending);
        }
    }
}

/// How long copying so many bytes in and out takes, about.
fn time_of_copies(bytes: usize) -> Duration {
    Duration::from_nanos(bytes.min(MAX_LENT_BYTES) as u64 / 2)
}
