//! What the IDL says of methods, as static tables. Knows nothing of any call.

use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
pub use crate::generated::roles::Role;

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// True or false. An integer is not taken.
    Bool,
    /// An integer of up to 64 bits. A boolean is not taken.
    Int,
    /// A number. Integers are taken.
    Float,
    /// A string.
    Str,
    /// Bytes. A string is taken as its UTF-8 encoding.
    Bytes,
    /// A length of time. A number is taken as seconds.
    Duration,
    /// A tensor.
    Tensor,
    /// Any value.
    Object,
    /// A reduction operator.
    ReduceOp,
    /// An element type.
    DType,
    /// An options record.
    Record(&'static RecordType),
    /// An object of an interface of the IDL, or of one that inherits from it.
    Interface(&'static str),
    /// One of these strings.
    Enum(&'static [&'static str]),
    /// Something that can be called.
    Callback,
    /// A list.
    Sequence(&'static Type),
    /// A value or none.
    Nullable(&'static Type),
}

/// A value that stands in the IDL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// None.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A string, or a value of an enum.
    Str(&'static str),
    /// A length of time, in seconds.
    Seconds(f64),
    /// A reduction operator.
    ReduceOp(ReduceOp),
    /// An element type.
    DType(DType),
    /// An empty list.
    EmptySequence,
    /// The record with all members at their defaults.
    EmptyRecord,
}

/// A parameter, or a member of an options record.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, in snake_case. A keyword in camelCase is taken too.
    pub name: &'static str,
    /// Its type.
    pub ty: Type,
    /// What it means for a collective.
    pub role: Role,
    /// Whether a call may leave it out.
    pub optional: bool,
    /// What it is if it is left out; none if nothing else is said.
    pub default: Option<Constant>,
}

/// One way to call a method.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// As messages show it: `allreduce(tensor: Tensor, op: ReduceOp = SUM)`.
    pub form: &'static str,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
}

/// A method, a free function or a constructor.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The interface or namespace that it belongs to.
    pub interface: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The collective that a call becomes, if it is one.
    pub collective: Option<Collective>,
    /// Whether each tensor of a list is an operation of its own.
    pub coalesced: bool,
    /// Whether it only stands in the surface.
    pub unbuilt: bool,
    /// In the order in which a call is tried against them.
    pub overloads: &'static [Overload],
}

/// An options record.
#[derive(Clone, Copy, Debug)]
pub struct RecordType {
    /// Its name.
    pub name: &'static str,
    /// The record type that it extends, which may stand in its place.
    pub base: Option<&'static str>,
    /// Those that extend it and have members of their own.
    pub extensions: &'static [&'static RecordType],
    /// All its members, those of the base first.
    pub members: &'static [Parameter],
}
