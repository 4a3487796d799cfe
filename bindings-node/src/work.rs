//! Operations on tensors, from their preparation to their result. JavaScript carries one around and
//! hands it to these functions; `js/work.js` makes a class of them.

use std::time::Instant;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::Answer;
use polyrank::calls::event_loop::LoopOperation;
use polyrank::calls::staged::StagedOperation;

use crate::convert::{Js, View, describe, raise, to_js, views};
use crate::realm::{Event, is_ending, realm};

/// An operation on tensors.
pub(crate) struct NativeWork {
    id: u32,
    operation: LoopOperation,
}

/// A number that no other operation of this realm has; negative if the operation went well and is
/// over already, so that nothing is left to be asked or copied.
#[napi]
fn work_id(work: Unknown<'_>) -> Result<f64> {
    let work = this(work)?;
    let id = f64::from(work.id);
    Ok(if work.operation.is_over() { -id } else { id })
}

/// The method that was called, as the IDL has it, and what the user calls it.
#[napi]
fn work_name(work: Unknown<'_>) -> Result<String> {
    Ok(this(work)?.operation.staged().title())
}

/// Sequence number in the group; -1 before it is issued.
#[napi]
fn work_sequence(work: Unknown<'_>) -> Result<f64> {
    let staged = this(work)?.operation.staged();
    Ok(staged.work().map_or(-1.0, |work| work.sequence() as f64))
}

/// The limit of the operation.
#[napi]
fn work_timeout_ms(work: Unknown<'_>) -> Result<f64> {
    Ok(this(work)?.operation.staged().timeout().as_secs_f64() * 1000.0)
}

/// A number that all operations of its group have, and no others; 0 for no group.
#[napi]
fn work_group(work: Unknown<'_>) -> Result<f64> {
    let staged = this(work)?.operation.staged();
    Ok(staged.group().map_or(0.0, |group| group.identity() as f64))
}

/// The name of its group; nothing for no group.
#[napi]
fn work_group_name(work: Unknown<'_>) -> Result<Option<String>> {
    let staged = this(work)?.operation.staged();
    Ok(staged.group().map(|group| group.group_name().to_owned()))
}

/// Positions of the tensors that are written.
#[napi]
fn work_outputs(work: Unknown<'_>) -> Result<Vec<u32>> {
    let staged = this(work)?.operation.staged();
    Ok(staged.outputs().iter().map(|&position| position as u32).collect())
}

/// Positions of the tensors that are read.
#[napi]
fn work_inputs(work: Unknown<'_>) -> Result<Vec<u32>> {
    let staged = this(work)?.operation.staged();
    Ok(staged.inputs().iter().map(|&position| position as u32).collect())
}

/// What hooks learn of it before it is issued: its name, this process's rank, the root, the number
/// of the operator and its factor. Nothing if it is issued, or nothing is to be done.
#[napi]
#[allow(clippy::type_complexity, reason = "a tuple for JavaScript, which names its parts")]
fn work_facts(
    work: Unknown<'_>,
) -> Result<Option<(&'static str, u32, i32, Option<u32>, Option<f64>)>> {
    let facts = this(work)?.operation.staged().facts();
    Ok(facts.map(|facts| {
        let code = facts.reduce_op.map(|reduce_op| u32::from(reduce_op.code()));
        (facts.name, facts.rank, facts.root, code, facts.factor())
    }))
}

/// Throws if an input has an element that is not finite.
#[napi]
fn work_check_finite(
    env: Env,
    work: Unknown<'_>,
    tensors: Unknown<'_>,
    allow_infinity: bool,
) -> Result<()> {
    let views = views(Js::of(tensors))?;
    let checked = this(work)?.operation.staged_mut().check_finite(&views, allow_infinity);
    checked.map_err(|error| raise(env, &error))
}

/// Does not issue it, though it was called: its group is aborted, for a reason that every rank is
/// told as it is.
#[napi]
fn work_refuse(work: Unknown<'_>, why: String) -> Result<()> {
    this(work)?.operation.staged_mut().refuse(&why);
    Ok(())
}

/// Whether it is issued.
#[napi]
fn work_issued(work: Unknown<'_>) -> Result<bool> {
    Ok(this(work)?.operation.staged().is_issued())
}

/// Bytes that were copied in until now.
#[napi]
fn work_bytes_copied_in(work: Unknown<'_>) -> Result<f64> {
    Ok(this(work)?.operation.staged().bytes_copied_in() as f64)
}

/// Copies about `budget` bytes in; bytes that are still to be copied.
#[napi]
fn work_copy_in(env: Env, work: Unknown<'_>, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
    let views = views(Js::of(tensors))?;
    let left = this(work)?.operation.staged_mut().copy_in(&views, budget as usize);
    left.map(|left| left as f64).map_err(|error| raise(env, &error))
}

/// Issues it, once everything is copied in.
#[napi]
fn work_issue(env: Env, work: Unknown<'_>) -> Result<()> {
    this(work)?.operation.issue().map_err(|error| raise(env, &error))
}

