//! Wakes a JavaScript thread from any thread. Knows nothing of what it is woken for.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use napi::{Env, Result, sys};

use super::js::{Js, check};

/// Wakes a JavaScript thread from any thread: the JavaScript thread calls a function.
pub(crate) struct ThreadWaker {
    /// `None` once the thread's environment ends.
    function: Mutex<Option<Function>>,
}

#[derive(Clone, Copy)]
struct Function(sys::napi_threadsafe_function);

// SAFETY: Node's own functions for it may be called from any thread, as long as it is there: it is
// only used under the lock, and taken away before the environment that owns it ends.
unsafe impl Send for Function {}

impl ThreadWaker {
    /// Makes a waker for the thread of `env`, which calls `woken` whenever it is woken. It does not
    /// keep the process alive.
    pub(crate) fn new(env: Env, woken: fn(Env)) -> Result<ThreadWaker> {
        let name = Js::of_text(env, "polyrank")?.raw().1;
        let mut function = ptr::null_mut();
        // SAFETY: the environment is Node's, of this call. The context is a function's address,
        // which Node passes to `call`.
        check(unsafe {
            sys::napi_create_threadsafe_function(
                env.raw(),
                ptr::null_mut(),
                ptr::null_mut(),
                name,
                0,
                1,
                ptr::null_mut(),
                None,
                woken as *mut c_void,
                Some(call),
                &mut function,
            )
        })?;
        // SAFETY: as above.
        check(unsafe { sys::napi_unref_threadsafe_function(env.raw(), function) })?;
        Ok(ThreadWaker { function: Mutex::new(Some(Function(function))) })
    }

    /// Wakes the thread, if it is still there.
    pub(crate) fn wake(&self) {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Function(function)) = *function {
            let mode = sys::ThreadsafeFunctionCallMode::nonblocking;
            // SAFETY: it is there, as it is taken away under the lock before it goes. A thread that
            // is ending needs no waking.
            let _ = unsafe { sys::napi_call_threadsafe_function(function, ptr::null_mut(), mode) };
        }
    }

    /// Sets whether pending work keeps the process alive. Call on its own thread.
    pub(crate) fn set_keeps_process_alive(&self, env: Env, keeps_alive: bool) {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Function(function)) = *function {
            // SAFETY: as in `wake`, and on the thread of the environment. It cannot fail then.
            let _ = unsafe {
                if keeps_alive {
                    sys::napi_ref_threadsafe_function(env.raw(), function)
                } else {
                    sys::napi_unref_threadsafe_function(env.raw(), function)
                }
            };
        }
    }

    /// Makes later wake-ups do nothing: the environment ends.
    pub(crate) fn end(&self) {
        self.function.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Called by Node on the thread that was woken; without an environment if that is ending.
unsafe extern "C" fn call(
    env: sys::napi_env,
    _: sys::napi_value,
    context: *mut c_void,
    _: *mut c_void,
) {
    if env.is_null() || context.is_null() {
        return;
    }
    // SAFETY: the context is what `ThreadWaker::new` passed.
    let woken = unsafe { std::mem::transmute::<*mut c_void, fn(Env)>(context) };
    woken(Env::from_raw(env));
}
