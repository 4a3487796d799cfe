//! What the core returns, as JavaScript's values.

use js_sys::{Array, Object, Uint8Array};
use polyrank::calls::{Answer, Object as CoreObject, camel_case};
use wasm_bindgen::JsValue;

use super::error::set;
use crate::memory::NativeMemory;
use crate::objects::NativeObject;

/// Integers beyond this are not numbers without loss: 2^53 - 1.
const SAFE: u64 = (1 << 53) - 1;

/// The value of an answer. An integer is a number where it is one exactly, else a bigint.
pub(crate) fn answer(answer: Answer) -> JsValue {
    match answer {
        Answer::Nothing => JsValue::UNDEFINED,
        Answer::Bool(value) => value.into(),
        Answer::Int(value) if value.unsigned_abs() <= SAFE => (value as f64).into(),
        Answer::Int(value) => value.into(),
        Answer::Float(value) => value.into(),
        Answer::Str(value) => value.into(),
        Answer::Bytes(bytes) => Uint8Array::from(bytes.as_slice()).into(),
        Answer::Duration(duration) => (duration.as_secs_f64() * 1000.0).into(),
        Answer::List(items) => items.into_iter().map(self::answer).collect::<Array>().into(),
        Answer::Record(members) | Answer::Options(_, members) => {
            let object = Object::new();
            for (name, value) in members {
                set(&object, &camel_case(name), &self::answer(value));
            }
            object.into()
        }
        Answer::Tensor(tensor) => {
            let record = Object::new();
            let lengths = tensor.shape().iter().map(|length| JsValue::from(*length as f64));
            set(&record, "dtype", &(tensor.dtype() as u8).into());
            set(&record, "shape", &lengths.collect::<Array>());
            set(&record, "memory", &NativeMemory::of(tensor.into_region()).into());
            record.into()
        }
        // What stands for a group without this process is the JavaScript half's.
        Answer::Object(CoreObject::NonGroupMember) => JsValue::UNDEFINED,
        Answer::Object(object) => NativeObject::new(object).into(),
    }
}
