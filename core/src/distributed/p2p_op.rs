//! Messages that are issued together: what each of them is. Knows no backend.

use super::group_or_default;
use crate::backend::Direction;
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};
use crate::process_group::{MessageRequest, ProcessGroup};
use crate::tensor::{OwnedBuffers, Tensor, single_tensor};
use crate::work::Work;

/// One send or receive for [`batch_isend_irecv`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent or received before it is issued"]
pub struct P2POp {
    message: MessageRequest,
    /// The other rank, of the group.
    peer: u32,
    group: ProcessGroup,
}

impl P2POp {
    /// Sends a tensor to `peer`, a rank of `group`, or of the default group.
    ///
    /// # Errors
    /// There is not exactly one tensor, or no default group.
    pub fn isend(
        tensor: impl OwnedBuffers,
        peer: u32,
        group: Option<&ProcessGroup>,
    ) -> Result<P2POp> {
        P2POp::new(Direction::Send, single_tensor("isend", tensor.into_tensors())?, peer, group)
    }

    /// Receives a tensor from `peer`, a rank of `group`, or of the default group.
    ///
    /// # Errors
    /// As [`P2POp::isend`].
    pub fn irecv(
        tensor: impl OwnedBuffers,
        peer: u32,
        group: Option<&ProcessGroup>,
    ) -> Result<P2POp> {
        P2POp::new(Direction::Receive, single_tensor("irecv", tensor.into_tensors())?, peer, group)
    }

    fn new(
        direction: Direction,
        tensor: Tensor,
        peer: u32,
        group: Option<&ProcessGroup>,
    ) -> Result<P2POp> {
        let message = MessageRequest { direction, tensor, peer: Some(peer), tag: 0 };
        Ok(P2POp { message, peer, group: group_or_default(group)? })
    }

    /// The same with this tag: messages match if their tags are equal.
    pub fn tag(mut self, tag: u32) -> P2POp {
        self.message.tag = tag;
        self
    }

    /// Which way it goes, the rank in the group, the tag, and the tensor.
    pub fn message(&self) -> &MessageRequest {
        &self.message
    }

    /// The process group.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// The other rank, global.
    ///
    /// # Errors
    /// [`Error::RankNotInGroup`](crate::Error::RankNotInGroup) if it is not a rank of the group.
    pub fn global_peer(&self) -> Result<u32> {
        self.group.global_rank(self.peer)
    }
}

/// Issues sends and receives of one group together; a work for each of them, in their order. On a
/// device they are one operation, so that they meet in whatever order the ranks list them.
///
/// # Errors
/// [`Error::InvalidArgument`], before anything is sent, for operations of several groups; as
/// [`ProcessGroup::send`] and [`ProcessGroup::recv`].
pub fn batch_isend_irecv(operations: Vec<P2POp>) -> Result<Vec<Work>> {
    check_one_group(operations.iter().map(P2POp::group))?;
    let Some(first) = operations.first() else { return Ok(Vec::new()) };
    let group = first.group.clone();
    let messages = operations.into_iter().map(|it| it.message).collect();
    group.issue_messages(messages, None, WaitIntent::Later)
}

/// Refuses messages of several groups in one batch, given the group of each.
///
/// # Errors
/// [`Error::InvalidArgument`].
#[doc(hidden)]
pub fn check_one_group<'a>(groups: impl IntoIterator<Item = &'a ProcessGroup>) -> Result<()> {
    let mut groups = groups.into_iter().enumerate();
    let Some((_, first)) = groups.next() else { return Ok(()) };
    let Some((at, other)) = groups.find(|(_, group)| group.identity() != first.identity()) else {
        return Ok(());
    };
    let (first, other) = (first.group_name(), other.group_name());
    Err(Error::InvalidArgument {
        message: format!(
            "All ops need to use the same group: the first is of '{first}', that at position {at} \
             of '{other}'. Issue those of each group by a call of their own"
        ),
    })
}