/// Gives it up, though it was called: its group is aborted on all ranks, for this reason.
#[napi]
fn work_give_up(work: Unknown<'_>, why: String) -> Result<()> {
    this(work)?.operation.give_up(&why);
    Ok(())
}

/// Whether it is done; moves it once, without waiting.
#[napi]
fn work_is_done(work: Unknown<'_>) -> Result<bool> {
    Ok(this(work)?.operation.is_done())
}

/// Notifies the realm's listener once it is done.
#[napi]
fn work_watch(env: Env, work: Unknown<'_>) -> Result<()> {
    let work = this(work)?;
    let realm = realm(env)?;
    realm.expect_event(env);
    let (mailbox, id) = (realm.mailbox.clone(), work.id);
    work.operation.on_end(move || mailbox.send(Event::Completed(id)));
    Ok(())
}

/// What it failed with.
#[napi]
fn work_error<'env>(env: Env, work: Unknown<'_>) -> Result<Unknown<'env>> {
    let error = this(work)?.operation.staged().work().and_then(polyrank::Work::error);
    let data = error.map_or_else(|| Js::nothing(env), |error| describe(env, &error));
    Ok(data?.into_unknown())
}

/// Copies about `budget` bytes of the result out; bytes that are still to be copied.
#[napi]
fn work_copy_out(env: Env, work: Unknown<'_>, tensors: Unknown<'_>, budget: f64) -> Result<f64> {
    let views = views(Js::of(tensors))?;
    let left = this(work)?.operation.staged_mut().copy_out(&views, budget as usize);
    left.map(|left| left as f64).map_err(|error| raise(env, &error))
}

/// The rank, in the group, that sent what was received.
#[napi]
fn work_source_rank(work: Unknown<'_>) -> Result<Option<u32>> {
    Ok(this(work)?.operation.staged().work().and_then(polyrank::Work::source_rank))
}

/// What compression lost; nothing where nothing is compressed.
#[napi]
fn work_compression_error<'env>(env: Env, work: Unknown<'_>) -> Result<Unknown<'env>> {
    let staged = this(work)?.operation.staged();
    let lost = staged.work().and_then(polyrank::Work::compression_error);
    Ok(to_js(env, Answer::of_compression(lost))?.into_unknown())
}

fn this(work: Unknown<'_>) -> Result<&NativeWork> {
    Js::of(work).carried()
}

impl NativeWork {
    /// An operation that is prepared. It is begun immediately if no more than `start_within` bytes
    /// have to be copied in for that; a negative number is none.
    pub(crate) fn new(
        env: Env,
        staged: StagedOperation,
        tensors: Js<'_>,
        start_within: f64,
    ) -> Result<NativeWork> {
        let may_start = !staged.is_issued() && start_within >= 0.0;
        let realm = realm(env)?;
        let operation = LoopOperation::new(staged, realm.adaptive_wait.clone());
        let work = NativeWork { id: realm.next_id(), operation };
        if !may_start {
            return Ok(work);
        }
        let views = views(tensors).inspect_err(|error| work.operation.give_up(&error.reason))?;
        work.begin(env, &views, start_within as usize)?;
        Ok(work)
    }

    /// An operation on arrays that is prepared, and begun. None, and nothing has happened, if
    /// more than `max_copied` bytes have to be copied in for that.
    pub(crate) fn begun(
        env: Env,
        staged: StagedOperation,
        views: &[View<'_>],
        max_copied: usize,
    ) -> Result<Option<NativeWork>> {
        let realm = realm(env)?;
        let operation = LoopOperation::new(staged, realm.adaptive_wait.clone());
        let work = NativeWork { id: realm.next_id(), operation };
        Ok(work.begin(env, views, max_copied)?.then_some(work))
    }

    /// As [`LoopOperation::begin`]; gives it up if that fails.
    fn begin(&self, env: Env, views: &[View<'_>], max_copied: usize) -> Result<bool> {
        let begun = self.operation.begin(views, max_copied);
        let begun = begun.map_err(|error| raise(env, &error));
        begun.inspect_err(|error| self.operation.give_up(&error.reason))
    }

    /// As [`LoopOperation::issued`].
    pub(crate) fn issued(
        env: Env,
        staged: StagedOperation,
        views: &[View<'_>],
        start: Instant,
    ) -> Result<NativeWork> {
        let realm = realm(env)?;
        let wait = realm.adaptive_wait.clone();
        let operation = LoopOperation::issued(staged, wait, views, start);
        Ok(NativeWork { id: realm.next_id(), operation })
    }

    /// As [`LoopOperation::sequence_if_over`].
    pub(crate) fn sequence_if_over(&self) -> Option<u64> {
        self.operation.sequence_if_over()
    }
}

impl Drop for NativeWork {
    fn drop(&mut self) {
        self.operation.end(is_ending());
    }
}
