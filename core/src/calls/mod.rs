//! Calls from other languages: which overload they mean, and what they ask for.
//!
//! One resolver for all languages, so that the same call gets the same answer, and the same
//! message, everywhere. The tables of methods are generated. A binding turns the values of its
//! language into [`Value`]s and back.

pub(crate) mod answer;
mod array_lists;
mod constructor;
pub mod custom_backend;
pub mod custom_reduction;
pub mod custom_store;
mod describe;
#[cfg(not(target_family = "wasm"))]
pub mod event_loop;
mod from_value;
pub(crate) mod implementations;
pub(crate) mod invocation;
pub(crate) mod object;
mod origin;
mod reader;
#[cfg(not(target_family = "wasm"))]
pub mod replicas;
mod request;
pub(crate) mod resolve;
mod settings;
pub mod staged;
#[cfg(feature = "tcp")]
mod store_waits;
mod tensor_roles;
mod value;

#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod tests;

/// The positions of the parameters of each method: `parameters::distributed::new_group::RANKS`.
pub use crate::backend::options::GivenOptions;
pub use crate::generated::parameters;
pub use crate::request::{Constant, Method, Overload, Parameter, RecordType, Role, Type, tables};
pub use answer::{Answer, camel_case};
pub use from_value::{FromValue, Members};
pub use implementations::device_named;
pub use invocation::{AnswerFuture, CallPlace, CallSequence, Entry, Invocation, entry};
pub use object::{Object, StoreObject};
pub use reader::{Content, OperationArguments, ScriptValue};
pub use resolve::{ResolvedCall, resolve};
pub use settings::{Settings, reconfigure_options};
pub use value::{Arguments, Foreign, Language, Value};
