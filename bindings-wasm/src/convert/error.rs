//! The core's errors as JavaScript's. Knows nothing of classes: those are the JavaScript half's.

use js_sys::{Object, Reflect};
use polyrank::calls::Language;
use polyrank::{Error, ErrorField};
use wasm_bindgen::JsValue;

/// An `Error` whose property `data` says which kind it is.
pub(crate) fn error(error: &Error) -> JsValue {
    let thrown = js_sys::Error::new(&error.to_string());
    set(&thrown, "data", &error_data(error));
    thrown.into()
}

/// The kind, the message and the fields of an error.
pub(crate) fn error_data(error: &Error) -> JsValue {
    let fields = Object::new();
    for (name, field) in error.fields() {
        let value = match field {
            ErrorField::Number(number) => (number as f64).into(),
            ErrorField::Numbers(numbers) => {
                let list: js_sys::Array =
                    numbers.into_iter().map(|number| JsValue::from(number as f64)).collect();
                list.into()
            }
            ErrorField::Text(text) => text.into(),
        };
        set(&fields, name, &value);
    }
    let data = Object::new();
    set(&data, "kind", &error.kind().into());
    set(&data, "message", &Language::JavaScript.message(error).into());
    set(&data, "fields", &fields);
    data.into()
}

/// Sets a property.
pub(super) fn set(object: &JsValue, name: &str, value: &JsValue) {
    // A plain object takes any property.
    let _ = Reflect::set(object, &name.into(), value);
}
