//! `Window`: what is known of the memory of other ranks.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::parameters::window::*;
use crate::generated::error::Result;

/// A tensor over the memory of a rank on this host.
pub(crate) fn map_remote_tensor(mut call: Invocation) -> Result<Answer> {
    let rank: u32 = call.take(map_remote_tensor::RANK)?;
    call.this_window()?.map_remote_tensor(rank).into_answer()
}

/// Whether this rank reads and writes the memory of another one where it lies.
pub(crate) fn get_attr(mut call: Invocation) -> Result<Answer> {
    let rank: u32 = call.take(get_attr::RANK)?;
    call.this_window()?.get_attr(rank).into_answer()
}
