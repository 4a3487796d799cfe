//! The functions that the JavaScript half calls. Knows nothing of classes and options.

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use napi::bindgen_prelude::{ClassInstance, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::event_loop::{sequences, threads};
use polyrank::calls::staged::StagedOperation;
use polyrank::calls::{self, Entry, Invocation, OperationArguments, ScriptValue};

use crate::convert::{Deferred, Js, invalid, raise, to_js};
use crate::memory::NativeMemory;
use crate::object::NativeObject;
use crate::realm::{Event, realm};
use crate::work::NativeWork;

/// What this half runs on.
#[napi]
pub fn platform() -> &'static str {
    "node"
}

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Runs the `polyrank` command; the exit code. `arguments` is the command line, the name of the
/// program first, `itself` the words that start the command again.
#[napi]
pub fn command(arguments: Vec<String>, itself: Vec<String>) -> i32 {
    let words = |list: Vec<String>| list.into_iter().map(OsString::from).collect();
    polyrank_cli::main(words(arguments), words(itself))
}

/// Gives what is called from now on a name, until it is called with none.
#[napi]
pub fn name_calls(name: Option<String>) {
    polyrank::set_thread_comm_name(name.as_deref());
}

/// How long operations may still go on when their group is left, ms.
#[napi]
pub fn shutdown_limit_ms() -> f64 {
    polyrank::SHUTDOWN_LIMIT.as_secs_f64() * 1e3
}

/// Zeroed memory that operations use in place.
#[napi]
pub fn alloc(env: Env, bytes: f64) -> Result<NativeMemory> {
    NativeMemory::new(env, bytes)
}

/// An operation on tensors: resolves and checks the call. If no more than `start_within` bytes are
/// to be copied in, it copies them and issues the operation.
#[napi]
#[allow(clippy::too_many_arguments)]
pub fn prepare<'env>(
    env: Env,
    group: Option<ClassInstance<'_, NativeObject>>,
    method: Unknown<'_>,
    args: Unknown<'_>,
    keywords: Unknown<'_>,
    tensors: Unknown<'_>,
    infos: Unknown<'_>,
    start_within: f64,
) -> Result<Unknown<'env>> {
    let [positional, keywords, arrays, infos] = [args, keywords, tensors, infos].map(Js::of);
    let this = group.map(|group| group.object()).transpose();
    let this = this.map_err(|error| raise(env, &error))?;
    let arguments = OperationArguments { positional, keywords, arrays, infos };
    let staged = arguments.prepare(entry(Js::of(method))?, this.as_ref())?;
    let work = NativeWork::new(env, staged, arrays, start_within)?;
    Ok(Js::carrying(env, work)?.into_unknown())
}

/// As [`prepare`], for messages of the default group or the one that is named, which go together:
/// `calls` are lists of a method, arguments by position and by name, tensors and what these are.
#[napi]
pub fn prepare_together<'env>(
    env: Env,
    calls: Unknown<'_>,
    start_within: f64,
) -> Result<Unknown<'env>> {
    let calls = Js::of(calls);
    let mut messages = Vec::new();
    for index in 0..calls.len()? {
        let call = calls.at(index)?;
        let [method, positional, keywords, arrays, infos] = [0, 1, 2, 3, 4].map(|at| call.at(at));
        let (positional, keywords, arrays, infos) = (positional?, keywords?, arrays?, infos?);
        let arguments = OperationArguments { positional, keywords, arrays, infos };
        messages.push(arguments.prepare(entry(method?)?, None)?);
    }
    let staged = StagedOperation::together(messages).map_err(|error| raise(env, &error))?;
    let work = NativeWork::new(env, staged, Js::array(env)?, start_within)?;
    Ok(Js::carrying(env, work)?.into_unknown())
}

/// A call that does not wait. As for the other functions that begin or make one, `call` is the list
/// of what it is made on, or null, of its method, and of its arguments by position and by name.
#[napi]
pub fn invoke<'env>(env: Env, call: Unknown<'_>) -> Result<Unknown<'env>> {
    let answer = invocation(call)?.run().map_err(|error| raise(env, &error))?;
    Ok(to_js(env, answer)?.into_unknown())
}

/// A call that may wait: wrong arguments throw, what fails later rejects. `cancel` is a number of
/// `cancellation`, by which the wait can be ended.
#[napi]
pub fn invoke_async<'env>(
    env: Env,
    call: Unknown<'_>,
    cancel: Option<u32>,
) -> Result<Unknown<'env>> {
    begin(env, invocation(call)?, cancel)
}

/// As [`invoke_async`], without beginning: for `call_groups` and `call_begin`.
#[napi]
pub fn resolve<'env>(env: Env, call: Unknown<'_>) -> Result<Unknown<'env>> {
    let pending = PendingInvocation(Cell::new(Some(invocation(call)?)));
    Ok(Js::carrying(env, pending)?.into_unknown())
}

/// Numbers of the groups in whose order of calls a call stands.
#[napi]
pub fn call_groups(call: Unknown<'_>) -> Result<Vec<f64>> {
    let groups = seen(call, Invocation::groups)?.unwrap_or_default();
    Ok(groups.into_iter().map(|group| group as f64).collect())
}

