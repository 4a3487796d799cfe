//! `ManagedProcessGroup`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::Object;
use crate::calls::parameters::managed_process_group::*;
use crate::generated::error::Result;

/// Wraps the group of a manager.
pub(crate) fn new(call: Invocation) -> Result<Answer> {
    let manager = call.object(new::MANAGER).ok_or_else(Object::not_a_handle)?.manager()?;
    manager.get()?.managed_group().into_answer()
}

/// The group that was wrapped.
pub(crate) fn parent(call: Invocation) -> Result<Answer> {
    call.this_group()?.parent().ok_or_else(Object::not_a_handle)?.into_answer()
}

/// How many replicas participate.
pub(crate) async fn size(call: Invocation) -> Result<Answer> {
    call.this_group()?.participants().into_answer()
}

/// What failed first.
pub(crate) fn error(call: Invocation) -> Result<Answer> {
    call.this_group()?.error().into_answer()
}
