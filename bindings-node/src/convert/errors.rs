//! The core's errors as JavaScript errors whose `data` says what they are. Knows no classes: the
//! JavaScript half makes the class of the kind out of it.

use napi::{Env, Result};
use polyrank::calls::Language;
use polyrank::{Error, ErrorField};

use super::js::Js;

/// What the JavaScript half is told of an error: `{ kind, message, fields }`.
pub(crate) fn describe<'a>(env: Env, error: &Error) -> Result<Js<'a>> {
    let fields = Js::object(env)?;
    for (name, field) in error.fields() {
        let value = match field {
            ErrorField::Number(number) => number_value(env, number)?,
            ErrorField::Numbers(numbers) => {
                let list = Js::array(env)?;
                for (index, number) in (0..).zip(numbers) {
                    list.set_index(index, number_value(env, number)?)?;
                }
                list
            }
            ErrorField::Text(text) => Js::of_text(env, &text)?,
        };
        let name = std::ffi::CString::new(name)?;
        fields.set(&name, value)?;
    }
    let data = Js::object(env)?;
    data.set(c"kind", Js::of_text(env, error.kind())?)?;
    data.set(c"message", Js::of_text(env, &Language::JavaScript.message(error))?)?;
    data.set(c"fields", fields)?;
    Ok(data)
}

fn number_value<'a>(env: Env, number: u64) -> Result<Js<'a>> {
    match i64::try_from(number) {
        Ok(number) => Js::of_integer(env, number),
        Err(_) => Js::of_number(env, number as f64),
    }
}

/// The JavaScript error that stands for `error`.
pub(crate) fn raise_value<'a>(env: Env, error: &Error) -> Result<Js<'a>> {
    let value = Js::error(env, &Language::JavaScript.message(error))?;
    value.set(c"data", describe(env, error)?)?;
    Ok(value)
}

/// What a function of this package returns to throw `error`.
pub(crate) fn raise(env: Env, error: &Error) -> napi::Error {
    match raise_value(env, error) {
        Ok(value) => napi::Error::from(value.into_unknown()),
        Err(failure) => failure,
    }
}

/// What a function of this package returns to throw that an argument is wrong.
pub(crate) fn invalid(env: Env, message: &str) -> napi::Error {
    raise(env, &Error::InvalidArgument { message: message.to_owned() })
}
