//! Operations on tensors: prepared, copied in, issued, copied out. JavaScript has them by their
//! numbers; `native_works.js` makes a class of them. Knows nothing of what they do.

use std::cell::RefCell;

use js_sys::Array;
use polyrank::backend::WaitIntent;
use polyrank::calls::staged::StagedOperation;
use polyrank::calls::{Answer, OperationArguments, entry};
use polyrank::{Error, Result, Work};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::{self, Bytes, Script, memories};
use crate::events;
use crate::objects;
use crate::short::NativePrepared;
use crate::slots::Slots;

thread_local! {
    static WORKS: RefCell<Slots<RefCell<StagedOperation>>> = const { RefCell::new(Slots::new()) };
}

/// The most tensors that the numbers of [`work_output_bits`] tell apart.
const MAX_BITS: usize = 31;

/// Resolves and checks an operation of `group`, or of the default group; its number, which lasts
/// until [`work_end`]. If no more than `start_within` bytes are to be copied in, it also copies
/// them and issues it.
///
/// # Errors
/// Those of the core, immediately. An operation that was prepared and cannot be begun is given up.
#[wasm_bindgen]
pub fn prepare(
    group: &JsValue,
    method: &str,
    args: &Array,
    keywords: &JsValue,
    tensors: &Array,
    infos: &Array,
    start_within: f64,
) -> Result<u32, JsValue> {
    let prepared = || -> Result<StagedOperation> {
        let arguments = OperationArguments {
            positional: Script(args.into()),
            keywords: Script(keywords.clone()),
            arrays: Script(tensors.into()),
            infos: Script(infos.into()),
        };
        arguments.prepare(entry(method)?, objects::given(group)?.as_ref())
    };
    let mut staged = prepared().map_err(raise)?;
    if !staged.is_issued() && staged.bytes_in() as f64 <= start_within {
        begin(&mut staged, &memories(tensors)).map_err(raise)?;
    }
    Ok(keep(staged))
}

