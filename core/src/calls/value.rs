//! Values of a call, the same for all languages. Knows nothing of methods.

use std::time::Duration;

use crate::backend::options::GivenOptions;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::request::{Constant, RecordType, Type};
use crate::tensor::Tensor;

/// A value that a caller gave.
#[derive(Clone, Debug)]
pub enum Value {
    /// None.
    None,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A string.
    Str(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A length of time.
    Duration(Duration),
    /// A tensor.
    Tensor(Tensor),
    /// A reduction operator.
    ReduceOp(ReduceOp),
    /// An element type.
    DType(DType),
    /// A list.
    List(Vec<Value>),
    /// A tuple: for messages, and else a list, which it becomes when the call is resolved.
    Tuple(Vec<Value>),
    /// An options record: its type, and a value for each member in order.
    Record(&'static RecordType, Vec<Value>),
    /// An options record by the names of its members: one of whatever type is wanted.
    Members(Vec<(String, Value)>),
    /// A value that only the language understands.
    Foreign(Foreign),
    /// Options of a group, as the language has them, and what they are beside that.
    Options(GivenOptions, Box<Value>),
}

/// A value that only the language understands.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Its type's name in the language, for messages.
    pub type_name: String,
    /// The interface of the IDL that it is an object of, and those which that inherits from.
    /// Empty if it is of none.
    pub interfaces: &'static [&'static str],
    /// Whether it can be called.
    pub callable: bool,
    /// Where the binding keeps it.
    pub slot: usize,
}

/// What a caller gave.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Values by position.
    pub positional: Vec<Value>,
    /// Values by name, in the order in which they came.
    pub keywords: Vec<(String, Value)>,
    /// The caller's language.
    pub language: Language,
}

/// The language of a caller: by its habits calls are read, and in its words errors are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Names are in snake_case, and a number that stands for a length of time is one of seconds.
    #[default]
    Python,
    /// Names are in camelCase, and a number that stands for a length of time is one of
    /// milliseconds. One object of options stands for the arguments by name and for the members of
    /// an options record: a value whose name is not a parameter's is that member.
    JavaScript,
}

impl Language {
    /// Whether it is JavaScript. A page need not load what speaks another language.
    #[inline(always)]
    pub(super) fn is_script(self) -> bool {
        cfg!(target_family = "wasm") || self == Language::JavaScript
    }
}

impl Value {
    /// The value of a constant of the IDL, for a parameter of type `ty`.
    pub(super) fn of_constant(constant: Constant, ty: &Type) -> Value {
        match constant {
            Constant::Null => Value::None,
            Constant::Bool(value) => Value::Bool(value),
            Constant::Int(value) => Value::Int(value),
            Constant::Float(value) => Value::Float(value),
            Constant::Str(value) => Value::Str(value.to_owned()),
            Constant::Seconds(seconds) => {
                Value::Duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
            }
            Constant::ReduceOp(value) => Value::ReduceOp(value),
            Constant::DType(value) => Value::DType(value),
            Constant::EmptySequence => Value::List(Vec::new()),
            Constant::EmptyRecord => match ty {
                Type::Record(record) => Value::Record(record, record.defaults()),
                _ => Value::None,
            },
        }
    }
}

impl RecordType {
    /// The defaults of all members, in order.
    pub fn defaults(&'static self) -> Vec<Value> {
        self.members
            .iter()
            .map(|member| match member.default {
                Some(constant) => Value::of_constant(constant, &member.ty),
                None => Value::None,
            })
            .collect()
    }
}
