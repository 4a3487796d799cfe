//! Calls of methods by name: immediately, or as promises that can be cancelled. Knows nothing of
//! what they do.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use js_sys::{Array, Promise};
use polyrank::Result;
use polyrank::calls::{Answer, AnswerFuture, Invocation, entry};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::future_to_promise;

use crate::convert::{self, Script};
use crate::numbered::Numbered;
use crate::objects;

/// Calls a method and returns its result.
///
/// # Errors
/// Those of the core; what would have to wait is unsupported.
#[wasm_bindgen]
pub fn invoke(
    this: &JsValue,
    method: &str,
    args: &Array,
    keywords: &JsValue,
) -> Result<JsValue, JsValue> {
    let answer = resolved(this, method, args, keywords).and_then(Invocation::run);
    answer.map(convert::answer).map_err(|error| convert::error(&error))
}

/// Calls a method that takes time. Wrong arguments raise immediately.
///
/// # Errors
/// Those of the resolver; the promise is rejected with the others.
#[wasm_bindgen(js_name = invokeAsync)]
pub fn invoke_async(
    this: &JsValue,
    method: &str,
    args: &Array,
    keywords: &JsValue,
    cancellation: Option<u32>,
) -> Result<Promise, JsValue> {
    Ok(resolve(this, method, args, keywords)?.begin(cancellation))
}

/// As [`invoke_async`], without beginning.
///
/// # Errors
/// Those of the resolver.
#[wasm_bindgen]
pub fn resolve(
    this: &JsValue,
    method: &str,
    args: &Array,
    keywords: &JsValue,
) -> Result<NativeCall, JsValue> {
    let call = resolved(this, method, args, keywords).map_err(|error| convert::error(&error))?;
    Ok(NativeCall(call))
}

/// A call that has not begun.
#[wasm_bindgen]
pub struct NativeCall(Invocation);

#[wasm_bindgen]
impl NativeCall {
    /// Numbers of the groups in whose order of calls it stands.
    #[wasm_bindgen(getter)]
    pub fn groups(&self) -> Array {
        // Numbers are given one after the other, and never reach 2^53.
        self.0.groups().into_iter().map(|group| JsValue::from(group as f64)).collect()
    }

    /// Whether it runs beside the others of its groups.
    #[wasm_bindgen(getter, js_name = isConcurrent)]
    pub fn is_concurrent(&self) -> bool {
        self.0.is_concurrent()
    }

    /// The rank in the group with which it exchanges a message, if it is with one.
    ///
    /// # Errors
    /// Those of the core.
    pub fn peer(&self) -> Result<Option<u32>, JsValue> {
        self.0.peer().map_err(|error| convert::error(&error))
    }

    /// This process's rank in its group.
    pub fn rank(&self) -> Option<u32> {
        self.0.rank_in_group()
    }

    /// Aborts the groups of a call that this rank does not run, for this reason.
    pub fn refuse(&self, why: &str) {
        self.0.refuse(why);
    }

    /// Aborts the groups that the call leaves.
    #[wasm_bindgen(js_name = abortGroups)]
    pub fn abort_groups(&self) {
        self.0.abort_groups();
    }

    /// Begins. JavaScript has no handle on it afterwards.
    pub fn begin(self, cancellation: Option<u32>) -> Promise {
        begin(self.0, cancellation)
    }
}

fn begin(call: Invocation, cancellation: Option<u32>) -> Promise {
    if let Some(id) = cancellation {
        CANCELLATIONS.with_borrow_mut(|all| all.insert(id, Cancellation::default()));
    }
    let running = Cancellable { running: call.start(), cancellation };
    future_to_promise(async move {
        match running.await {
            Some(answer) => answer.map(convert::answer).map_err(|error| convert::error(&error)),
            None => Err(js_sys::Error::new("the call was cancelled").into()),
        }
    })
}

fn resolved(this: &JsValue, method: &str, args: &Array, keywords: &JsValue) -> Result<Invocation> {
    let this = objects::given(this)?;
    Invocation::read(entry(method)?, this, &Script(args.into()), &Script(keywords.clone()))
}

#[derive(Default)]
struct Cancellation {
    cancelled: bool,
    waker: Option<Waker>,
}

thread_local! {
    static CANCELLATIONS: RefCell<Numbered<Cancellation>> =
        const { RefCell::new(Numbered::new()) };
}

/// A number by which one call of [`invoke_async`] can be cancelled. Nothing is kept for it before
/// that runs.
#[wasm_bindgen]
pub fn cancellation() -> u32 {
    CANCELLATIONS.with_borrow_mut(Numbered::next)
}

/// Ends the call that has this cancellation, if it continues: its promise is rejected, and what it
/// asked for is withdrawn.
#[wasm_bindgen]
pub fn cancel(id: u32) {
    let waker = CANCELLATIONS.with_borrow_mut(|all| {
        let cancellation = all.get_mut(id)?;
        cancellation.cancelled = true;
        cancellation.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A call that ends early, with nothing, if it is cancelled.
struct Cancellable {
    running: AnswerFuture,
    cancellation: Option<u32>,
}

impl Future for Cancellable {
    type Output = Option<Result<Answer>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let cancelled = self.cancellation.is_some_and(|id| {
            CANCELLATIONS.with_borrow_mut(|all| {
                all.get_mut(id).is_some_and(|cancellation| {
                    cancellation.waker = Some(context.waker().clone());
                    cancellation.cancelled
                })
            })
        });
        // One that is cancelled immediately takes its number all the same, as on the other ranks.
        match self.running.as_mut().poll(context) {
            Poll::Pending if cancelled => Poll::Ready(None),
            other => other.map(Some),
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if let Some(id) = self.cancellation {
            CANCELLATIONS.with_borrow_mut(|all| all.remove(id));
        }
    }
}
