//! JavaScript's values as the core's, and back. Knows nothing of calls.

mod answer;
mod error;
mod tensors;
mod value;

pub(crate) use answer::answer;
pub(crate) use error::{error, error_data};
pub(crate) use tensors::{Bytes, memories};
pub(crate) use value::Script;
