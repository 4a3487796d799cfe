//! Messages as backends take them, from tensors and to them, and several of them that go together.
//! Knows no backend.

use std::sync::Arc;
use std::time::Duration;

use super::fast_path::CallTime;
use super::hooks::HookedOperation;
use super::{Inner, ProcessGroup, hook_arguments};
use crate::backend::{
    Backend, Direction, Envelope, FAST_PATH_BYTES, IssueOptions, IssuedOperation, Transfer,
};
use crate::completion::{Outcome, WaitIntent};
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::{DoneOperation, NO_RANK, OperationKind};
use crate::tensor::{
    Buffers, ConstBuffers, InPlace, OwnedBuffers, PlainInput, Region, Tensor, given, in_place,
    lend, lend_mut, single_tensor,
};
use crate::work::Work;

/// One message of [`ProcessGroup::issue_messages`].
#[derive(Clone, Debug)]
pub struct MessageRequest {
    /// Which way it goes.
    pub direction: Direction,
    /// What is sent, or where it goes.
    pub tensor: Tensor,
    /// The other rank, of this group; none if it is to come from any.
    pub peer: Option<u32>,
    /// Messages meet by tag.
    pub tag: u32,
}

impl MessageRequest {
    /// The sending of `tensor` to `peer`.
    pub fn send(tensor: Tensor, peer: u32, tag: u32) -> MessageRequest {
        MessageRequest { direction: Direction::Send, tensor, peer: Some(peer), tag }
    }

    /// The receiving of a message into `tensor`, from `peer` or from any rank.
    pub fn receive(tensor: Tensor, peer: Option<u32>, tag: u32) -> MessageRequest {
        MessageRequest { direction: Direction::Receive, tensor, peer, tag }
    }

    /// The method, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self.direction {
            Direction::Send => "send",
            Direction::Receive => "recv",
        }
    }

    pub(super) fn hook_arguments(&self, waiting: WaitIntent) -> PreHookArgs<'_> {
        match (self.direction, self.peer) {
            (Direction::Send, Some(peer)) => hook_arguments::of_send(&self.tensor, peer, waiting),
            (_, peer) => hook_arguments::of_receive(&self.tensor, peer, waiting),
        }
    }

    /// As backends take it.
    fn transfer(&self) -> Result<Transfer> {
        let MessageRequest { direction, tensor, peer, tag } = self;
        match (direction, peer) {
            (Direction::Send, Some(peer)) => to_send("send", tensor, *peer, *tag),
            (Direction::Send, None) => {
                let message = "send: expected a destination rank, got none".to_owned();
                Err(Error::InvalidArgument { message })
            }
            (Direction::Receive, peer) => to_receive("recv", tensor, *peer, *tag),
        }
    }
}

impl Inner {
    /// Sends or receives a short message from beginning to end, if that can be done immediately;
    /// whether it was.
    pub(super) fn exchange_short(&self, message: &MessageRequest) -> bool {
        let MessageRequest { direction, tensor, peer, tag } = message;
        let region = tensor.region();
        let is_plain = tensor.is_contiguous() && region.device().is_none();
        if !is_plain || tensor.bytes() > FAST_PATH_BYTES || self.is_observed() {
            return false;
        }
        let envelope = Envelope { peer: *peer, tag: *tag, dtype: tensor.dtype() };
        // Nobody waits here for who has an access to the memory.
        let mut copy = match direction {
            Direction::Send => region.read(<[u8]>::to_vec),
            Direction::Receive => vec![0; tensor.bytes()],
        };
        match direction {
            Direction::Send => self.send_short(envelope, &copy),
            Direction::Receive => {
                let has_come = self.receive_short(envelope, &mut copy).is_some();
                if has_come {
                    region.write(|bytes| bytes.copy_from_slice(&copy));
                }
                has_come
            }
        }
    }

    fn send_short(&self, to: Envelope, payload: &[u8]) -> bool {
        let called = self.called();
        let has_gone = self.cpu.send_short(to, payload);
        if has_gone {
            self.record_message(Direction::Send, to, (to.peer, payload.len()), called);
        }
        has_gone
    }

    fn receive_short(&self, from: Envelope, memory: &mut [u8]) -> Option<u32> {
        let called = self.called();
        let sender = self.cpu.receive_short(from, memory);
        if sender.is_some() {
            self.record_message(Direction::Receive, from, (sender, memory.len()), called);
        }
        sender
    }

