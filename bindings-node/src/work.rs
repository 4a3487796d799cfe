//! Operations on tensors, from their preparation to their result. JavaScript carries one around and
//! hands it to these functions; `js/work.js` makes a class of them.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::Error;
use polyrank::backend::WaitIntent;
use polyrank::calls::staged::StagedOperation;

use crate::convert::{Js, View, describe, raise, views};
use crate::group_drop::drop_operation;
use crate::realm::{Event, realm};
use crate::waiters;

/// Operations on more than this take longer than the event loop should wait.
const LARGE_BYTES: usize = 256 << 10;

/// As much of a result is copied out in the call that issues the operation.
const SMALL_BYTES: usize = 64 << 10;

/// An operation on tensors.
pub(crate) struct NativeWork {
    id: u32,
    staged: RefCell<StagedOperation>,
    /// Whether it is known to be done.
    is_done: Cell<bool>,
    /// Whether another thread moves it until it is done.
    is_attended: Cell<bool>,
    /// Whether its result is copied out already.
    is_over: Cell<bool>,
    /// Whether the group did not take it, which does it no harm.
    is_refused: Cell<bool>,
}

/// A number that no other operation of this realm has; negative if the operation went well and is
/// over already, so that nothing is left to be asked or copied.
#[napi]
fn work_id(work: Unknown<'_>) -> Result<f64> {
    let work = this(work)?;
    let id = f64::from(work.id);
    Ok(if work.is_over.get() { -id } else { id })
}

/// The method that was called, as the IDL has it.
#[napi]
fn work_name(work: Unknown<'_>) -> Result<&'static str> {
    Ok(this(work)?.staged.borrow().name())
}

/// Sequence number in the group; -1 before it is issued.
#[napi]
fn work_sequence(work: Unknown<'_>) -> Result<f64> {
    let staged = this(work)?.staged.borrow();
    Ok(staged.work().map_or(-1.0, |work| work.sequence() as f64))
}

/// The limit of the operation.
#[napi]
fn work_timeout_ms(work: Unknown<'_>) -> Result<f64> {
    Ok(this(work)?.staged.borrow().timeout().as_secs_f64() * 1000.0)
}

/// A number that all operations of its group have, and no others; 0 for no group.
#[napi]
fn work_group(work: Unknown<'_>) -> Result<f64> {
    let staged = this(work)?.staged.borrow();
    Ok(staged.group().map_or(0.0, |group| group.identity() as f64))
}

/// The name of its group; nothing for no group.
#[napi]
fn work_group_name(work: Unknown<'_>) -> Result<Option<String>> {
    let staged = this(work)?.staged.borrow();
    Ok(staged.group().map(|group| group.group_name().to_owned()))
}

/// Positions of the tensors that are written.
#[napi]
fn work_outputs(work: Unknown<'_>) -> Result<Vec<u32>> {
    let staged = this(work)?.staged.borrow();
    Ok(staged.outputs().iter().map(|&position| position as u32).collect())
}

/// Whether it is issued.
#[napi]
fn work_issued(work: Unknown<'_>) -> Result<bool> {
    Ok(this(work)?.staged.borrow().is_issued())
}

/// Bytes that were copied in until now.
#[napi]
fn work_bytes_copied_in(work: Unknown<'_>) -> Result<f64> {
    Ok(this(work)?.staged.borrow().bytes_copied_in() as f64)
}

/// Copies about `budget` bytes in; bytes that are still to be copied.
#[napi]
fn work_copy_in(env: Env, work: Unknown<'_>, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
    let views = views(Js::of(tensors))?;
    let left = this(work)?.staged.borrow_mut().copy_in(&views, budget as usize);
    left.map(|left| left as f64).map_err(|error| raise(env, &error))
}

/// Issues it, once everything is copied in.
#[napi]
fn work_issue(env: Env, work: Unknown<'_>) -> Result<()> {
    this(work)?.go(env)
}

/// Gives it up, though it was called: its group is aborted on all ranks, for this reason.
#[napi]
fn work_give_up(work: Unknown<'_>, why: String) -> Result<()> {
    this(work)?.give_up(&why);
    Ok(())
}

/// Whether it is done; moves it once, without waiting.
#[napi]
fn work_is_done(work: Unknown<'_>) -> Result<bool> {
    Ok(this(work)?.is_done())
}

/// Has the realm's listener told of it once it is done.
#[napi]
fn work_watch(env: Env, work: Unknown<'_>) -> Result<()> {
    let work = this(work)?;
    let realm = realm(env)?;
    realm.expect_event(env);
    let (mailbox, id) = (realm.mailbox.clone(), work.id);
    match work.staged.borrow().work() {
        Some(work) => work.on_end(move || mailbox.send(Event::Completed(id))),
        None => mailbox.send(Event::Completed(id)),
    }
    Ok(())
}

/// What it failed with.
#[napi]
fn work_error<'env>(env: Env, work: Unknown<'_>) -> Result<Unknown<'env>> {
    let error = this(work)?.staged.borrow().work().and_then(polyrank::Work::error);
    let data = error.map_or_else(|| Js::nothing(env), |error| describe(env, &error));
    Ok(data?.into_unknown())
}

/// Copies about `budget` bytes of the result out; bytes that are still to be copied.
#[napi]
fn work_copy_out(env: Env, work: Unknown<'_>, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
    let views = views(Js::of(tensors))?;
    let left = this(work)?.staged.borrow_mut().copy_out(&views, budget as usize);
    left.map(|left| left as f64).map_err(|error| raise(env, &error))
}

/// The rank, in the group, that sent what was received.
#[napi]
fn work_source_rank(work: Unknown<'_>) -> Result<Option<u32>> {
    Ok(this(work)?.staged.borrow().work().and_then(polyrank::Work::source_rank))
}

