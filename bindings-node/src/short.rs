//! Short calls: a collective on one array, from the call to its result in one step if it is over by
//! then. Whatever is unusual about a call, it is declined, and goes the way of all operations.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::staged::{CallerMemory, ShortCall, ShortOutcome};
use polyrank::calls::{self, Entry, Object};
use polyrank::{ProcessGroup, ReduceOp, distributed};

use crate::convert::{Js, View};
use crate::realm::realm;
use crate::work::NativeWork;

/// No operator is given.
const NO_OPERATOR: i32 = -1;

thread_local! {
    /// Methods that have short calls, by the numbers that JavaScript was given for them.
    static METHODS: RefCell<Vec<&'static Entry>> = const { RefCell::new(Vec::new()) };
    /// The groups that this thread has handles on, and how many.
    static GROUPS: RefCell<HashMap<u64, (ProcessGroup, usize)>> = RefCell::default();
    /// Where short calls work.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Notes a handle of this thread on `group`.
pub(crate) fn note_handle(group: &ProcessGroup) {
    GROUPS.with_borrow_mut(|groups| {
        groups.entry(group.identity()).or_insert_with(|| (group.clone(), 0)).1 += 1;
    });
}

/// Forgets a handle; the group, if that was the last one.
pub(crate) fn forget_handle(group: &ProcessGroup) {
    // The thread may be ending, with what belongs to it.
    let _ = GROUPS.try_with(|groups| {
        let mut groups = groups.borrow_mut();
        if let Some((_, handles)) = groups.get_mut(&group.identity()) {
            *handles -= 1;
            if *handles == 0 {
                groups.remove(&group.identity());
            }
        }
    });
}

/// The number of a method for `run_short`; -1 if it has no short calls.
#[napi]
pub fn short_method(method: String) -> i32 {
    let Ok(entry) = calls::entry(&method) else { return -1 };
    if ShortCall::new(entry, None).is_none() {
        return -1;
    }
    METHODS.with_borrow_mut(|methods| {
        methods.push(entry);
        methods.len() as i32 - 1
    })
}

/// The limit of the operations of a group, ms; 0 stands for the default group. NaN if there is no
/// such group.
#[napi]
pub fn short_timeout_ms(group: f64) -> f64 {
    group_of(group).map_or(f64::NAN, |group| group.timeout().as_secs_f64() * 1e3)
}

/// The name of a group, as there; null if there is no such group.
#[napi]
pub fn short_group_name(group: f64) -> Option<String> {
    group_of(group).map(|group| group.group_name().to_owned())
}

/// Runs a method of `short_method` on a typed array: its sequence number if it is done, a work if
/// it continues, null if it was declined and nothing happened. `reduce_op` is the number of the
/// operator, -1: none is given. A group whose limit is not `timeout_ms` is declined, too, and so is
/// a call for which more than `max_copied` bytes would have to be copied now.
#[napi]
pub fn run_short<'env>(
    env: Env,
    group: f64,
    method: u32,
    array: Unknown<'_>,
    reduce_op: i32,
    timeout_ms: f64,
    max_copied: f64,
) -> Result<Unknown<'env>> {
    let call = Call { group, method, reduce_op, timeout_ms, max_copied: max_copied as usize };
    let outcome = call.run(env, Js::of(array))?;
    Ok(outcome.map_or_else(|| Js::nothing(env), Ok)?.into_unknown())
}

/// What a short call says but for its array.
struct Call {
    group: f64,
    method: u32,
    reduce_op: i32,
    timeout_ms: f64,
    max_copied: usize,
}

impl Call {
    fn run<'env>(&self, env: Env, array: Js<'_>) -> Result<Option<Js<'env>>> {
        let Some(call) = short_call(self.method, self.reduce_op) else { return Ok(None) };
        let Some(group) = group_of(self.group) else { return Ok(None) };
        if group.timeout().as_secs_f64() * 1e3 != self.timeout_ms {
            return Ok(None);
        }
        let Some((dtype, view)) = View::of_elements(array)? else { return Ok(None) };
        let start = Instant::now();
        let mut scratch = SCRATCH.take();
        let outcome = call.run(&group, dtype, &view, &mut scratch);
        SCRATCH.set(scratch);
        let work = match outcome {
            Some(ShortOutcome::Done(sequence)) => {
                realm(env)?.adaptive_wait.learn_immediate(start);
                return Js::of_number(env, sequence as f64).map(Some);
            }
            Some(ShortOutcome::Issued(staged)) => NativeWork::issued(env, *staged, &view, start)?,
            // It may have been given away, of which the long way tells.
            None if view.bytes() == 0 => return Ok(None),
            None => {
                let this = (self.group != 0.0).then(|| Object::Group(group));
                let staged = call.prepare(this.as_ref(), dtype, view.bytes());
                let Some(staged) = staged else { return Ok(None) };
                match NativeWork::begun(env, staged, &view, self.max_copied)? {
                    Some(work) => work,
                    None => return Ok(None),
                }
            }
        };
        match work.sequence_if_over() {
            Some(sequence) => Js::of_number(env, sequence as f64).map(Some),
            None => Js::carrying(env, work).map(Some),
        }
    }
}

fn short_call(method: u32, reduce_op: i32) -> Option<ShortCall> {
    let entry = METHODS.with_borrow(|methods| methods.get(method as usize).copied())?;
    if reduce_op == NO_OPERATOR {
        return ShortCall::new(entry, None);
    }
    let known = ReduceOp::WITHOUT_FACTOR.into_iter().find(|it| i32::from(it.code()) == reduce_op);
    ShortCall::new(entry, Some(known?))
}

fn group_of(identity: f64) -> Option<ProcessGroup> {
    if identity == 0.0 {
        return distributed::default_group().ok();
    }
    GROUPS.with_borrow(|groups| groups.get(&(identity as u64)).map(|(group, _)| group.clone()))
}
