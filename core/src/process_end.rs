//! What a process waits for when it ends in order, in whatever language it is written. Knows
//! nothing of what that is.

#![allow(unsafe_code)]

use std::panic::catch_unwind;
use std::sync::Once;

use crate::process_mutex::ProcessMutex;

static WAITS: ProcessMutex<Vec<fn()>> = ProcessMutex::new(Vec::new());

/// Has the process call `wait` when it ends by `exit`, or by the end of `main`: once, however often
/// this is called.
pub(crate) fn wait_for(wait: fn()) {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the function is of the type that C asks for, lives as long as the process, and
        // catches what it raises.
        let failed = unsafe { libc::atexit(run) };
        if failed != 0 {
            tracing::warn!("no memory to wait at the end of the process for what others need");
        }
    });
    let mut waits = WAITS.lock();
    if !waits.iter().any(|known| std::ptr::fn_addr_eq(*known, wait)) {
        waits.push(wait);
    }
}

extern "C" fn run() {
    let waits = std::mem::take(&mut *WAITS.lock());
    for wait in waits {
        let _ = catch_unwind(wait);
    }
}
