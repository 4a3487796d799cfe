//! Stores that are objects of JavaScript: what the core asks of them is taken, and ended, by the
//! JavaScript half. Knows nothing of what they keep.

use std::cell::RefCell;
use std::sync::Arc;

use js_sys::{Array, Uint8Array};
use polyrank::calls::Object;
use polyrank::calls::custom_store::{StoreCarrier, StoreTask, hold, make};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert;
use crate::events::note_tasks;
use crate::numbered::Numbered;
use crate::objects::{NativeObject, given};

thread_local! {
    static TASKS: RefCell<Tasks> = const {
        RefCell::new(Tasks { all: Numbered::new(), new: Vec::new() })
    };
}

struct Tasks {
    all: Numbered<StoreTask>,
    /// The numbers of those that the JavaScript half has not taken.
    new: Vec<u32>,
}

/// Keeps tasks until they are taken.
struct Carrier;

impl StoreCarrier for Carrier {
    fn carry(&self, task: StoreTask) {
        TASKS.with_borrow_mut(|tasks| {
            let id = tasks.all.add(task);
            tasks.new.push(id);
        });
        note_tasks();
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// The store that an object is, which is not kept. `base` is the store that it is besides.
///
/// # Errors
/// Those of a handle that is none of a store.
#[wasm_bindgen(js_name = makeStore)]
pub fn make_store(name: &str, base: &JsValue) -> Result<NativeObject, JsValue> {
    let made = given(base).and_then(|base| make(name, Arc::new(Carrier), base.as_ref()));
    made.map(NativeObject::new).map_err(|error| convert::error(&error))
}

/// The same for calls, with the methods that the object has: names between commas.
///
/// # Errors
/// Those of a handle that [`make_store`] did not make.
#[wasm_bindgen(js_name = holdStore)]
pub fn hold_store(made: &JsValue, methods: &str) -> Result<NativeObject, JsValue> {
    let made = given(made).and_then(|made| made.ok_or_else(Object::not_a_handle));
    let held = made.and_then(|made| hold(&made, methods));
    held.map(NativeObject::new).map_err(|error| convert::error(&error))
}

/// Takes the next task that has come, as a list; nothing if there is none.
#[wasm_bindgen(js_name = takeStoreTask)]
pub fn take_store_task() -> JsValue {
    let parts = TASKS.with_borrow_mut(|tasks| {
        let id = if tasks.new.is_empty() { return None } else { tasks.new.remove(0) };
        Some(tasks.all.get(id)?.parts(id))
    });
    parts.map_or(JsValue::UNDEFINED, convert::answer)
}

/// Ends a task with a number in digits and values, or with the kind and the text of an error.
#[wasm_bindgen(js_name = endStoreTask)]
pub fn end_store_task(id: u32, number: &str, values: &Array, kind: &str, text: Option<String>) {
    let Some(task) = TASKS.with_borrow_mut(|tasks| tasks.all.remove(id)) else { return };
    match text {
        Some(text) => task.fail(kind, &text),
        None => {
            let values = values.iter().map(|value| Uint8Array::from(value).to_vec());
            task.answer(number, values.collect());
        }
    }
}
