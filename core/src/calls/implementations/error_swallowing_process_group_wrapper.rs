//! `ErrorSwallowingProcessGroupWrapper`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::Object;
use crate::calls::parameters::error_swallowing_process_group_wrapper::*;
use crate::generated::error::Result;

/// Wraps a group.
pub(crate) fn new(call: Invocation) -> Result<Answer> {
    let group = call.object(new::PG).ok_or_else(Object::not_a_handle)?.group()?;
    group.swallowing_errors().into_answer()
}

/// The group that was wrapped.
pub(crate) fn parent(call: Invocation) -> Result<Answer> {
    call.this_group()?.parent().ok_or_else(Object::not_a_handle)?.into_answer()
}

/// What failed first.
pub(crate) fn error(call: Invocation) -> Result<Answer> {
    call.this_group()?.error().into_answer()
}

/// The program has noticed a failure.
pub(crate) fn report_error(mut call: Invocation) -> Result<Answer> {
    let error: String = call.take(report_error::ERROR)?;
    call.this_group()?.report_error(&error);
    ().into_answer()
}
