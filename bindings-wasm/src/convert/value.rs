//! What the core's reader of calls asks of a value of JavaScript, asked of a browser. Knows nothing
//! of what the answers mean.

use std::ffi::CStr;

use js_sys::{Array, Object, Reflect, Uint8Array};
use polyrank::calls::staged::Memory;
use polyrank::calls::{Content, Object as CoreObject, ScriptValue};
use polyrank::{Error, Region, Result};
use wasm_bindgen::{JsCast, JsValue};

use crate::{memory, objects};

/// A value that a call was given.
#[derive(Debug)]
pub(crate) struct Script(pub(crate) JsValue);

impl ScriptValue for Script {
    type Failure = Error;
    /// The buffers of the arrays that came: those over one buffer have the same number.
    type Pieces = Vec<JsValue>;

    fn failure(&self, error: Error) -> Error {
        error
    }

    fn content(&self) -> Result<Content<Self>> {
        let Script(value) = self;
        if value.is_null() || value.is_undefined() {
            return Ok(Content::Nothing);
        }
        if let Some(is) = value.as_bool() {
            return Ok(Content::Bool(is));
        }
        if let Some(number) = value.as_f64() {
            return Ok(Content::Number(number));
        }
        if let Some(text) = value.as_string() {
            return Ok(Content::Text(text));
        }
        if value.is_bigint() {
            return Ok(Content::BigInt(i64::try_from(value.clone()).ok()));
        }
        if let Some(bytes) = value.dyn_ref::<Uint8Array>() {
            return Ok(Content::Bytes(bytes.to_vec()));
        }
        if let Some(items) = value.dyn_ref::<Array>() {
            return Ok(Content::List(items.iter().map(Script).collect()));
        }
        Ok(if value.is_object() { Content::Object } else { Content::Other })
    }

    fn member(&self, name: &CStr) -> Result<Option<Self>> {
        let value = Reflect::get(&self.0, &name.to_str().unwrap_or_default().into());
        let given = value.ok().filter(|value| !value.is_undefined() && !value.is_null());
        Ok(given.map(Script))
    }

    fn members(&self) -> Result<Vec<(String, Self)>> {
        let entries = Object::entries(self.0.unchecked_ref());
        let members = entries.iter().map(|entry| {
            let entry: Array = entry.unchecked_into();
            (entry.get(0).as_string().unwrap_or_default(), entry.get(1))
        });
        let given = members.filter(|(_, value)| !value.is_undefined() && !value.is_null());
        Ok(given.map(|(name, value)| (name, Script(value))).collect())
    }

    fn object(&self) -> Result<CoreObject> {
        objects::given(&self.0)?.ok_or_else(CoreObject::not_a_handle)
    }

    fn caller_memory(&self, pieces: &mut Vec<JsValue>) -> Result<Memory> {
        let array = self.0.dyn_ref::<Uint8Array>().ok_or_else(Memory::not_bytes)?;
        let buffer = JsValue::from(array.buffer());
        let piece = pieces.iter().position(|known| *known == buffer).unwrap_or_else(|| {
            pieces.push(buffer);
            pieces.len() - 1
        });
        let place = (piece, array.byte_offset() as usize);
        Ok(Memory::Foreign { bytes: array.length() as usize, place })
    }

    fn region(&self) -> Result<Region> {
        let id = self.member(c"id")?.and_then(|id| id.0.as_f64());
        let id = id.ok_or_else(CoreObject::not_a_handle)?;
        memory::find(id as u32).ok_or_else(|| CoreObject::released("memory"))
    }
}
