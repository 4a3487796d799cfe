//! `ProcessGroupDummy`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::parameters::process_group_dummy::*;
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;

/// Makes one.
pub(crate) fn new(mut call: Invocation) -> Result<Answer> {
    ProcessGroup::dummy(call.take(new::RANK)?, call.take(new::WORLD)?)?.into_answer()
}

/// How often it was configured.
pub(crate) fn configure_count(call: Invocation) -> Result<Answer> {
    call.this_group()?.configure_count().into_answer()
}