/// Copies everything in and issues it. If that fails, it is given up: the other ranks count on it.
pub(crate) fn begin(staged: &mut StagedOperation, memories: &[Bytes<'_>]) -> Result<()> {
    let copied = staged.copy_in(memories, usize::MAX);
    let begun = copied.and_then(|_| staged.issue(WaitIntent::Later));
    if let Err(error) = &begun {
        staged.give_up(&error.to_string());
    }
    begun
}

/// The number of an operation, which lasts until [`work_end`].
pub(crate) fn keep(staged: StagedOperation) -> u32 {
    WORKS.with_borrow_mut(|works| works.add(RefCell::new(staged)))
}

pub(crate) fn raise(error: Error) -> JsValue {
    convert::error(&error)
}

/// What `ask` finds of an operation.
fn of<T>(work: u32, ask: impl FnOnce(&StagedOperation) -> T) -> T {
    // What runs meanwhile may be another operation's.
    let staged = WORKS.with_borrow(|works| works.get(work));
    let staged = staged.borrow();
    ask(&staged)
}

/// What `act` does with an operation.
fn with<T>(work: u32, act: impl FnOnce(&mut StagedOperation) -> T) -> T {
    let staged = WORKS.with_borrow(|works| works.get(work));
    let mut staged = staged.borrow_mut();
    act(&mut staged)
}

/// Gives up its number, and everything that is kept for it here, when nobody asks for it any more.
/// What was issued continues.
#[wasm_bindgen(js_name = workEnd)]
pub fn work_end(work: u32) {
    let ended = WORKS.with_borrow_mut(|works| works.take(work));
    drop(ended);
}

/// The method that was called, and what the user calls it.
#[wasm_bindgen(js_name = workName)]
pub fn work_name(work: u32) -> String {
    of(work, StagedOperation::title)
}

/// Sequence number of the operation in its group, -1 before it is issued.
#[wasm_bindgen(js_name = workSequence)]
pub fn work_sequence(work: u32) -> f64 {
    of(work, |staged| staged.work().map_or(-1.0, |work| work.sequence() as f64))
}

/// A number that is its group's own in this realm; 0 for none.
#[wasm_bindgen(js_name = workGroup)]
pub fn work_group(work: u32) -> f64 {
    of(work, |staged| staged.group().map_or(0.0, |group| group.identity() as f64))
}

/// The name of its group; nothing for no group.
#[wasm_bindgen(js_name = workGroupName)]
pub fn work_group_name(work: u32) -> Option<String> {
    of(work, |staged| staged.group().map(|group| group.group_name().to_owned()))
}

/// The limit of the operation, ms.
#[wasm_bindgen(js_name = workTimeoutMs)]
pub fn work_timeout_ms(work: u32) -> f64 {
    of(work, |staged| staged.timeout().as_secs_f64() * 1000.0)
}

/// Positions of the tensors that are written, in the order of the call.
#[wasm_bindgen(js_name = workOutputs)]
pub fn work_outputs(work: u32) -> Vec<u32> {
    of(work, |staged| staged.outputs().iter().map(|position| *position as u32).collect())
}

/// The same as the bits of a number, if they rise and are small; nothing if not.
#[wasm_bindgen(js_name = workOutputBits)]
pub fn work_output_bits(work: u32) -> Option<u32> {
    of(work, |staged| {
        let outputs = staged.outputs();
        let rises = outputs.is_sorted() && outputs.iter().all(|position| *position < MAX_BITS);
        rises.then(|| outputs.iter().fold(0, |bits, position| bits | 1 << position))
    })
}

/// Positions of the tensors that are read, in the order of the call.
#[wasm_bindgen(js_name = workInputs)]
pub fn work_inputs(work: u32) -> Vec<u32> {
    of(work, |staged| staged.inputs().iter().map(|position| *position as u32).collect())
}

/// What hooks learn of it before it is issued; nothing if it is, or nothing is to be done.
#[wasm_bindgen(js_name = workFacts)]
pub fn work_facts(work: u32) -> Option<Array> {
    let facts = of(work, StagedOperation::facts)?;
    let code = facts.reduce_op.map(|reduce_op| u32::from(reduce_op.code()));
    let all: [JsValue; 5] = [
        facts.name.into(),
        facts.rank.into(),
        facts.root.into(),
        code.into(),
        facts.factor().into(),
    ];
    Some(all.into_iter().collect())
}

/// Throws if an input has an element that is not finite.
#[wasm_bindgen(js_name = workCheckFinite)]
pub fn work_check_finite(work: u32, tensors: &Array, allow_infinity: bool) -> Result<(), JsValue> {
    let memories = memories(tensors);
    with(work, |staged| staged.check_finite(&memories, allow_infinity)).map_err(raise)
}

/// What is started again and again, of an operation that is prepared and is not issued; nothing if
/// its calls are not short.
#[wasm_bindgen(js_name = workPrepared)]
pub fn work_prepared(work: u32) -> Option<NativePrepared> {
    of(work, |staged| Some(NativePrepared::new(staged.short_call()?, staged.group()?.clone())))
}

/// Does not issue it, though it was called: its group is aborted, for a reason that every rank is
/// told as it is.
#[wasm_bindgen(js_name = workRefuse)]
pub fn work_refuse(work: u32, why: &str) {
    with(work, |staged| staged.refuse(why));
}

/// Whether nothing is left to issue.
#[wasm_bindgen(js_name = workIssued)]
pub fn work_issued(work: u32) -> bool {
    of(work, StagedOperation::is_issued)
}

/// Bytes that were copied in until now.
#[wasm_bindgen(js_name = workBytesCopiedIn)]
pub fn work_bytes_copied_in(work: u32) -> f64 {
    of(work, |staged| staged.bytes_copied_in() as f64)
}

/// Copies about `budget` bytes in; bytes that are still to be copied then.
#[wasm_bindgen(js_name = workCopyIn)]
pub fn work_copy_in(work: u32, tensors: &Array, budget: f64) -> Result<f64, JsValue> {
    let memories = memories(tensors);
    let left = with(work, |staged| staged.copy_in(&memories, budget as usize));
    left.map(|left| left as f64).map_err(raise)
}

/// Issues it, once everything is copied in.
#[wasm_bindgen(js_name = workIssue)]
pub fn work_issue(work: u32) -> Result<(), JsValue> {
    with(work, |staged| staged.issue(WaitIntent::Later)).map_err(raise)
}

/// Gives it up, though it was called: its group is aborted on all ranks, for this reason.
#[wasm_bindgen(js_name = workGiveUp)]
pub fn work_give_up(work: u32, why: &str) {
    with(work, |staged| staged.give_up(why));
}

/// Whether it is done. Moves things once.
#[wasm_bindgen(js_name = workIsDone)]
pub fn work_is_done(work: u32) -> bool {
    of(work, |staged| staged.work().map_or(staged.is_issued(), Work::is_completed))
}

/// Calls `onCompleted` with `id` once, when it is done.
#[wasm_bindgen(js_name = workWatch)]
pub fn work_watch(work: u32, id: f64) {
    of(work, |staged| match staged.work() {
        Some(work) => work.on_end(move || events::note_completed(id)),
        None => events::note_completed(id),
    });
}

/// What it failed with; null if it has not.
#[wasm_bindgen(js_name = workError)]
pub fn work_error(work: u32) -> JsValue {
    let error = of(work, |staged| staged.work().and_then(Work::error));
    error.map_or(JsValue::NULL, |error| convert::error_data(&error))
}

/// Copies about `budget` bytes of the result out; bytes that are still to be copied then.
#[wasm_bindgen(js_name = workCopyOut)]
pub fn work_copy_out(work: u32, tensors: &Array, budget: f64) -> Result<f64, JsValue> {
    let memories = memories(tensors);
    let left = with(work, |staged| staged.copy_out(&memories, budget as usize));
    left.map(|left| left as f64).map_err(raise)
}

/// The sender, for a receive that is done.
#[wasm_bindgen(js_name = workSourceRank)]
pub fn work_source_rank(work: u32) -> Option<u32> {
    of(work, |staged| staged.work().and_then(Work::source_rank))
}

/// What compression lost; nothing where nothing is compressed.
#[wasm_bindgen(js_name = workCompressionError)]
pub fn work_compression_error(work: u32) -> JsValue {
    let lost = of(work, |staged| staged.work().and_then(Work::compression_error));
    convert::answer(Answer::of_compression(lost))
}
