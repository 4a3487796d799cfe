//! Values of a resolved call as Rust types. Knows nothing of overloads.

use std::borrow::Cow;
use std::time::Duration;

use super::value::{Foreign, Language, Value};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::request::RecordType;
use crate::tensor::Tensor;

/// A Rust type that a [`Value`] can become.
pub trait FromValue: Sized {
    /// The value as this type; else what it must be: `an integer from 0 to 255`.
    ///
    /// # Errors
    /// What the value must be.
    fn from_value(value: Value) -> Result<Self, String>;
}

/// The members of an options record, to be taken one by one.
#[derive(Debug)]
pub struct Members {
    record: &'static RecordType,
    values: Vec<Value>,
}

impl Members {
    /// Those of `value`, which is a record of the type `name`.
    ///
    /// # Errors
    /// What the value must be.
    pub fn of(name: &str, value: Value) -> Result<Members, String> {
        match value {
            Value::Record(record, values) if record.name == name => Ok(Members { record, values }),
            _ => Err(name.to_owned()),
        }
    }

    /// The member `name`, once.
    ///
    /// # Errors
    /// What the record must be: `NcclConfig whose min_ctas is an integer from 0 to 255, not 256`.
    pub fn take<T: FromValue>(&mut self, name: &str) -> Result<T, String> {
        let members = &mut self.record.members.iter().zip(&mut self.values);
        let value = members.find(|(member, _)| member.name == name);
        let value = value.map_or(Value::None, |(_, value)| std::mem::replace(value, Value::None));
        let given = ReceivedValue::of(&value, Language::default());
        let record = self.record.name;
        T::from_value(value)
            .map_err(|what| format!("{record} whose {name} is {}", given.beside(what)))
    }
}

/// What came in place of something else, for messages.
pub(super) enum ReceivedValue {
    /// One value.
    One(Cow<'static, str>),
    /// Several, of which what is said of the one that is wrong says what it is.
    Several,
}

impl ReceivedValue {
    /// `value`, in the words of this language.
    pub(super) fn of(value: &Value, language: Language) -> ReceivedValue {
        match value {
            Value::Int(number) => ReceivedValue::One(number.to_string().into()),
            Value::Record(..) | Value::List(_) => ReceivedValue::Several,
            other => ReceivedValue::One(language.sort(other)),
        }
    }

    /// What was expected, and what came instead.
    pub(super) fn beside(self, expected: String) -> String {
        match self {
            ReceivedValue::One(given) => expected + ", not " + &given,
            ReceivedValue::Several => expected,
        }
    }
}

macro_rules! from_variant {
    ($($variant:ident => $rust:ty, $what:literal;)*) => {$(
        impl FromValue for $rust {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::$variant(value) => Ok(value),
                    _ => Err($what.to_owned()),
                }
            }
        }
    )*};
}

from_variant! {
    Bool => bool, "bool";
    Str => String, "str";
    Tensor => Tensor, "Tensor";
    ReduceOp => ReduceOp, "ReduceOp";
    DType => DType, "DType";
    Duration => Duration, "Duration";
    Foreign => Foreign, "object";
}

macro_rules! from_integer {
    ($($rust:ty),*) => {$(
        impl FromValue for $rust {
            fn from_value(value: Value) -> Result<Self, String> {
                let number = match value {
                    Value::Int(number) => <$rust>::try_from(number).ok(),
                    _ => None,
                };
                let range = || format!("an integer from {} to {}", <$rust>::MIN, <$rust>::MAX);
                number.ok_or_else(range)
            }
        }
    )*};
}

from_integer!(u16, u32, u64, usize, i32, i64);

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Float(number) => Ok(number),
            // Numbers that people write have no more digits than a float holds.
            Value::Int(number) => Ok(number as f64),
            _ => Err("float".to_owned()),
        }
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(value)
    }
}

/// Bytes, or the UTF-8 encoding of a string.
impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Str(text) => Ok(text.into_bytes()),
            _ => Err("bytes".to_owned()),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::None => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! from_list {
    ($($rust:ty),*) => {$(
        impl FromValue for Vec<$rust> {
            fn from_value(value: Value) -> Result<Self, String> {
                list(value)
            }
        }
    )*};
}

// One for each type, because `Vec<u8>` is bytes.
from_list!(
    String,
    Tensor,
    Foreign,
    Value,
    Vec<u8>,
    Vec<Tensor>,
    Vec<u32>,
    u32,
    u64,
    usize,
    i32,
    i64,
    bool
);

fn list<T: FromValue>(value: Value) -> Result<Vec<T>, String> {
    match value {
        Value::List(values) => {
            let items = values.into_iter().enumerate();
            let items = items.map(|(index, value)| {
                let given = ReceivedValue::of(&value, Language::default());
                T::from_value(value).map_err(|what| {
                    let many = what.replacen("an integer", "integers", 1);
                    match given {
                        ReceivedValue::One(given) => {
                            format!("a list of {many}, but element {index} is {given}")
                        }
                        ReceivedValue::Several => format!("a list of {many}"),
                    }
                })
            });
            items.collect()
        }
        _ => Err("list".to_owned()),
    }
}
