//! What calls return, the same for all languages. Knows nothing of methods.

use std::sync::Arc;
use std::time::Duration;

use super::object::{Object, StoreObject};
use crate::device_mesh::DeviceMesh;
use crate::generated::error::Result;
use crate::kernels::CompressionLoss;
use crate::process_group::topology::Topology;
use crate::process_group::{ProcessGroup, Window};
use crate::store::Store;
use crate::tensor::{Device, Tensor};

/// What a call returned.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nothing.
    Nothing,
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
    /// A list.
    List(Vec<Answer>),
    /// Values by name, in snake_case.
    Record(Vec<(&'static str, Answer)>),
    /// An options record of this name, which calls take, too; its values by name, in snake_case.
    Options(&'static str, Vec<(&'static str, Answer)>),
    /// A tensor, over memory that it keeps.
    Tensor(Tensor),
    /// An object.
    Object(Object),
}

impl Answer {
    /// What compression lost, as `Work.compression_error` has it.
    pub fn of_compression(lost: Option<CompressionLoss>) -> Answer {
        lost.map_or(Answer::Nothing, |lost| {
            Answer::Record(vec![
                ("max_abs", Answer::Float(lost.max_abs)),
                ("root_mean_square", Answer::Float(lost.root_mean_square())),
            ])
        })
    }
}

/// The name of a member of a record, as JavaScript spells it: `world_size` -> `worldSize`.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}

/// A result of the core that a language can be given.
pub(crate) trait IntoAnswer {
    /// The value as a language gets it.
    fn into_answer(self) -> Result<Answer>;
}

macro_rules! from_variant {
    ($($rust:ty => $variant:ident;)*) => {$(
        impl IntoAnswer for $rust {
            fn into_answer(self) -> Result<Answer> {
                Ok(Answer::$variant(self.into()))
            }
        }
    )*};
}

from_variant! {
    bool => Bool;
    i32 => Int;
    i64 => Int;
    u16 => Int;
    u32 => Int;
    &str => Str;
    String => Str;
    Vec<u8> => Bytes;
    Duration => Duration;
    Object => Object;
    Tensor => Tensor;
}

macro_rules! from_list {
    ($($rust:ty),*) => {$(
        impl IntoAnswer for $rust {
            fn into_answer(self) -> Result<Answer> {
                let answers = self.into_iter().map(IntoAnswer::into_answer);
                answers.collect::<Result<_>>().map(Answer::List)
            }
        }
    )*};
}

// One for each type, because `Vec<u8>` is bytes.
from_list!(
    Vec<Vec<u8>>,
    Vec<String>,
    Vec<u32>,
    Vec<Option<u32>>,
    Vec<bool>,
    Vec<Answer>,
    Vec<ProcessGroup>
);

impl IntoAnswer for Answer {
    fn into_answer(self) -> Result<Answer> {
        Ok(self)
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Result<Answer> {
        Ok(Answer::Nothing)
    }
}

impl IntoAnswer for &[u32] {
    fn into_answer(self) -> Result<Answer> {
        self.to_vec().into_answer()
    }
}

impl<T: IntoAnswer> IntoAnswer for Option<T> {
    fn into_answer(self) -> Result<Answer> {
        self.map_or(Ok(Answer::Nothing), T::into_answer)
    }
}

impl<T: IntoAnswer> IntoAnswer for Result<T> {
    fn into_answer(self) -> Result<Answer> {
        self?.into_answer()
    }
}

impl IntoAnswer for Device {
    fn into_answer(self) -> Result<Answer> {
        match self {
            Device::Cpu => "cpu".into_answer(),
            Device::Cuda(index) => format!("cuda:{index}").into_answer(),
        }
    }
}

impl IntoAnswer for ProcessGroup {
    fn into_answer(self) -> Result<Answer> {
        Object::Group(self).into_answer()
    }
}

impl IntoAnswer for Window {
    fn into_answer(self) -> Result<Answer> {
        Object::Window(self).into_answer()
    }
}

impl IntoAnswer for Topology {
    fn into_answer(self) -> Result<Answer> {
        Object::Topology(self).into_answer()
    }
}

impl IntoAnswer for DeviceMesh {
    fn into_answer(self) -> Result<Answer> {
        Object::Mesh(self).into_answer()
    }
}

impl IntoAnswer for StoreObject {
    fn into_answer(self) -> Result<Answer> {
        Object::Store(self).into_answer()
    }
}

impl IntoAnswer for Arc<dyn Store> {
    fn into_answer(self) -> Result<Answer> {
        StoreObject::any(self).into_answer()
    }
}

/// The group, or on a rank that is not in it, what stands for that.
pub(super) struct Member(pub(super) Option<ProcessGroup>);

impl IntoAnswer for Member {
    fn into_answer(self) -> Result<Answer> {
        self.0.map_or(Object::NonGroupMember, Object::Group).into_answer()
    }
}
