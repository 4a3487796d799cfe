//! Messages that are issued together: what each of them is. Knows no backend.

use super::group_or_default;
use crate::backend::Direction;
use crate::completion::WaitIntent;
use crate::generated::error::Result;
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

/// Issues sends and receives together; a work for each of them, in their order. Those of one group
/// are one operation on a device, so that they meet in whatever order the ranks list them.
///
/// # Errors
/// As [`ProcessGroup::send`] and [`ProcessGroup::recv`].
pub fn batch_isend_irecv(operations: Vec<P2POp>) -> Result<Vec<Work>> {
    let groups: Vec<u64> = operations.iter().map(|it| it.group.identity()).collect();
    let mut works: Vec<Option<Work>> = groups.iter().map(|_| None).collect();
    let mut rest: Vec<(usize, P2POp)> = operations.into_iter().enumerate().collect();
    while let Some((_, first)) = rest.first() {
        let group = first.group.clone();
        let of_group = |(at, _): &(usize, P2POp)| groups[*at] == group.identity();
        let (these, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(of_group);
        rest = others;
        let (places, messages): (Vec<_>, Vec<_>) =
            these.into_iter().map(|(at, it)| (at, it.message)).unzip();
        let issued = group.issue_messages(messages, None, WaitIntent::Later)?;
        places.into_iter().zip(issued).for_each(|(at, work)| works[at] = Some(work));
    }
    Ok(works.into_iter().flatten().collect())
}
