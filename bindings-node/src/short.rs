//! Short calls: a collective or a message on one array or two, from the call to its result in one
//! step if it is over by then. Whatever is unusual about a call, it is declined, and goes the way
//! of all operations.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::staged::{
    CallerMemory, ShortArray, ShortCall, ShortGroups, ShortMethods, ShortNames, ShortOutcome,
};
use polyrank::{DType, ProcessGroup};

use crate::convert::{Js, View};
use crate::memory::home_of;
use crate::realm::realm;
use crate::work::NativeWork;

/// As much as the executor copies, at most, in a call that is done when it returns.
const COPIED_BYTES: usize = 16 << 10;

thread_local! {
    /// Methods that have short calls, by the numbers that JavaScript was given for them.
    static METHODS: RefCell<ShortMethods> = const { RefCell::new(ShortMethods::new()) };
    /// The groups that this thread has handles on.
    static GROUPS: RefCell<ShortGroups> = const { RefCell::new(ShortGroups::new()) };
    /// Where short calls work.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Notes a handle of this thread on `group`.
pub(crate) fn note_handle(group: &ProcessGroup) {
    GROUPS.with_borrow_mut(|groups| groups.add(group));
}

/// Forgets a handle; the group, if that was the last one.
pub(crate) fn forget_handle(group: &ProcessGroup) {
    // The thread may be ending, with what belongs to it.
    let _ = GROUPS.try_with(|groups| groups.borrow_mut().remove(group));
}

/// The number of a method for `run_short`, in calls that have so many arrays first, and then an
/// operator and a rank of these names or positions, where they are given; -1 if those are not
/// short.
#[napi]
pub fn short_method(
    method: String,
    arrays: u32,
    reduce_op: Option<String>,
    rank: Option<String>,
) -> i32 {
    let names = ShortNames { reduce_op: reduce_op.as_deref(), rank: rank.as_deref() };
    METHODS.with_borrow_mut(|methods| methods.add(&method, arrays as usize, names))
}

/// Whether a method of `short_method` receives a message.
#[napi]
pub fn short_is_receive(method: u32) -> bool {
    METHODS.with_borrow(|methods| methods.is_receive(method as usize))
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

/// Runs a method of `short_method` on one typed array, or on two. If it is done, its sequence
/// number; `-1 - number` if this rank's arrays are none of its outputs. A work if it continues,
/// null if it was declined and nothing happened. `reduce_op` is the number of the operator, -1:
/// none is given. A group whose limit is not `timeout_ms` is declined, too, and so is a call for
/// which more than `max_copied` bytes would have to be copied now.
#[napi]
#[allow(clippy::too_many_arguments)]
pub fn run_short<'env>(
    env: Env,
    group: f64,
    method: u32,
    first: Unknown<'_>,
    second: Unknown<'_>,
    reduce_op: i32,
    rank: f64,
    timeout_ms: f64,
    max_copied: f64,
) -> Result<Unknown<'env>> {
    let call = Call { group, method, reduce_op, rank, timeout_ms, max_copied: max_copied as usize };
    let outcome = call.run(env, [first, second].map(Js::of))?;
    Ok(outcome.map_or_else(|| Js::nothing(env), Ok)?.into_unknown())
}

/// A start of what `work_prepared` gave, on its arrays: as [`run_short`].
#[napi]
pub fn run_prepared<'env>(
    env: Env,
    prepared: Unknown<'_>,
    first: Unknown<'_>,
    second: Unknown<'_>,
    max_copied: f64,
) -> Result<Unknown<'env>> {
    let PreparedCall { call, group } = Js::of(prepared).carried()?;
    let (first, second, max_copied) = (Js::of(first), Js::of(second), max_copied as usize);
    let outcome = match first.is_nothing()? {
        true => run_in(env, call, group, (call.dtype(), &[]), max_copied)?,
        false => run_on(env, call, group, [first, second], max_copied)?,
    };
    Ok(outcome.map_or_else(|| Js::nothing(env), Ok)?.into_unknown())
}

/// A call that was prepared, to be made often.
pub(crate) struct PreparedCall {
    pub(crate) call: ShortCall,
    pub(crate) group: ProcessGroup,
}

