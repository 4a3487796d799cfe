//! Calls from other languages: which overload they mean, and what they ask for.
//!
//! One resolver for all languages, so that the same call gets the same answer, and the same
//! message, everywhere. The tables of methods are generated. Knows nothing of any one language:
//! a binding turns its values into [`Value`]s and back.

pub(crate) mod answer;
mod describe;
mod from_value;
pub(crate) mod implementations;
pub(crate) mod invocation;
pub(crate) mod object;
mod request;
pub(crate) mod resolve;
mod settings;
pub mod staged;
mod typed;
mod types;
mod value;

#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod tests;

/// The table of each method, and of each options record: `PROCESS_GROUP_ALLREDUCE`.
pub use crate::generated::calls as tables;
/// The positions of the parameters of each method: `parameters::distributed::new_group::RANKS`.
pub use crate::generated::parameters;
pub use answer::Answer;
pub use from_value::{FromValue, Members};
pub use invocation::{Entry, Invocation, Running, StorePlace, entry};
pub use object::{Object, StoreObject};
pub use resolve::{Resolved, resolve};
pub use settings::Settings;
// Outside this crate nobody can name these two, so that nobody can add to what methods take.
pub(crate) use typed::{Argument, Call};
pub use types::{Constant, Method, Overload, Parameter, RecordType, Role, Type};
pub use value::{Arguments, Foreign, TimeUnit, Value};