    /// Notes a message that is done.
    #[inline]
    fn record_message(
        &self,
        direction: Direction,
        Envelope { tag, dtype, .. }: Envelope,
        (peer, bytes): (Option<u32>, usize),
        called: CallTime,
    ) {
        #[cfg(feature = "tcp")]
        {
            let (name, kind, given, taken) = match direction {
                Direction::Send => ("send", OperationKind::Send, bytes, 0),
                Direction::Receive => ("recv", OperationKind::Receive, 0, bytes),
            };
            let (peer, reduce_op, sequence) = (peer.unwrap_or(NO_RANK), None, 0);
            let operation =
                DoneOperation { name, kind, dtype, reduce_op, peer, tag, sequence, given, taken };
            self.recorder.note_done(&operation, called);
        }
        #[cfg(not(feature = "tcp"))]
        let _ = (direction, tag, dtype, peer, bytes, called);
    }
}

impl ProcessGroup {
    /// Sends a tensor to `peer` (a rank of this group, which may be this one). Returns when the
    /// memory may be reused, which for small messages is before the receiver has them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `peer` is not a rank of the group; the failure of the message.
    pub fn send<I: ConstBuffers + ?Sized>(&self, tensor: &I, peer: u32, tag: u32) -> Result<()> {
        if self.send_plain(given(tensor), peer, tag) {
            return Ok(());
        }
        let tensor = single_tensor("send", lend(tensor))?;
        self.issue_message(MessageRequest::send(tensor, peer, tag), None, WaitIntent::Soon)?
            .wait(None)
    }

    /// Receives a tensor from `peer` (a rank of this group).
    ///
    /// # Errors
    /// As [`ProcessGroup::send`]; [`Error::MessageSize`] if the message does not fit exactly.
    pub fn recv<B: Buffers + ?Sized>(&self, tensor: &mut B, peer: u32, tag: u32) -> Result<()> {
        if self.receive_plain(in_place(tensor), Some(peer), tag).is_some() {
            return Ok(());
        }
        let tensor = single_tensor("recv", lend_mut(tensor))?;
        let message = MessageRequest::receive(tensor, Some(peer), tag);
        self.issue_message(message, None, WaitIntent::Soon)?.wait(None)
    }

