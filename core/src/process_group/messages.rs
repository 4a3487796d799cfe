//! Messages as backends take them, from tensors and to them, and several of them that go together.
//! Knows no backend.

use std::sync::Arc;
use std::time::Duration;

use super::hooks::HookedOperation;
use super::{ProcessGroup, hook_arguments};
use crate::backend::{
    Backend, Direction, Envelope, FAST_PATH_BYTES, IssueOptions, IssuedOperation, Transfer,
};
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};
use crate::tensor::{InPlace, PlainInput, Region, Tensor};
use crate::work::Work;

/// One message of [`ProcessGroup::issue_messages`].
#[derive(Clone, Debug)]
pub struct MessageRequest {
    /// Which way it goes.
    pub direction: Direction,
    /// What is sent, or where it goes.
    pub tensor: Tensor,
    /// The other rank, of this group.
    pub peer: u32,
    /// Messages meet by tag.
    pub tag: u32,
}

impl ProcessGroup {
    /// Sends a message that the receiver need not be asked for to a rank of this group from
    /// beginning to end, if that can be done immediately: whether it has gone. If not, nothing was
    /// done, and [`ProcessGroup::issue_send`] is the way, which also says what is wrong with a
    /// call.
    pub fn send_short(&self, payload: &[u8], to: Envelope) -> bool {
        !self.is_observed() && self.inner.cpu.send_short(to, payload)
    }

    /// Receives a message of exactly the bytes of `memory`, if it comes soon; the sender. None if
    /// nothing was received: then [`ProcessGroup::issue_recv`] is the way, which also says what is
    /// wrong with a call.
    pub fn receive_short(&self, memory: &mut [u8], from: Envelope) -> Option<u32> {
        match memory.len() <= FAST_PATH_BYTES && !self.is_observed() {
            true => self.inner.cpu.receive_short(from, memory),
            false => None,
        }
    }

    /// As [`ProcessGroup::send_short`], of a tensor. Others may have the memory of one that has its
    /// own, so that a copy is sent: nobody waits here for who has an access to it.
    pub(super) fn send_plain(&self, given: Option<PlainInput<'_>>, peer: u32, tag: u32) -> bool {
        let to = |dtype| Envelope { peer: Some(peer), tag, dtype };
        match given {
            Some(PlainInput::Borrowed(dtype, payload)) => self.send_short(payload, to(dtype)),
            Some(PlainInput::Owned(tensor)) if tensor.bytes() <= FAST_PATH_BYTES => {
                let payload = tensor.region().read(<[u8]>::to_vec);
                self.send_short(&payload, to(tensor.dtype()))
            }
            _ => false,
        }
    }

    /// As [`ProcessGroup::receive_short`], to a tensor; to a copy first, as with
    /// [`ProcessGroup::send_plain`].
    pub(super) fn receive_plain(
        &self,
        taken: Option<InPlace<'_>>,
        peer: Option<u32>,
        tag: u32,
    ) -> Option<u32> {
        let from = |dtype| Envelope { peer, tag, dtype };
        match taken? {
            InPlace::Borrowed(dtype, memory) => self.receive_short(memory, from(dtype)),
            InPlace::Owned(tensor) if tensor.bytes() <= FAST_PATH_BYTES => {
                let mut copy = vec![0; tensor.bytes()];
                let sender = self.receive_short(&mut copy, from(tensor.dtype()))?;
                tensor.region().write(|bytes| bytes.copy_from_slice(&copy));
                Some(sender)
            }
            InPlace::Owned(_) => None,
        }
    }

    /// Issues a send of `tensor`.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`].
    pub fn issue_send(
        &self,
        tensor: Tensor,
        peer: u32,
        tag: u32,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        self.check_peer("send", "destination", peer)?;
        let hooked = self.before(|| hook_arguments::of_send(&tensor, peer, waiting))?;
        Self::after(hooked, self.issue_send_unhooked(tensor, peer, tag, timeout, waiting))
    }

