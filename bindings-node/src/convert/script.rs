//! What the core's reader of calls asks of a value of JavaScript, asked of Node. Knows nothing of
//! what the answers mean.

#![allow(unsafe_code)]

use std::ffi::CStr;

use napi::Result;
use napi::bindgen_prelude::{ClassInstance, FromNapiValue};
use polyrank::calls::staged::{CallerMemory, Memory};
use polyrank::calls::{Content, Object, ScriptValue};
use polyrank::{Error, Region};

use super::arrays::View;
use super::errors::raise;
use super::js::{Js, Kind};
use crate::memory::NativeMemory;
use crate::object::NativeObject;

impl ScriptValue for Js<'_> {
    type Failure = napi::Error;
    /// An address says where an array lies.
    type Pieces = ();

    fn failure(&self, error: Error) -> napi::Error {
        raise(self.env(), &error)
    }

    fn content(&self) -> Result<Content<Self>> {
        Ok(match self.kind()? {
            Kind::Nothing => Content::Nothing,
            Kind::Bool => Content::Bool(self.bool()?),
            Kind::Number => Content::Number(self.number()?),
            Kind::BigInt => Content::BigInt(self.big_int()?),
            Kind::Text => Content::Text(self.text()?),
            Kind::Other => Content::Other,
            Kind::Object if self.is_array()? => Content::List(self.items()?),
            Kind::Object => match View::of(*self)? {
                Some(view) => Content::Bytes(view.to_vec()),
                None => Content::Object,
            },
        })
    }

    fn member(&self, name: &CStr) -> Result<Option<Self>> {
        self.find(name)
    }

    fn members(&self) -> Result<Vec<(String, Self)>> {
        let mut members = Vec::new();
        for name in self.names()?.items()? {
            let value = self.get_by(name)?;
            if !value.is_nothing()? {
                members.push((name.text()?, value));
            }
        }
        Ok(members)
    }

    fn object(&self) -> Result<Object> {
        let handle: ClassInstance<'_, NativeObject> = instance(*self)?;
        handle.object().map_err(|error| self.failure(error))
    }

    fn caller_memory(&self, (): &mut ()) -> Result<Memory> {
        let view = View::of(*self)?.ok_or_else(|| self.failure(Memory::not_bytes()))?;
        Ok(Memory::Foreign { bytes: view.bytes(), place: (0, view.address()) })
    }

    fn region(&self) -> Result<Region> {
        let memory: ClassInstance<'_, NativeMemory> = instance(*self)?;
        Ok(memory.region())
    }
}

/// The object of this package's class that a value is.
fn instance<'a, T>(value: Js<'a>) -> Result<ClassInstance<'a, T>>
where
    ClassInstance<'a, T>: FromNapiValue,
{
    let (env, raw) = value.raw();
    // SAFETY: both are Node's, of this call; whether it is of this class is looked at there.
    let found = unsafe { ClassInstance::from_napi_value(env, raw) };
    found.map_err(|_| value.failure(Object::not_a_handle()))
}
