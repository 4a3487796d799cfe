//! Messages of a rank to itself, which NCCL takes only together with their receives. Pure.

use crate::backend::{Direction, Transfer};
use crate::generated::error::{Error, Result};

/// Refuses messages of `rank` to itself of which not all are sent and received here, since the
/// library would wait for the others.
pub(super) fn check_own(messages: &[(Direction, Transfer)], rank: u32) -> Result<()> {
    let own = |wanted| {
        let own = messages.iter().filter(move |(_, it)| it.peer == Some(rank));
        own.filter(move |(direction, _)| *direction == wanted).map(|(_, it)| it.memory.len())
    };
    if own(Direction::Send).eq(own(Direction::Receive)) {
        return Ok(());
    }
    let message = "nccl: what a rank sends to itself it must receive in the same \
                   batch_isend_irecv, with tensors of the same sizes in the same order"
        .to_owned();
    Err(Error::InvalidArgument { message })
}