    /// As [`ProcessGroup::issue_send`], as a part of an operation that has hooks itself.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`].
    pub(crate) fn issue_send_unhooked(
        &self,
        tensor: Tensor,
        peer: u32,
        tag: u32,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let epoch = self.inner.epoch;
        self.check_peer("send", "destination", peer)?;
        let backend = self.backend_for("send", std::iter::once(&tensor))?;
        self.check_epoch(epoch, "send")?;
        let transfer = to_send(&tensor, peer, tag)?;
        let options = IssueOptions { deadline: self.deadline(timeout), waiting };
        let issued = backend.send(transfer, options)?;
        Ok(Work::new(self.label("send"), vec![(issued, backend)], vec![tensor]))
    }

    /// Issues a receive into `tensor`.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn issue_recv(
        &self,
        tensor: Tensor,
        peer: Option<u32>,
        tag: u32,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        peer.map_or(Ok(()), |peer| self.check_peer("recv", "source", peer))?;
        let hooked = self.before(|| hook_arguments::of_receive(&tensor, peer, waiting))?;
        Self::after(hooked, self.issue_recv_unhooked(tensor, peer, tag, timeout, waiting))
    }

    /// As [`ProcessGroup::issue_recv`], as a part of an operation that has hooks itself.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub(crate) fn issue_recv_unhooked(
        &self,
        tensor: Tensor,
        peer: Option<u32>,
        tag: u32,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let epoch = self.inner.epoch;
        peer.map_or(Ok(()), |peer| self.check_peer("recv", "source", peer))?;
        let backend = self.backend_for("recv", std::iter::once(&tensor))?;
        self.check_epoch(epoch, "recv")?;
        let transfer = to_receive(&tensor, peer, tag)?;
        let options = IssueOptions { deadline: self.deadline(timeout), waiting };
        let issued = backend.recv(transfer, options)?;
        Ok(Work::new(self.label("recv"), vec![(issued, backend)], vec![tensor]))
    }

    /// Checks that `peer` is a rank of the group; `role` is what messages call it.
    pub(crate) fn check_peer(&self, name: &str, role: &str, peer: u32) -> Result<()> {
        self.require_members(name)?;
        if peer < self.size() {
            return Ok(());
        }
        let message = format!("{name}: {role} rank must be in 0..{}, got {peer}", self.size());
        Err(Error::InvalidArgument { message })
    }

    /// Issues messages to and from other ranks that go together: on a device they are one
    /// operation, so that they meet in whatever order the ranks list them. One work for each.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`] and [`ProcessGroup::recv`].
    pub fn issue_messages(
        &self,
        messages: Vec<MessageRequest>,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Vec<Work>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let hooked = self.before_messages(&messages, waiting)?;
        let (issued, backend) = match self.enqueue(&messages, timeout, waiting) {
            Ok(issued) => issued,
            Err(error) => {
                hooked.into_iter().for_each(|hooked| hooked.ended(Some(&error)));
                return Err(error);
            }
        };
        let work = |(message, issued): (MessageRequest, _)| {
            let name = match message.direction {
                Direction::Send => "send",
                Direction::Receive => "recv",
            };
            Work::new(self.label(name), vec![(issued, backend.clone())], vec![message.tensor])
        };
        let works: Vec<Work> = messages.into_iter().zip(issued).map(work).collect();
        hooked.into_iter().zip(&works).for_each(|(hooked, work)| hooked.issued(work));
        Ok(works)
    }

    /// As [`ProcessGroup::issue_messages`], with one work for all of them; there is at least one.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue_messages`].
    #[cfg(feature = "nccl")]
    pub(crate) fn issue_together(
        &self,
        messages: Vec<MessageRequest>,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let hooked = self.before_messages(&messages, waiting)?;
        let issued = self.enqueue(&messages, timeout, waiting).map(|(issued, backend)| {
            let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
            let tensors = messages.into_iter().map(|message| message.tensor).collect();
            Work::new(self.label("batch_isend_irecv"), issued, tensors)
        });
        hooked.into_iter().for_each(|hooked| match &issued {
            Ok(work) => hooked.issued(work),
            Err(error) => hooked.ended(Some(error)),
        });
        issued
    }

    /// Calls the hooks before each of `messages`; none if there are no hooks.
    fn before_messages(
        &self,
        messages: &[MessageRequest],
        waiting: WaitIntent,
    ) -> Result<Vec<HookedOperation>> {
        let mut all = Vec::new();
        for MessageRequest { direction, tensor, peer, .. } in messages {
            let hooked = self.before(|| match direction {
                Direction::Send => hook_arguments::of_send(tensor, *peer, waiting),
                Direction::Receive => hook_arguments::of_receive(tensor, Some(*peer), waiting),
            });
            match hooked {
                Ok(hooked) => all.extend(hooked),
                Err(error) => {
                    all.into_iter()
                        .for_each(|earlier: HookedOperation| earlier.ended(Some(&error)));
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    fn enqueue(
        &self,
        messages: &[MessageRequest],
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<(Vec<IssuedOperation>, Arc<dyn Backend>)> {
        let epoch = self.inner.epoch;
        self.require_members("batch_isend_irecv")?;
        let tensors = messages.iter().map(|message| &message.tensor);
        let backend = self.backend_for("batch_isend_irecv", tensors)?;
        let mut transfers = Vec::with_capacity(messages.len());
        for MessageRequest { direction, tensor, peer, tag } in messages {
            transfers.push(match direction {
                Direction::Send => {
                    self.check_peer("send", "destination", *peer)?;
                    (*direction, to_send(tensor, *peer, *tag)?)
                }
                Direction::Receive => {
                    self.check_peer("recv", "source", *peer)?;
                    (*direction, to_receive(tensor, Some(*peer), *tag)?)
                }
            });
        }
        self.check_epoch(epoch, "batch_isend_irecv")?;
        let options = IssueOptions { deadline: self.deadline(timeout), waiting };
        let issued = backend.messages(transfers, options)?;
        Ok((issued, backend))
    }
}

/// The sending of a tensor.
pub(super) fn to_send(tensor: &Tensor, peer: u32, tag: u32) -> Result<Transfer> {
    contiguous_on_device("send", tensor)?;
    let memory = match tensor.is_contiguous() {
        true => tensor.region().clone(),
        false => tensor.to_contiguous().into_region(),
    };
    Ok(Transfer { peer: Some(peer), tag, dtype: tensor.dtype(), memory, finish: None })
}

/// The receiving of a tensor.
pub(super) fn to_receive(tensor: &Tensor, peer: Option<u32>, tag: u32) -> Result<Transfer> {
    contiguous_on_device("recv", tensor)?;
    if tensor.is_read_only() {
        let message = "recv: the memory of 'tensor' is read-only, but the call writes it; pass a \
                       writable copy"
            .to_owned();
        return Err(Error::InvalidArgument { message });
    }
    let (dtype, memory) = (tensor.dtype(), tensor.region().clone());
    let mut transfer = Transfer { peer, tag, dtype, memory, finish: None };
    if !tensor.is_contiguous() {
        let staged = Region::zeroed(tensor.bytes());
        transfer.memory = staged.clone();
        let into = tensor.clone();
        transfer.finish = Some(Box::new(move || into.copy_from(&staged)));
    }
    Ok(transfer)
}

/// Elements on a device are not gathered there.
pub(super) fn contiguous_on_device(name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.is_contiguous() || tensor.region().device().is_none() {
        return Ok(());
    }
    let device = tensor.device();
    let message = format!("{name}: tensors on {device} must be contiguous; call .contiguous()");
    Err(Error::InvalidArgument { message })
}
