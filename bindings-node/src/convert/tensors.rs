//! What JavaScript says of tensors, as the core's descriptions. Knows nothing of calls.

#![allow(unsafe_code)]

use napi::bindgen_prelude::{ClassInstance, FromNapiValue};
use napi::{Env, Result};
use polyrank::calls::staged::{CallerMemory, Described, Memory, Tensors};
use polyrank::{DType, Error};

use super::arrays::View;
use super::errors::raise;
use super::js::{Js, Kind};
use crate::memory::NativeMemory;

/// The tensors over `arrays`; `infos` says of each what it is: a dtype's number for a flat array,
/// or an object with dtype, shape, strides, offset, readOnly, memory.
pub(crate) fn tensors(arrays: Js<'_>, infos: Js<'_>) -> Result<Tensors> {
    let env = arrays.env();
    let mut described = Vec::new();
    for index in 0..infos.len()? {
        described.push(one(arrays.at(index)?, infos.at(index)?)?);
    }
    Tensors::new(described).map_err(|error| raise(env, &error))
}

fn one(array: Js<'_>, info: Js<'_>) -> Result<Described> {
    let env = array.env();
    let is_flat = info.kind()? == Kind::Number;
    let code = if is_flat { info } else { info.get(c"dtype")? }.number()?;
    let dtype = DType::from_code(code as u8).ok_or_else(|| invalid(env, "an unknown dtype"))?;
    let mut described = Described {
        dtype,
        shape: None,
        strides: None,
        offset: 0,
        read_only: false,
        memory: Memory::Foreign { bytes: 0, place: (0, 0) },
    };
    if !is_flat {
        if let Some(shape) = info.find(c"shape")? {
            described.shape = Some(numbers(shape)?);
        }
        if let Some(strides) = info.find(c"strides")? {
            described.strides = Some(numbers(strides)?);
        }
        if let Some(offset) = info.find(c"offset")? {
            described.offset = integer(offset)?;
        }
        if let Some(read_only) = info.find(c"readOnly")? {
            described.read_only = read_only.bool()?;
        }
        if let Some(memory) = info.find(c"memory")? {
            let memory: ClassInstance<'_, NativeMemory> = instance(memory)?;
            described.memory = Memory::Own(memory.region());
            return Ok(described);
        }
    }
    let view =
        View::of(array)?.ok_or_else(|| invalid(env, "a tensor's memory is no Uint8Array"))?;
    described.memory = Memory::Foreign { bytes: view.bytes(), place: (0, view.address()) };
    Ok(described)
}

fn numbers<T: TryFrom<i64>>(list: Js<'_>) -> Result<Vec<T>> {
    (0..list.len()?).map(|index| integer(list.at(index)?)).collect()
}

fn integer<T: TryFrom<i64>>(value: Js<'_>) -> Result<T> {
    let number = value.number()?;
    let whole = (number.fract() == 0.0).then_some(number as i64);
    let env = value.env();
    whole
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| invalid(env, &format!("{number} is no number of elements")))
}

/// The object of this package's class that a value is.
pub(super) fn instance<'a, T>(value: Js<'a>) -> Result<ClassInstance<'a, T>>
where
    ClassInstance<'a, T>: FromNapiValue,
{
    let (env, value) = value.raw();
    // SAFETY: both are Node's, of this call; whether it is of this class is looked at there.
    unsafe { ClassInstance::from_napi_value(env, value) }
}

fn invalid(env: Env, message: &str) -> napi::Error {
    raise(env, &Error::InvalidArgument { message: message.to_owned() })
}
