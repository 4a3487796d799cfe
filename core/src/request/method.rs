//! What the IDL says of methods, as static tables. Knows nothing of any call.

use crate::generated::collective::Collective;
pub use crate::generated::roles::Role;
pub use crate::generated::types::{Constant, Type};

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
    /// The static method that stands for it where a constructor cannot wait, if it is one that
    /// waits.
    pub factory: Option<&'static str>,
    /// The collective that a call becomes, if it is one.
    pub collective: Option<Collective>,
    /// Whether each tensor of a list is an operation of its own.
    pub coalesced: bool,
    /// The method whose calls are prepared, if it prepares some.
    pub prepares: Option<&'static Method>,
    /// Whether it is only in the surface.
    pub unbuilt: bool,
    /// In the order in which a call is tried against them.
    pub overloads: &'static [Overload],
}

/// An options record.
#[derive(Clone, Copy, Debug)]
pub struct RecordType {
    /// Its name.
    pub name: &'static str,
    /// The record type that it extends, which may be in its place.
    pub base: Option<&'static str>,
    /// Those that extend it and have members of their own.
    pub extensions: &'static [&'static RecordType],
    /// All its members, those of the base first.
    pub members: &'static [Parameter],
}

impl Method {
    /// The method whose operation a call becomes, or what is prepared is started as.
    pub fn operation(&self) -> &Method {
        self.prepares.unwrap_or(self)
    }
}
