//! Short calls: a collective or a message on one small array or two, or on none, without what the
//! resolver would find out. Whatever is unusual about a call, it is declined, and goes the way of
//! all operations. JavaScript copies the arrays to memory here, and results from there.

use std::cell::{Cell, RefCell};

use polyrank::calls::staged::{ShortArray, ShortCall, ShortMethods, ShortNames};
use polyrank::{DType, ProcessGroup, Result, Work};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::Bytes;
use crate::objects;
use crate::work::{begin, keep, raise};

/// The outcomes of a call: nothing happened; or it is done, and no array is written, or the first,
/// or the second. Higher ones: its work continues, the number of which is as much higher.
const DECLINED: i32 = -1;
const DONE: i32 = 0;
const WORKS: i32 = 3;

thread_local! {
    /// Methods that have short calls, by the numbers that JavaScript was given for them.
    static METHODS: RefCell<ShortMethods> = const { RefCell::new(ShortMethods::new()) };
    /// The arrays of a call, one after the other, and room for more.
    static ARRAYS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The sequence number of the last call that was done.
    static SEQUENCE: Cell<f64> = const { Cell::new(0.0) };
}

/// The number of a method for [`short_run`], in calls that have so many arrays first, and then an
/// operator and a rank of these names or positions, where they are given; -1 if those are not
/// short.
#[wasm_bindgen(js_name = shortMethod)]
pub fn short_method(
    method: &str,
    arrays: usize,
    reduce_op: Option<String>,
    rank: Option<String>,
) -> i32 {
    let names = ShortNames { reduce_op: reduce_op.as_deref(), rank: rank.as_deref() };
    METHODS.with_borrow_mut(|methods| methods.add(method, arrays, names))
}

/// Whether a method of [`short_method`] receives a message.
#[wasm_bindgen(js_name = shortIsReceive)]
pub fn short_is_receive(method: usize) -> bool {
    METHODS.with_borrow(|methods| methods.is_receive(method))
}

/// The limit of the operations of a group, ms; 0 stands for the default group. NaN if there is no
/// such group.
#[wasm_bindgen(js_name = shortTimeoutMs)]
pub fn short_timeout_ms(group: f64) -> f64 {
    objects::group(group).map_or(f64::NAN, |group| group.timeout().as_secs_f64() * 1e3)
}

/// The name of a group, as there; nothing if there is no such group.
#[wasm_bindgen(js_name = shortGroupName)]
pub fn short_group_name(group: f64) -> Option<String> {
    objects::group(group).map(|group| group.group_name().to_owned())
}

/// Where the arrays of the next call are to be written, which have so many bytes.
#[wasm_bindgen(js_name = shortArrays)]
pub fn short_arrays(bytes: usize) -> *mut u8 {
    ARRAYS.with_borrow_mut(|arrays| {
        if arrays.len() < bytes {
            arrays.resize(bytes, 0);
        }
        arrays.as_mut_ptr()
    })
}

/// Runs a method of [`short_method`] on arrays with elements of the type with this number, which
/// were written there and have so many bytes. `reduce_op` is the number of the operator, -1: none
/// is given. A group whose limit is not `timeout_ms` is declined, too.
///
/// # Errors
/// Those of the core; the operation is given up then.
#[wasm_bindgen(js_name = shortRun)]
#[allow(clippy::too_many_arguments, reason = "a record would have to be read from JavaScript")]
pub fn short_run(
    group: f64,
    method: usize,
    dtype: usize,
    first: usize,
    second: usize,
    reduce_op: i32,
    rank: f64,
    timeout_ms: f64,
) -> Result<i32, JsValue> {
    let Some(call) = short_call(method, reduce_op, rank) else { return Ok(DECLINED) };
    let group = objects::group(group).filter(|it| it.timeout().as_secs_f64() * 1e3 == timeout_ms);
    let Some(group) = group else { return Ok(DECLINED) };
    run(&call, &group, dtype, [first, second])
}

/// The sequence number of the last call that was done.
#[wasm_bindgen(js_name = shortSequence)]
pub fn short_sequence() -> f64 {
    SEQUENCE.get()
}

/// A call that was prepared, to be made often.
#[wasm_bindgen]
pub struct NativePrepared {
    call: ShortCall,
    group: ProcessGroup,
}

impl NativePrepared {
    pub(crate) fn new(call: ShortCall, group: ProcessGroup) -> NativePrepared {
        NativePrepared { call, group }
    }
}

#[wasm_bindgen]
impl NativePrepared {
    /// Starts it; as [`short_run`], with elements of the type that it was prepared for if there are
    /// no arrays.
    pub fn run(&self, dtype: usize, first: usize, second: usize) -> Result<i32, JsValue> {
        run(&self.call, &self.group, dtype, [first, second])
    }
}

fn short_call(method: usize, reduce_op: i32, rank: f64) -> Option<ShortCall> {
    METHODS.with_borrow(|methods| methods.call(method, reduce_op, rank))
}

/// Runs `call` on arrays of so many bytes; 0: there is none.
fn run(
    call: &ShortCall,
    group: &ProcessGroup,
    dtype: usize,
    bytes: [usize; 2],
) -> Result<i32, JsValue> {
    let [first, second] = bytes;
    let dtype = DType::ALL.get(dtype).copied().unwrap_or_else(|| call.dtype());
    let given = bytes.iter().filter(|bytes| **bytes > 0);
    let arrays = given.map(|&bytes| ShortArray { dtype, bytes, own: None }).collect();
    let Some(mut staged) = call.prepare(group, arrays) else { return Ok(DECLINED) };
    ARRAYS.with_borrow_mut(|arrays| {
        let (one, other) = arrays.split_at_mut(first);
        let other = &mut other[..second];
        let memories = [one, other].map(|part| Bytes::Copied(RefCell::new(part)));
        begin(&mut staged, &memories).map_err(raise)?;
        let work = staged.work().filter(|work| work.is_done() && call.is_rank_of(group));
        if let Some(sequence) = work.filter(|work| work.is_success()).map(Work::sequence) {
            // What fails is found again when the result is asked for.
            if matches!(staged.copy_out(&memories, usize::MAX), Ok(0)) {
                SEQUENCE.set(sequence as f64);
                return Ok(DONE + call.output(group).map_or(0, |at| 1 + at as i32));
            }
        }
        Ok(WORKS + keep(staged) as i32)
    })
}