fn this(work: Unknown<'_>) -> Result<&NativeWork> {
    Js::of(work).carried()
}

impl NativeWork {
    /// An operation that is prepared. It is begun immediately if no more than `start_within` bytes
    /// are to be copied in; a negative number is none.
    pub(crate) fn new(
        env: Env,
        staged: StagedOperation,
        tensors: Js<'_>,
        start_within: f64,
    ) -> Result<NativeWork> {
        let bytes = staged.bytes_in();
        let starts = !staged.is_issued() && bytes as f64 <= start_within;
        let work = NativeWork::of(env, staged)?;
        if !starts {
            return Ok(work);
        }
        let begun = work.begin(env, tensors, bytes);
        if let Err(error) = &begun {
            work.give_up(&error.reason);
        }
        begun.map(|()| work)
    }

    /// An operation on one small array, `view`, that was issued at `start`. If it is done in a
    /// moment, its result is copied out.
    pub(crate) fn issued(
        env: Env,
        staged: StagedOperation,
        view: &View<'_>,
        start: Instant,
    ) -> Result<NativeWork> {
        let work = NativeWork::of(env, staged)?;
        work.see_to(env, start, false)?;
        work.finish_small(std::slice::from_ref(view));
        Ok(work)
    }

    fn of(env: Env, staged: StagedOperation) -> Result<NativeWork> {
        let id = realm(env)?.next_id();
        let staged = RefCell::new(staged);
        let [is_done, is_attended, is_over, is_refused] = [const { Cell::new(false) }; 4];
        Ok(NativeWork { id, staged, is_done, is_attended, is_over, is_refused })
    }

    /// The sequence number of an operation that went well and is over.
    pub(crate) fn sequence_if_over(&self) -> Option<u64> {
        let staged = self.staged.borrow();
        staged.work().filter(|_| self.is_over.get()).map(polyrank::Work::sequence)
    }

    /// The other ranks count on it, and would take this rank's next one for it.
    fn give_up(&self, why: &str) {
        if !self.is_refused.get() {
            self.staged.borrow_mut().give_up(why);
        }
    }

    /// Copies everything in and issues it. If it is done then, copies a small result out.
    fn begin(&self, env: Env, tensors: Js<'_>, bytes: usize) -> Result<()> {
        let views = views(tensors)?;
        if bytes > 0 {
            let copied = self.staged.borrow_mut().copy_in(&views, bytes);
            copied.map_err(|error| raise(env, &error))?;
        }
        self.go(env)?;
        self.finish_small(&views);
        Ok(())
    }

    /// Copies a small result out, if it is there. JavaScript has not run since the views were made.
    fn finish_small(&self, views: &[View<'_>]) {
        let mut staged = self.staged.borrow_mut();
        let went_well = self.is_done.get() && staged.work().is_some_and(polyrank::Work::is_success);
        if went_well && staged.bytes_out() <= SMALL_BYTES {
            // What fails is found again when the result is asked for.
            self.is_over.set(matches!(staged.copy_out(views, SMALL_BYTES), Ok(0)));
        }
    }

    /// Issues it, and sees to it that somebody moves it on.
    fn go(&self, env: Env) -> Result<()> {
        let start = Instant::now();
        // Nobody else is woken for what is done in a moment; a large one is not this thread's to
        // move, as much as has come by now.
        let is_large = self.staged.borrow().bytes() > LARGE_BYTES;
        let waiting = if is_large { WaitIntent::OtherThread } else { WaitIntent::Soon };
        let issued = self.staged.borrow_mut().issue(waiting);
        if let Err(error) = &issued {
            // Of devices, much cannot be done; all ranks are told the same, and nobody waits.
            let is_on_device = self.staged.borrow().is_on_device();
            self.is_refused.set(is_on_device && is_refusal(error));
        }
        issued.map_err(|error| raise(env, &error))?;
        self.see_to(env, start, is_large)
    }

    /// Waits a moment for what was issued at `start`, else has somebody move it on.
    fn see_to(&self, env: Env, start: Instant, is_large: bool) -> Result<()> {
        let staged = self.staged.borrow();
        let (Some(work), Some(group)) = (staged.work(), staged.group()) else { return Ok(()) };
        // It is not asked to move: that would wake the thread that looks after what nobody waits
        // for.
        let wait = realm(env)?.adaptive_wait.clone();
        if work.is_success() {
            if !is_large {
                wait.learn_immediate(start);
            }
            self.is_done.set(true);
            return Ok(());
        }
        if !is_large {
            if !waiters::is_attended(group) && work.wait_slice(wait.limit()).is_some() {
                wait.learn_immediate(start);
                self.is_done.set(true);
                return Ok(());
            }
            work.on_end(move || wait.learn(start));
        }
        waiters::attend(group, work.clone());
        self.is_attended.set(true);
        Ok(())
    }

    fn is_done(&self) -> bool {
        if !self.is_done.get() {
            let staged = self.staged.borrow();
            let is_done = match staged.work() {
                Some(work) if self.is_attended.get() => work.is_done(),
                Some(work) => work.is_completed(),
                None => staged.is_issued(),
            };
            self.is_done.set(is_done);
        }
        self.is_done.get()
    }
}

/// Whether an operation is wrong or not to be had here, rather than something having failed.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument { .. } | Error::Unsupported { .. } | Error::UnsupportedDType { .. }
    )
}

impl Drop for NativeWork {
    fn drop(&mut self) {
        // The handle on the group may be gone already.
        let is_done = self.is_done();
        let staged = self.staged.borrow();
        if let (false, Some(group), Some(_)) = (is_done, staged.group(), staged.work()) {
            drop_operation(group.clone());
        }
    }
}
