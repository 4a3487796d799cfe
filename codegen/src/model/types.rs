//! Types and constants of the model, resolved: no name in them is unknown.

use std::fmt;

use serde::Serialize;

/// The type of a value. `Rank` and other typedefs are gone: they are what they stand for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", content = "of")]
pub enum Type {
    /// No value.
    Undefined,
    /// `boolean`.
    Boolean,
    /// `long`: 32 bits with sign.
    Long,
    /// `unsigned long`: 32 bits; ranks and sizes.
    UnsignedLong,
    /// `long long`: 64 bits with sign.
    LongLong,
    /// `unsigned long long`: 64 bits.
    UnsignedLongLong,
    /// `double`.
    Double,
    /// `DOMString`.
    String,
    /// Bytes: Python's `bytes`, a `Uint8Array`.
    Bytes,
    /// A length of time: Python's `timedelta`, milliseconds in JavaScript.
    Duration,
    /// A tensor of any library.
    Tensor,
    /// Any value of the language.
    Object,
    /// A reduction operator.
    ReduceOp,
    /// An element type.
    DType,
    /// A dictionary of the IDL.
    Dictionary(String),
    /// An interface of the IDL.
    Interface(String),
    /// An enum of the IDL.
    Enum(String),
    /// A callback of the IDL.
    Callback(String),
    /// `sequence<T>`.
    Sequence(Box<Type>),
    /// `T?`.
    Nullable(Box<Type>),
}

impl Type {
    /// The interface whose calls are in the order of a group.
    pub const GROUP: &str = "ProcessGroup";
    /// The interface whose calls are in the order of a store.
    pub const STORE: &str = "Store";
    /// The dictionary with which groups are made, which backends extend.
    pub const OPTIONS_OF_GROUPS: &str = "BackendOptions";
    /// The interface of meshes of groups.
    pub const MESH: &str = "DeviceMesh";

    /// Whether it is a process group, and never absent.
    pub fn is_group(&self) -> bool {
        matches!(self, Type::Interface(name) if name == Type::GROUP)
    }

    /// Whether it is options with which a group is made, which backends extend.
    pub fn is_options_of_groups(&self) -> bool {
        matches!(self, Type::Dictionary(name) if name == Type::OPTIONS_OF_GROUPS)
    }

    /// The type without `?`.
    pub fn non_null(&self) -> &Type {
        match self {
            Type::Nullable(inner) => inner,
            other => other,
        }
    }

    /// Whether the value may be absent.
    pub fn is_nullable(&self) -> bool {
        matches!(self, Type::Nullable(_))
    }

    /// Whether it is one of the four integer types.
    pub fn is_integer(&self) -> bool {
        matches!(self, Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong)
    }

    /// Whether it is a list of integers, or of such lists.
    pub fn is_list_of_integers(&self) -> bool {
        match self {
            Type::Sequence(inner) => inner.is_integer() || inner.is_list_of_integers(),
            _ => false,
        }
    }

    /// The name of the IDL definition that it refers to, through sequences and `?`.
    pub fn named(&self) -> Option<&str> {
        match self {
            Type::Dictionary(name)
            | Type::Interface(name)
            | Type::Enum(name)
            | Type::Callback(name) => Some(name),
            Type::Sequence(inner) | Type::Nullable(inner) => inner.named(),
            _ => None,
        }
    }
}

/// As the accepted forms in error messages spell it, the same in every language.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Undefined => f.write_str("None"),
            Type::Boolean => f.write_str("bool"),
            Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => {
                f.write_str("int")
            }
            Type::Double => f.write_str("float"),
            Type::String => f.write_str("str"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("Duration"),
            Type::Tensor => f.write_str("Tensor"),
            Type::Object => f.write_str("object"),
            Type::ReduceOp => f.write_str("ReduceOp"),
            Type::DType => f.write_str("DType"),
            Type::Dictionary(name)
            | Type::Interface(name)
            | Type::Enum(name)
            | Type::Callback(name) => f.write_str(name),
            Type::Sequence(inner) => write!(f, "Sequence[{inner}]"),
            Type::Nullable(inner) => write!(f, "{inner}?"),
        }
    }
}

/// A value that is in the IDL: a default, a constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value")]
pub enum Constant {
    /// `null`.
    Null,
    /// `true`, `false`.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// A string.
    String(String),
    /// A string that is a value of an enum: enum, value.
    Enum(String, String),
    /// A string that names a reduction operator: `"SUM"`.
    ReduceOp(String),
    /// A string that names an element type.
    DType(String),
    /// A number of seconds, for a `Duration`.
    Seconds(f64),
    /// `[]`.
    EmptySequence,
    /// `{}`: the dictionary with all members at their defaults.
    EmptyDictionary,
}

/// As the accepted forms in error messages spell it.
impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Null => f.write_str("None"),
            Constant::Boolean(true) => f.write_str("True"),
            Constant::Boolean(false) => f.write_str("False"),
            Constant::Integer(value) => write!(f, "{value}"),
            Constant::Float(value) => write!(f, "{value:?}"),
            Constant::String(value) | Constant::Enum(_, value) => write!(f, "'{value}'"),
            Constant::ReduceOp(name) | Constant::DType(name) => f.write_str(name),
            Constant::Seconds(seconds) => write!(f, "{seconds} s"),
            Constant::EmptySequence => f.write_str("[]"),
            Constant::EmptyDictionary => f.write_str("{}"),
        }
    }
}
