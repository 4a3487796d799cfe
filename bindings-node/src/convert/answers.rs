//! What calls of the core return, as JavaScript's values. Knows nothing of methods.

use std::ffi::CString;

use napi::{Env, Result};
use polyrank::calls::{Answer, Object, camel_case};

use super::js::Js;
use super::memory::copy_of;
use crate::memory::NativeMemory;
use crate::object::NativeObject;

/// An answer as the JavaScript half takes it: lengths of time in milliseconds, no group as null.
pub(crate) fn to_js<'a>(env: Env, answer: Answer) -> Result<Js<'a>> {
    match answer {
        Answer::Nothing => Js::nothing(env),
        Answer::Bool(is) => Js::of_bool(env, is),
        Answer::Int(number) => Js::of_integer(env, number),
        Answer::Float(number) => Js::of_number(env, number),
        Answer::Str(text) => Js::of_text(env, &text),
        Answer::Bytes(bytes) => copy_of(env, &bytes),
        Answer::Duration(duration) => Js::of_number(env, duration.as_secs_f64() * 1000.0),
        Answer::List(items) => {
            let list = Js::array(env)?;
            for (index, item) in items.into_iter().enumerate() {
                Js::scope(env, || list.set_index(index as u32, to_js(env, item)?))?;
            }
            Ok(list)
        }
        Answer::Record(members) | Answer::Options(_, members) => {
            let record = Js::object(env)?;
            for (name, value) in members {
                record.set(&CString::new(camel_case(name))?, to_js(env, value)?)?;
            }
            Ok(record)
        }
        Answer::Tensor(tensor) => {
            let record = Js::object(env)?;
            record.set(c"dtype", Js::of_integer(env, i64::from(tensor.dtype() as u8))?)?;
            let shape = tensor.shape().iter().map(|length| Answer::Int(*length as i64)).collect();
            record.set(c"shape", to_js(env, Answer::List(shape))?)?;
            let memory = NativeMemory::of(tensor.into_region());
            record.set(c"memory", memory.into_js(env)?)?;
            Ok(record)
        }
        Answer::Object(Object::NonGroupMember) => Js::nothing(env),
        Answer::Object(object) => Ok(Js::of_instance(&NativeObject::new(object).into_js(&env)?)),
    }
}