    /// Receives a tensor from any rank that sends one with `tag`; the sender's rank.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn recv_anysource<B: Buffers + ?Sized>(&self, tensor: &mut B, tag: u32) -> Result<u32> {
        if let Some(sender) = self.receive_plain(in_place(tensor), None, tag) {
            return Ok(sender);
        }
        let tensor = single_tensor("recv_anysource", lend_mut(tensor))?;
        let message = MessageRequest::receive(tensor, None, tag);
        let work = self.issue_message(message, None, WaitIntent::Soon)?;
        work.wait(None)?;
        work.sender()
    }

    /// As [`ProcessGroup::send`], owning the tensor until the work is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`].
    pub fn send_async(&self, tensor: impl OwnedBuffers, peer: u32, tag: u32) -> Result<Work> {
        let tensor = single_tensor("send", tensor.into_tensors())?;
        self.issue_message(MessageRequest::send(tensor, peer, tag), None, WaitIntent::Later)
    }

    /// As [`ProcessGroup::recv`] (from anybody without `peer`), owning the tensor until the work
    /// is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn recv_async(
        &self,
        tensor: impl OwnedBuffers,
        peer: Option<u32>,
        tag: u32,
    ) -> Result<Work> {
        let tensor = single_tensor("recv", tensor.into_tensors())?;
        self.issue_message(MessageRequest::receive(tensor, peer, tag), None, WaitIntent::Later)
    }

    /// Sends a message that the receiver need not be asked for to a rank of this group from
    /// beginning to end, if that can be done immediately: whether it has gone. If not, nothing was
    /// done, and [`ProcessGroup::issue_message`] is the way, which also says what is wrong with a
    /// call.
    pub fn send_short(&self, payload: &[u8], to: Envelope) -> bool {
        let members = &**self.inner;
        !self.is_observed() && members.send_short(to, payload)
    }

    /// Receives a message of exactly the bytes of `memory`, if it comes soon; the sender. None if
    /// nothing was received: then [`ProcessGroup::issue_message`] is the way, which also says what
    /// is wrong with a call.
    pub fn receive_short(&self, memory: &mut [u8], from: Envelope) -> Option<u32> {
        let members = &**self.inner;
        match memory.len() <= FAST_PATH_BYTES && !self.is_observed() {
            true => members.receive_short(from, memory),
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

    /// Issues a message to or from another rank; a receive without a peer is from any.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`] and [`ProcessGroup::recv`].
    pub fn issue_message(
        &self,
        message: MessageRequest,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let epoch = self.inner.epoch;
        self.check_message(&message)?;
        self.issue_message_among(message, epoch, timeout, waiting)
    }

    /// As [`ProcessGroup::issue_message`], of a message that suits the members of `epoch`.
    pub(super) fn issue_message_among(
        &self,
        message: MessageRequest,
        epoch: u64,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        #[cfg(not(target_family = "wasm"))]
        let (name, tensors) = (message.name(), vec![message.tensor.clone()]);
        let issue = || {
            let hooked = self.before(|| message.hook_arguments(waiting))?;
            Self::after(hooked, self.issue_checked_message(message, epoch, timeout, waiting))
        };
        #[cfg(not(target_family = "wasm"))]
        if let Some(wrapper) = &self.wrapper {
            return wrapper.run(self, epoch, (name, tensors), issue);
        }
        issue()
    }

    /// Checks all of a message that can be checked before it is issued.
    pub(super) fn check_message_of(&self, message: &MessageRequest) -> Result<()> {
        self.check_message(message)?;
        self.inner.backend_for(message.name(), std::iter::once(&message.tensor))?;
        message.transfer().map(drop)
    }

    /// As [`ProcessGroup::issue_message`], as a part of an operation that has hooks itself.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue_message`].
    #[cfg(feature = "objects")]
    pub(crate) fn issue_message_unhooked(
        &self,
        message: MessageRequest,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let epoch = self.inner.epoch;
        self.check_message(&message)?;
        self.issue_checked_message(message, epoch, timeout, waiting)
    }

    /// Issues a message that suits the members of `epoch`.
    fn issue_checked_message(
        &self,
        message: MessageRequest,
        epoch: u64,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let name = message.name();
        let members = self.members_of(epoch, name)?;
        let backend = members.backend_for(name, std::iter::once(&message.tensor))?;
        let transfer = message.transfer()?;
        let label = self.message_label(&message);
        let MessageRequest { direction, tensor, .. } = message;
        let options = IssueOptions { deadline: self.deadline(timeout), waiting };
        let issued = match direction {
            Direction::Send => backend.send(transfer, options),
            Direction::Receive => backend.recv(transfer, options),
        }?;
        Ok(Work::new(label, vec![(issued, backend)], vec![tensor]))
    }

    /// Checks that the group has members, and that the peer of `message` is one of them.
    fn check_message(&self, message: &MessageRequest) -> Result<()> {
        let role = match message.direction {
            Direction::Send => "destination",
            Direction::Receive => "source",
        };
        match message.peer {
            Some(peer) => self.check_peer(message.name(), role, peer),
            None => self.require_members(message.name()),
        }
    }

    /// Checks that `peer` is a rank of the group; `role` is what messages call it.
    pub(crate) fn check_peer(&self, name: &str, role: &str, peer: u32) -> Result<()> {
        let size = self.present_members(name)?.size();
        // Without members it is not run, by a handle that keeps that for itself.
        if peer < size || size == 0 {
            return Ok(());
        }
        let last = size.saturating_sub(1);
        let message = format!("{name}: {role} rank must be from 0 to {last}, got {peer}");
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
        #[cfg(not(target_family = "wasm"))]
        if let Some(wrapper) = &self.wrapper {
            let operation = |it: &MessageRequest| (it.name(), vec![it.tensor.clone()]);
            let operations = messages.iter().map(operation).collect();
            let issue = || self.issue_batch(messages, timeout, waiting);
            return wrapper.run_all(self, self.epoch(), operations, issue);
        }
        self.issue_batch(messages, timeout, waiting)
    }

    fn issue_batch(
        &self,
        messages: Vec<MessageRequest>,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Vec<Work>> {
        let hooked = self.before_messages(&messages, waiting)?;
        let name = "batch_isend_irecv";
        let (issued, backend) = match self.enqueue(name, &messages, timeout, waiting) {
            Ok(issued) => issued,
            Err(error) => {
                hooked.into_iter().for_each(|hooked| hooked.ended(Some(&error)));
                return Err(error);
            }
        };
        let work = |(message, issued): (MessageRequest, _)| {
            let label = self.message_label(&message);
            Work::new(label, vec![(issued, backend.clone())], vec![message.tensor])
        };
        let works: Vec<Work> = messages.into_iter().zip(issued).map(work).collect();
        hooked.into_iter().zip(&works).for_each(|(hooked, work)| hooked.issued(work));
        Ok(works)
    }

    /// As [`ProcessGroup::issue_messages`], with one work of this name for all of them; there is at
    /// least one.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue_messages`].
    #[cfg(feature = "nccl")]
    pub(crate) fn issue_together(
        &self,
        name: &'static str,
        messages: Vec<MessageRequest>,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let tensors: Vec<Tensor> = messages.iter().map(|it| it.tensor.clone()).collect();
        let operation = (name, tensors.clone());
        let issue = || {
            let hooked = self.before_messages(&messages, waiting)?;
            let issued = self.issue_as_one(name, &messages, tensors, timeout, waiting);
            hooked.into_iter().for_each(|hooked| match &issued {
                Ok(work) => hooked.issued(work),
                Err(error) => hooked.ended(Some(error)),
            });
            issued
        };
        match &self.wrapper {
            Some(wrapper) => wrapper.run(self, self.epoch(), operation, issue),
            None => issue(),
        }
    }

    /// Issues `messages` without hooks; one work of this name for all of them, whose tensors are
    /// the `outputs`.
    pub(super) fn issue_as_one(
        &self,
        name: &'static str,
        messages: &[MessageRequest],
        outputs: Vec<Tensor>,
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<Work> {
        let (issued, backend) = self.enqueue(name, messages, timeout, waiting)?;
        let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
        Ok(Work::new(self.label(name), issued, outputs))
    }

    /// Calls the hooks before each of `messages`; none if there are no hooks.
    fn before_messages(
        &self,
        messages: &[MessageRequest],
        waiting: WaitIntent,
    ) -> Result<Vec<HookedOperation>> {
        let mut all = Vec::new();
        for message in messages {
            match self.before(|| message.hook_arguments(waiting)) {
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
        name: &str,
        messages: &[MessageRequest],
        timeout: Option<Duration>,
        waiting: WaitIntent,
    ) -> Result<(Vec<IssuedOperation>, Arc<dyn Backend>)> {
        let members = self.present_members(name)?;
        let tensors = messages.iter().map(|message| &message.tensor);
        let backend = members.backend_for(name, tensors)?;
        let mut transfers = Vec::with_capacity(messages.len());
        for message in messages {
            self.check_message(message)?;
            transfers.push((message.direction, message.transfer()?));
        }
        self.check_epoch(members.epoch, name)?;
        let options = IssueOptions { deadline: self.deadline(timeout), waiting };
        let issued = backend.messages(transfers, options)?;
        Ok((issued, backend))
    }
}

/// The sending of a tensor, by the call of this name.
fn to_send(name: &str, tensor: &Tensor, peer: u32, tag: u32) -> Result<Transfer> {
    let (dtype, memory) = (tensor.dtype(), to_read(name, tensor)?);
    Ok(Transfer { peer: Some(peer), tag, dtype, memory, finish: None })
}

/// The receiving of a tensor, by the call of this name.
fn to_receive(name: &str, tensor: &Tensor, peer: Option<u32>, tag: u32) -> Result<Transfer> {
    let (dtype, (memory, finish)) = (tensor.dtype(), to_write(name, tensor)?);
    Ok(Transfer { peer, tag, dtype, memory, finish })
}

/// The elements of `tensor` in one piece, which a call of this name reads.
pub(super) fn to_read(name: &str, tensor: &Tensor) -> Result<Region> {
    contiguous_on_device(name, tensor)?;
    Ok(match tensor.is_contiguous() {
        true => tensor.region().clone(),
        false => tensor.to_contiguous().into_region(),
    })
}

/// Memory in one piece that a call of this name writes, and what puts it into `tensor` at the end,
/// if that is to be done.
pub(super) fn to_write(name: &str, tensor: &Tensor) -> Result<(Region, Option<Outcome>)> {
    contiguous_on_device(name, tensor)?;
    if tensor.is_read_only() {
        let message = format!(
            "{name}: the memory of 'tensor' is read-only, but the call writes it; pass a writable \
             copy"
        );
        return Err(Error::InvalidArgument { message });
    }
    if tensor.is_contiguous() {
        return Ok((tensor.region().clone(), None));
    }
    let staged = Region::zeroed(tensor.bytes());
    let (into, from) = (tensor.clone(), staged.clone());
    Ok((staged, Some(Box::new(move || into.copy_from(&from)))))
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
