//! Operations on tensors: prepared, copied in, issued, copied out. Knows nothing of what they do.

use std::cell::{Cell, RefCell};

use js_sys::Array;
use polyrank::backend::WaitIntent;
use polyrank::calls::staged::StagedOperation;
use polyrank::calls::{Answer, OperationArguments, entry};
use polyrank::{Error, Result};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::{self, Script};
use crate::events;
use crate::objects;

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// An operation on tensors, on its way.
#[wasm_bindgen]
pub struct NativeWork {
    id: u32,
    staged: RefCell<StagedOperation>,
}

/// Resolves and checks an operation of `group`, or of the default group. If no more than
/// `start_within` bytes are to be copied in, it also copies them and issues it.
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
) -> Result<NativeWork, JsValue> {
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
        begin(&mut staged, tensors).map_err(raise)?;
    }
    let id = LAST.get().wrapping_add(1);
    LAST.set(id);
    Ok(NativeWork { id, staged: RefCell::new(staged) })
}

/// Copies everything in and issues it. If that fails, it is given up: the other ranks count on it.
fn begin(staged: &mut StagedOperation, tensors: &Array) -> Result<()> {
    let copied = staged.copy_in(&convert::memories(tensors), usize::MAX);
    let begun = copied.and_then(|_| staged.issue(WaitIntent::Later));
    if let Err(error) = &begun {
        staged.give_up(&error.to_string());
    }
    begun
}

fn raise(error: Error) -> JsValue {
    convert::error(&error)
}

#[wasm_bindgen]
impl NativeWork {
    /// Its number in this realm.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The method that was called, and what the user calls it.
    #[wasm_bindgen(getter)]
    pub fn name(&self) -> String {
        self.staged.borrow().title()
    }

    /// Sequence number of the operation in its group, -1 before it is issued.
    #[wasm_bindgen(getter)]
    pub fn sequence(&self) -> f64 {
        self.staged.borrow().work().map_or(-1.0, |work| work.sequence() as f64)
    }

    /// A number that is its group's own in this realm; 0 for none.
    #[wasm_bindgen(getter)]
    pub fn group(&self) -> f64 {
        self.staged.borrow().group().map_or(0.0, |group| group.identity() as f64)
    }

    /// The limit of the operation, ms.
    #[wasm_bindgen(getter, js_name = timeoutMs)]
    pub fn timeout_ms(&self) -> f64 {
        self.staged.borrow().timeout().as_secs_f64() * 1000.0
    }

    /// Positions of the tensors that are written, in the order of the call.
    #[wasm_bindgen(getter)]
    pub fn outputs(&self) -> Array {
        let staged = self.staged.borrow();
        staged.outputs().iter().map(|position| JsValue::from(*position as u32)).collect()
    }

    /// Positions of the tensors that are read, in the order of the call.
    #[wasm_bindgen(getter)]
    pub fn inputs(&self) -> Array {
        let staged = self.staged.borrow();
        staged.inputs().iter().map(|position| JsValue::from(*position as u32)).collect()
    }

    /// What hooks learn of it before it is issued; nothing if it is, or nothing is to be done.
    pub fn facts(&self) -> Option<Array> {
        let facts = self.staged.borrow().facts()?;
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
    #[wasm_bindgen(js_name = checkFinite)]
    pub fn check_finite(&self, tensors: &Array, allow_infinity: bool) -> Result<(), JsValue> {
        let memories = convert::memories(tensors);
        let checked = self.staged.borrow_mut().check_finite(&memories, allow_infinity);
        checked.map_err(raise)
    }

    /// Does not issue it, though it was called: its group is aborted, for a reason that every rank
    /// is told as it is.
    pub fn refuse(&self, why: &str) {
        self.staged.borrow_mut().refuse(why);
    }

    /// Whether nothing is left to issue.
    #[wasm_bindgen(getter)]
    pub fn issued(&self) -> bool {
        self.staged.borrow().is_issued()
    }

    /// Bytes that were copied in until now.
    #[wasm_bindgen(getter, js_name = bytesCopiedIn)]
    pub fn bytes_copied_in(&self) -> f64 {
        self.staged.borrow().bytes_copied_in() as f64
    }

    /// Copies about `budget` bytes in; bytes that are still to be copied then.
    #[wasm_bindgen(js_name = copyIn)]
    pub fn copy_in(&self, tensors: &Array, budget: f64) -> Result<f64, JsValue> {
        let memories = convert::memories(tensors);
        let left = self.staged.borrow_mut().copy_in(&memories, budget as usize);
        left.map(|left| left as f64).map_err(raise)
    }

    /// Issues it, once everything is copied in.
    pub fn issue(&self) -> Result<(), JsValue> {
        self.staged.borrow_mut().issue(WaitIntent::Later).map_err(raise)
    }

    /// Gives it up, though it was called: its group is aborted on all ranks, for this reason.
    #[wasm_bindgen(js_name = giveUp)]
    pub fn give_up(&self, why: &str) {
        self.staged.borrow_mut().give_up(why);
    }

    /// Whether it is done. Moves things once.
    #[wasm_bindgen(js_name = isDone)]
    pub fn is_done(&self) -> bool {
        let staged = self.staged.borrow();
        match staged.work() {
            Some(work) => work.is_completed(),
            None => staged.is_issued(),
        }
    }

    /// Calls `onCompleted` once, when it is done.
    pub fn watch(&self) {
        let id = self.id;
        match self.staged.borrow().work() {
            Some(work) => work.on_end(move || events::note_completed(id)),
            None => events::note_completed(id),
        }
    }

    /// What it failed with; null if it has not.
    pub fn error(&self) -> JsValue {
        let staged = self.staged.borrow();
        let error = staged.work().and_then(|work| work.error());
        error.map_or(JsValue::NULL, |error| convert::error_data(&error))
    }

    /// Copies about `budget` bytes of the result out; bytes that are still to be copied then.
    #[wasm_bindgen(js_name = copyOut)]
    pub fn copy_out(&self, tensors: &Array, budget: f64) -> Result<f64, JsValue> {
        let memories = convert::memories(tensors);
        let left = self.staged.borrow_mut().copy_out(&memories, budget as usize);
        left.map(|left| left as f64).map_err(raise)
    }

    /// The sender, for a receive that is done.
    #[wasm_bindgen(js_name = sourceRank)]
    pub fn source_rank(&self) -> Option<u32> {
        self.staged.borrow().work().and_then(|work| work.source_rank())
    }

    /// What compression lost; nothing where nothing is compressed.
    #[wasm_bindgen(js_name = compressionError)]
    pub fn compression_error(&self) -> JsValue {
        let staged = self.staged.borrow();
        let lost = staged.work().and_then(|work| work.compression_error());
        convert::answer(Answer::of_compression(lost))
    }

    /// Gives up the copies, when nothing is to be copied any more.
    pub fn release(&self) {
        self.staged.borrow_mut().release();
    }
}
