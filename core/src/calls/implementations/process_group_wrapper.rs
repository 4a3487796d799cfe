//! `ProcessGroupWrapper`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::Object;
use crate::calls::parameters::process_group_wrapper::*;
use crate::generated::error::Result;

/// Wraps a group.
pub(crate) fn new(call: Invocation) -> Result<Answer> {
    let group = call.object(new::PG).ok_or_else(Object::not_a_handle)?.group()?;
    group.wrapped().into_answer()
}

/// The group that was wrapped.
pub(crate) fn parent(call: Invocation) -> Result<Answer> {
    call.this_group()?.parent().ok_or_else(Object::not_a_handle)?.into_answer()
}