/// Whether a call runs beside the others of its groups.
#[napi]
pub fn call_is_concurrent(call: Unknown<'_>) -> Result<bool> {
    Ok(seen(call, Invocation::is_concurrent)?.unwrap_or_default())
}

/// The rank in the group with which a call exchanges a message, if it is with one.
#[napi]
pub fn call_peer(env: Env, call: Unknown<'_>) -> Result<Option<u32>> {
    let peer = seen(call, Invocation::peer)?.unwrap_or(Ok(None));
    peer.map_err(|error| raise(env, &error))
}

/// Tells the realm's listener once that a group failed, unless by this rank's own will: by its
/// number with a minus.
#[napi]
pub fn watch_failure(env: Env, group: &NativeObject) -> Result<()> {
    let object = group.object().map_err(|error| raise(env, &error))?;
    let group = object.group().map_err(|error| raise(env, &error))?;
    let (mailbox, number) = (realm(env)?.mailbox.clone(), group.identity());
    let watch = move || mailbox.send(Event::Failed(number));
    group.register_abort_hook(FAILURE_WATCH, watch).map_err(|error| raise(env, &error))
}

/// A number of the members that a group has now. Throws if they are others than the `known` ones,
/// for which `operation` was prepared; no number: none are known.
#[napi]
pub fn check_members(
    env: Env,
    group: &NativeObject,
    known: Option<f64>,
    operation: String,
) -> Result<f64> {
    let object = group.object().map_err(|error| raise(env, &error))?;
    let known = known.map(|known| known as u64);
    let epoch = object.check_members(known, &operation);
    epoch.map(|epoch| epoch as f64).map_err(|error| raise(env, &error))
}

/// The numbers of groups that have failed, of which the realm's listener was not told; it will not
/// be.
#[napi]
pub fn take_failures(env: Env) -> Result<Vec<f64>> {
    Ok(realm(env)?.take_failures())
}

/// The number of the hook that tells JavaScript.
const FAILURE_WATCH: i64 = 0;

/// This process's rank in the group of a call.
#[napi]
pub fn call_rank(call: Unknown<'_>) -> Result<Option<u32>> {
    Ok(seen(call, Invocation::rank_in_group)?.flatten())
}

/// Aborts the groups of a call that this rank does not run, for this reason.
#[napi]
pub fn call_refuse(call: Unknown<'_>, why: String) -> Result<()> {
    seen(call, |call| call.refuse(&why)).map(drop)
}

/// Aborts the groups that a call leaves.
#[napi]
pub fn call_abort_groups(call: Unknown<'_>) -> Result<()> {
    seen(call, Invocation::abort_groups).map(drop)
}

/// Begins a call, once.
#[napi]
pub fn call_begin<'env>(env: Env, call: Unknown<'_>, cancel: Option<u32>) -> Result<Unknown<'env>> {
    let PendingInvocation(call) = Js::of(call).carried()?;
    let call = call.take().ok_or_else(|| invalid(env, "a call begins once"))?;
    begin(env, call, cancel)
}

/// What `look` sees of a call, if it has not begun.
fn seen<T>(call: Unknown<'_>, look: impl FnOnce(&Invocation) -> T) -> Result<Option<T>> {
    let PendingInvocation(call) = Js::of(call).carried()?;
    let taken = call.take();
    let seen = taken.as_ref().map(look);
    call.set(taken);
    Ok(seen)
}

/// A call that has not begun, if it has not.
struct PendingInvocation(Cell<Option<Invocation>>);

fn begin<'env>(env: Env, call: Invocation, cancel: Option<u32>) -> Result<Unknown<'env>> {
    let realm = realm(env)?;
    let (deferred, promise) = Deferred::new(env)?;
    // Without a number of its own, a call ends when its realm does.
    let id = cancel.unwrap_or_else(|| realm.next_id());
    let flag: Arc<AtomicBool> = realm.flag(id);
    realm.expect_event(env);
    let mailbox = realm.mailbox.clone();
    let place = call.place();
    call.prepare();
    let run = move || {
        let result = threads::cancellable(flag, || call.run());
        mailbox.send(Event::Ended(deferred, Some(id), result));
    };
    match place {
        Some(place) => sequences::run(place, run),
        None => threads::run(run),
    }
    Ok(promise.into_unknown())
}

/// A number by which a call can be ended. Nothing is kept for it before the call runs.
#[napi]
pub fn cancellation(env: Env) -> Result<u32> {
    Ok(realm(env)?.next_id())
}

/// Ends the waits of the call that was given this number.
#[napi]
pub fn cancel(env: Env, id: u32) -> Result<()> {
    realm(env)?.cancel(id);
    Ok(())
}

/// Calls `callback` with the numbers of watched operations that are done.
#[napi]
pub fn on_completed(env: Env, callback: Unknown<'_>) -> Result<()> {
    realm(env)?.listen(Js::of(callback))
}

fn invocation(call: Unknown<'_>) -> Result<Invocation> {
    let call = Js::of(call);
    let [this, method, positional, keywords] = [0, 1, 2, 3].map(|at| call.at(at));
    let this = this?;
    let this = if this.is_nothing()? { None } else { Some(this.object()?) };
    Invocation::read(entry(method?)?, this, &positional?, &keywords?)
}

fn entry(method: Js<'_>) -> Result<&'static Entry> {
    calls::entry(&method.text()?).map_err(|error| raise(method.env(), &error))
}