/// What a short call says but for its arrays.
struct Call {
    group: f64,
    method: u32,
    reduce_op: i32,
    rank: f64,
    timeout_ms: f64,
    max_copied: usize,
}

impl Call {
    fn run<'env>(&self, env: Env, arrays: [Js<'_>; 2]) -> Result<Option<Js<'env>>> {
        let Some(call) = self.short_call() else { return Ok(None) };
        let Some(group) = group_of(self.group) else { return Ok(None) };
        if group.timeout().as_secs_f64() * 1e3 != self.timeout_ms {
            return Ok(None);
        }
        run_on(env, &call, &group, arrays, self.max_copied)
    }

    fn short_call(&self) -> Option<ShortCall> {
        METHODS.with_borrow(|it| it.call(self.method as usize, self.reduce_op, self.rank))
    }
}

/// Runs `call` on arrays, of elements that it was prepared for if it was; what `run_short` gives.
fn run_on<'env>(
    env: Env,
    call: &ShortCall,
    group: &ProcessGroup,
    arrays: [Js<'_>; 2],
    max_copied: usize,
) -> Result<Option<Js<'env>>> {
    let first = View::of_elements(arrays[0])?;
    let second = if arrays[1].is_nothing()? { None } else { View::of_elements(arrays[1])? };
    let Some((dtype, first)) = first else { return Ok(None) };
    let second = second.filter(|(other, _)| *other == dtype);
    let both = [first, second.map_or(first, |(_, second)| second)];
    let views = if second.is_some() { &both[..] } else { &both[..1] };
    // An array may have been given away, of which the long way tells.
    let is_short = views.iter().all(|view| view.bytes() > 0)
        && (second.is_none() || !first.overlaps(&both[1]));
    if !is_short {
        return Ok(None);
    }
    run_in(env, call, group, (dtype, views), max_copied)
}

/// As [`run_on`], where the arrays are, if there are any.
fn run_in<'env>(
    env: Env,
    call: &ShortCall,
    group: &ProcessGroup,
    (dtype, views): (DType, &[View<'_>]),
    max_copied: usize,
) -> Result<Option<Js<'env>>> {
    let done = |sequence: u64| {
        let number = sequence as f64;
        Js::of_number(env, if call.has_output(group) { number } else { -1.0 - number })
    };
    let start = Instant::now();
    let mut scratch = SCRATCH.take();
    let outcome = call.run(group, dtype, views, &mut scratch);
    SCRATCH.set(scratch);
    let work = match outcome {
        Some(ShortOutcome::Done(sequence)) => {
            realm(env)?.adaptive_wait.learn_immediate(start);
            return done(sequence).map(Some);
        }
        Some(ShortOutcome::Issued(staged)) => NativeWork::issued(env, *staged, views, start)?,
        None => {
            let Some(arrays) = short_arrays(dtype, views) else { return Ok(None) };
            let Some(staged) = call.prepare(group, arrays) else { return Ok(None) };
            match NativeWork::begun(env, staged, views, max_copied)? {
                Some(work) => work,
                None => return Ok(None),
            }
        }
    };
    // Whom a message is from is known in the call then.
    match work.sequence_if_over().filter(|_| call.is_rank_of(group)) {
        Some(sequence) => done(sequence).map(Some),
        None => Js::carrying(env, work).map(Some),
    }
}

/// What the core is told of arrays; `None` if it takes them only as a part of a longer tensor.
/// Short ones are copied, whoever has their memory: that costs less than anything else.
fn short_arrays(dtype: DType, views: &[View<'_>]) -> Option<Vec<ShortArray>> {
    let are_copied = views.iter().all(|view| view.bytes() <= COPIED_BYTES);
    let described = |view: &View<'_>| {
        let bytes = view.bytes();
        let own = match are_copied {
            true => None,
            false => home_of(view.address(), bytes, dtype.size_bytes()).ok()?,
        };
        Some(ShortArray { dtype, bytes, own })
    };
    views.iter().map(described).collect()
}

fn group_of(number: f64) -> Option<ProcessGroup> {
    GROUPS.with_borrow(|groups| groups.get(number))
}
