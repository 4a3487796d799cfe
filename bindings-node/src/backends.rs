//! Backends and reduction functions that are written in JavaScript: what the core asks of them
//! comes to the thread that registered them, as tasks that it takes and ends. Knows nothing of what
//! they do.

use std::sync::Arc;

use napi::bindgen_prelude::{Uint8Array, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::custom_backend::{BackendTask, TaskCarrier, register, served};
use polyrank::calls::custom_reduction;

use crate::convert::{Js, raise, to_js};
use crate::object::NativeObject;
use crate::realm::{Event, Mailbox, realm};

/// Sends tasks to the thread that registered the backend.
struct Carrier(Arc<Mailbox>);

impl TaskCarrier for Carrier {
    fn carry(&self, task: BackendTask) {
        self.0.send(Event::Task(Box::new(task)));
    }
}

/// Registers a backend, whose tasks this thread takes. `devices` are separated by commas.
#[napi]
pub fn register_backend(env: Env, name: String, devices: String) -> Result<()> {
    let carrier = Arc::new(Carrier(realm(env)?.mailbox.clone()));
    register(&name, &devices, carrier).map_err(|error| raise(env, &error))
}

/// Makes an operator of the function with this number of this thread; the operator's number.
#[napi]
pub fn make_reduction(env: Env, function: u32) -> Result<u32> {
    let realm = realm(env)?;
    let carrier = Arc::new(Carrier(realm.mailbox.clone()));
    Ok(realm.keep_reduction(custom_reduction::register(function, carrier)))
}

/// Gives up an operator: it ends with the operations that have it.
#[napi]
pub fn drop_reduction(env: Env, operator: u32) -> Result<()> {
    drop(realm(env)?.remove_reduction(operator));
    Ok(())
}

/// What serves a device in a group: the backend's name, and the number of its kind.
#[napi]
pub fn device_backend<'env>(
    env: Env,
    group: &NativeObject,
    device: String,
) -> Result<Unknown<'env>> {
    let served = group.object().and_then(|group| served(&group, &device));
    Ok(to_js(env, served.map_err(|error| raise(env, &error))?)?.into_unknown())
}

/// Takes the next task that has come, as a list; nothing if there is none.
#[napi]
pub fn take_backend_task<'env>(env: Env) -> Result<Unknown<'env>> {
    let realm = realm(env)?;
    let parts = realm.take_task().and_then(|id| realm.with_task(id, |task| task.parts(id)));
    let parts = parts.transpose().map_err(|error| raise(env, &error))?;
    Ok(parts.map_or_else(|| Js::nothing(env), |parts| to_js(env, parts))?.into_unknown())
}

/// Ends a task with what it has written, or with the kind and the text of an error.
#[napi]
pub fn end_backend_task(
    env: Env,
    id: u32,
    source: i32,
    outputs: Vec<Uint8Array>,
    kind: Option<String>,
    text: Option<String>,
) -> Result<()> {
    let Some(task) = realm(env)?.remove_task(id) else { return Ok(()) };
    if let Some(text) = text {
        task.end(Err(task.error(kind.as_deref().unwrap_or_default(), text)), None);
        return Ok(());
    }
    for (position, bytes) in outputs.iter().enumerate() {
        task.fill(position, bytes);
    }
    task.end(Ok(()), u32::try_from(source).ok());
    Ok(())
}
