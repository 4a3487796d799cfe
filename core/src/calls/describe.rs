//! Values and types in words, for messages. Knows nothing of overloads.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use super::value::{Arguments, Value};
use crate::request::Type;

/// As the accepted forms spell types.
impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Float => "float",
            Type::Str => "str",
            Type::Bytes => "bytes",
            Type::Duration => "Duration",
            Type::Tensor => "Tensor",
            Type::Object => "object",
            Type::ReduceOp => "ReduceOp",
            Type::DType => "DType",
            Type::Record(record) => record.name,
            Type::Interface(name) => name,
            Type::Callback => "a callable",
            Type::Enum(values) => {
                let values: Vec<_> = values.iter().map(|value| format!("'{value}'")).collect();
                return write!(f, "one of {}", values.join(", "));
            }
            Type::Sequence(inner) => return write!(f, "Sequence[{inner}]"),
            Type::Nullable(inner) => return write!(f, "{inner} or None"),
        })
    }
}

impl Value {
    /// What sort of value it is: `list of 2 Tensor`. Costs nothing for most.
    pub(super) fn sort(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "Duration",
            Value::Tensor(_) => "Tensor",
            Value::ReduceOp(_) => "ReduceOp",
            Value::DType(_) => "DType",
            Value::Record(record, _) => record.name,
            Value::Members(_) => "options",
            Value::Foreign(foreign) => return Cow::Owned(foreign.type_name.clone()),
            Value::List(values) => return Cow::Owned(list(values)),
        })
    }
}

/// What sort of value it is.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sort())
    }
}

/// What sorts of values they are: `(list of 2 Tensor, op=str)`.
impl Display for Arguments {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let positional = self.positional.iter().map(Value::to_string);
        let keywords = self.keywords.iter().map(|(name, value)| format!("{name}={value}"));
        let all: Vec<_> = positional.chain(keywords).collect();
        write!(f, "({})", all.join(", "))
    }
}

fn list(values: &[Value]) -> String {
    let mut kinds: Vec<Cow<'static, str>> = Vec::new();
    for value in values {
        let kind = value.sort();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    match kinds.as_slice() {
        [] => "empty list".to_owned(),
        [kind] => format!("list of {} {kind}", values.len()),
        [first, second] => format!("list of {first} and {second}"),
        [first, second, ..] => format!("list of {first}, {second} and others"),
    }
}
