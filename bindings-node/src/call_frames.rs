//! Which lines of JavaScript have led to a call. Knows nothing of who asks for them.

use std::sync::Arc;

use napi::bindgen_prelude::Unknown;
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::call_site::{CallFrame, set_call_frame_source};

use crate::convert::Js;
use crate::realm::{current_realm, realm};

/// Has `tell` say from now on which lines of this thread have called: it adds function, file and
/// line of each to the list that it is given.
#[napi]
pub fn on_call_frames(env: Env, tell: Unknown<'_>) -> Result<()> {
    realm(env)?.tell_frames(Js::of(tell))?;
    set_call_frame_source(Arc::new(frames));
    Ok(())
}

/// Those of this thread; none on a thread that is not JavaScript's.
fn frames() -> Vec<CallFrame> {
    let Some(tell) = current_realm().and_then(|realm| realm.frame_teller()) else {
        return Vec::new();
    };
    let env = tell.env();
    Js::scope(env, || told(tell)).unwrap_or_else(|_| {
        // Whoever replaced what makes stacks may throw; that is no failure of the call.
        let _ = Js::forget_exception(env);
        Vec::new()
    })
}

fn told(tell: Js<'_>) -> Result<Vec<CallFrame>> {
    let list = Js::array(tell.env())?;
    tell.call(list)?;
    let mut frames = Vec::new();
    for index in (0..list.len()?).step_by(3) {
        let (name, filename) = (list.at(index)?.text()?, list.at(index + 1)?.text()?);
        let line = list.at(index + 2)?.number()? as u32;
        frames.push(CallFrame { name, filename, line });
    }
    Ok(frames)
}
