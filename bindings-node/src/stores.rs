//! Stores that are objects of JavaScript: what the core asks of them comes to the thread that they
//! belong to, as tasks that it takes and ends. Knows nothing of what they keep.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use napi::bindgen_prelude::{ClassInstance, Uint8Array, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::custom_store::{StoreCarrier, StoreTask, hold, make};

use crate::convert::{Js, raise, to_js};
use crate::object::NativeObject;
use crate::realm::{Event, Mailbox, realm};

/// Sends tasks to the thread of the object.
struct Carrier {
    mailbox: Arc<Mailbox>,
    thread: ThreadId,
}

impl StoreCarrier for Carrier {
    fn carry(&self, task: StoreTask) {
        self.mailbox.send(Event::StoreTask(Box::new(task)));
    }

    fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }
}

/// The store that an object is, which is not kept. `base` is the store that it is besides.
#[napi]
pub fn make_store(
    env: Env,
    name: String,
    base: Option<ClassInstance<'_, NativeObject>>,
) -> Result<NativeObject> {
    let mailbox = realm(env)?.mailbox.clone();
    let carrier = Arc::new(Carrier { mailbox, thread: thread::current().id() });
    let base = base.map(|base| base.object()).transpose();
    let made = base.and_then(|base| make(&name, carrier, base.as_ref()));
    made.map(NativeObject::new).map_err(|error| raise(env, &error))
}

/// The same for calls, with the methods that the object has: names between commas.
#[napi]
pub fn hold_store(env: Env, made: &NativeObject, methods: String) -> Result<NativeObject> {
    let held = made.object().and_then(|made| hold(&made, &methods));
    held.map(NativeObject::new).map_err(|error| raise(env, &error))
}

/// Takes the next task that has come, as a list; nothing if there is none.
#[napi]
pub fn take_store_task<'env>(env: Env) -> Result<Unknown<'env>> {
    let parts = realm(env)?.take_store_task(|id, task| task.parts(id));
    Ok(parts.map_or_else(|| Js::nothing(env), |parts| to_js(env, parts))?.into_unknown())
}

/// Ends a task with a number in digits and values, or with the kind and the text of an error.
#[napi]
pub fn end_store_task(
    env: Env,
    id: u32,
    number: String,
    values: Vec<Uint8Array>,
    kind: String,
    text: Option<String>,
) -> Result<()> {
    let Some(task) = realm(env)?.remove_store_task(id) else { return Ok(()) };
    match text {
        Some(text) => task.fail(&kind, &text),
        None => task.answer(&number, values.iter().map(|value| value.to_vec()).collect()),
    }
    Ok(())
}
