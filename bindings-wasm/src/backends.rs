//! Backends and reduction functions that are written in JavaScript: what the core asks of them is
//! taken, and ended, by the JavaScript half. Knows nothing of what they do.

use std::cell::RefCell;
use std::sync::Arc;

use js_sys::{Array, Uint8Array};
use polyrank::CustomReduction;
use polyrank::calls::Object;
use polyrank::calls::custom_backend::{BackendTask, TaskCarrier, register, served};
use polyrank::calls::custom_reduction;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert;
use crate::events::note_tasks;
use crate::numbered::Numbered;
use crate::objects::given;

thread_local! {
    /// Operators that are functions of the page.
    static REDUCTIONS: RefCell<Vec<CustomReduction>> = const { RefCell::new(Vec::new()) };
    static TASKS: RefCell<Tasks> = const {
        RefCell::new(Tasks { all: Numbered::new(), new: Vec::new() })
    };
}

struct Tasks {
    all: Numbered<BackendTask>,
    /// The numbers of those that the JavaScript half has not taken.
    new: Vec<u32>,
}

/// Keeps tasks until they are taken.
struct Carrier;

impl TaskCarrier for Carrier {
    fn carry(&self, task: BackendTask) {
        TASKS.with_borrow_mut(|tasks| {
            let id = tasks.all.add(task);
            tasks.new.push(id);
        });
        note_tasks();
    }
}

/// Registers a backend. `devices` are separated by commas.
///
/// # Errors
/// Those of the core.
#[wasm_bindgen(js_name = registerBackend)]
pub fn register_backend(name: &str, devices: &str) -> Result<(), JsValue> {
    register(name, devices, Arc::new(Carrier)).map_err(|error| convert::error(&error))
}

/// Makes an operator of the function with this number; the operator's number.
#[wasm_bindgen(js_name = makeReduction)]
pub fn make_reduction(function: u32) -> u32 {
    let reduction = custom_reduction::register(function, Arc::new(Carrier));
    let number = reduction.number();
    REDUCTIONS.with_borrow_mut(|all| all.push(reduction));
    number
}

/// Gives up an operator: it ends with the operations that have it.
#[wasm_bindgen(js_name = dropReduction)]
pub fn drop_reduction(operator: u32) {
    let dropped = REDUCTIONS.with_borrow_mut(|all| {
        let place = all.iter().position(|it| it.number() == operator)?;
        Some(all.swap_remove(place))
    });
    drop(dropped);
}

/// What serves a device in a group: the backend's name, and the number of its kind.
///
/// # Errors
/// Those of the core.
#[wasm_bindgen(js_name = deviceBackend)]
pub fn device_backend(group: &JsValue, device: &str) -> Result<JsValue, JsValue> {
    let group = given(group).and_then(|group| group.ok_or_else(Object::not_a_handle));
    let served = group.and_then(|group| served(&group, device));
    served.map(convert::answer).map_err(|error| convert::error(&error))
}

/// Takes the next task that has come, as a list; nothing if there is none.
#[wasm_bindgen(js_name = takeBackendTask)]
pub fn take_backend_task() -> JsValue {
    let parts = TASKS.with_borrow_mut(|tasks| {
        let id = if tasks.new.is_empty() { return None } else { tasks.new.remove(0) };
        tasks.all.get(id)?.parts(id).ok()
    });
    parts.map_or(JsValue::UNDEFINED, convert::answer)
}

/// Ends a task with what it has written, or with the kind and the text of an error.
#[wasm_bindgen(js_name = endBackendTask)]
pub fn end_backend_task(id: u32, source: i32, outputs: &Array, kind: &str, text: Option<String>) {
    let Some(task) = TASKS.with_borrow_mut(|tasks| tasks.all.remove(id)) else { return };
    let result = match text {
        Some(text) => Err(task.error(kind, text)),
        None => {
            for position in 0..outputs.length() {
                let bytes = Uint8Array::from(outputs.get(position)).to_vec();
                task.fill(position as usize, &bytes);
            }
            Ok(())
        }
    };
    task.end(result, u32::try_from(source).ok());
}
