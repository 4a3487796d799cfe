//! Messages of a rank to itself: held until they are received, and then copied. Knows no transport.
//!
//! What fits the window is copied when it is sent, so that its send is over; what does not stays
//! where it is until it is received, as a message to another rank does.

use std::collections::VecDeque;

use super::limits::MESSAGE_WINDOW_BYTES;
use super::operation::Message;
use super::pending_messages::{Buffer, MessageEnd, PendingReceive, Route, frame_cost, misfit};
use super::state::State;
use crate::completion::error_of;
use crate::generated::dtype::DType;
use crate::kernels::{self, Stores};
use crate::tensor::Region;

/// A message of this rank to itself that was not received yet.
pub(super) struct OwnMessage {
    pub(super) tag: u32,
    /// Its number among this rank's messages.
    pub(super) number: u64,
    dtype: DType,
    memory: Region,
    /// How its send ends; none if it has ended, since the memory is a copy.
    pub(super) ending: Option<MessageEnd>,
}

impl OwnMessage {
    /// What its copy takes of the window; nothing if it is none.
    fn cost(&self) -> u64 {
        if self.ending.is_some() { 0 } else { frame_cost(false, self.memory.len()) }
    }
}

/// Those that wait for a receive, in the order in which they were sent.
#[derive(Default)]
pub(super) struct OwnMessages {
    waiting: VecDeque<OwnMessage>,
    /// What the copies take of the window.
    held: u64,
}

impl OwnMessages {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Those whose send has not ended.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = (&OwnMessage, &MessageEnd)> {
        self.waiting.iter().filter_map(|known| Some((known, known.ending.as_ref()?)))
    }

    /// Takes all, with their memory.
    pub(super) fn take_all(&mut self) -> VecDeque<OwnMessage> {
        std::mem::take(self).waiting
    }

    /// The element type and the bytes of the first one with this tag.
    pub(super) fn first(&self, tag: u32) -> Option<(DType, u64)> {
        let first = self.waiting.iter().find(|known| known.tag == tag)?;
        Some((first.dtype, first.memory.len() as u64))
    }

    fn keep(&mut self, message: OwnMessage) {
        self.held += message.cost();
        self.waiting.push_back(message);
    }

    fn take(&mut self, tag: u32) -> Option<OwnMessage> {
        let place = self.waiting.iter().position(|known| known.tag == tag)?;
        let taken = self.waiting.remove(place)?;
        self.held -= taken.cost();
        Some(taken)
    }
}

impl State {
    /// Sends a message of this rank to itself: to the receive that waits for it, if there is one.
    pub(super) fn send_to_self(&mut self, message: Message) {
        self.messages.last_number += 1;
        let number = self.messages.last_number;
        let Message { tag, dtype, memory, .. } = message;
        let ending = self.ending(message.deadline, message.finish, message.completion);
        let mut own = OwnMessage { tag, number, dtype, memory, ending: None };
        if let Some(receiving) = self.messages.take_posted(self.rank, tag) {
            own.ending = Some(ending);
            return self.deliver_own(receiving, own);
        }
        let cost = frame_cost(false, own.memory.len());
        if self.messages.own.held + cost <= MESSAGE_WINDOW_BYTES as u64 {
            own.memory = Region::from_vec(own.memory.read(<[u8]>::to_vec));
            ending.finish(&mut self.finished);
        } else {
            own.ending = Some(ending);
        }
        self.messages.own.keep(own);
        self.answer_probes();
    }

    /// Gives a receive the first message of this rank to itself that it takes; returns it if there
    /// is none.
    pub(super) fn receive_own(&mut self, receiving: PendingReceive) -> Option<PendingReceive> {
        if receiving.peer.is_some_and(|peer| peer != self.rank) {
            return Some(receiving);
        }
        match self.messages.own.take(receiving.tag) {
            Some(own) => {
                self.deliver_own(receiving, own);
                None
            }
            None => Some(receiving),
        }
    }

    /// Copies a message, and ends both calls. If it does not fit, both fail, and the group goes on:
    /// no other rank has to learn of it.
    fn deliver_own(&mut self, mut receiving: PendingReceive, own: OwnMessage) {
        let OwnMessage { number, dtype, memory, ending, .. } = own;
        let buffer = Buffer { bytes: receiving.memory.len() as u64, dtype: receiving.dtype };
        let route = Route { from: self.rank, to: self.rank, tag: receiving.tag };
        if let Some(misfit) = misfit(route, memory.len() as u64, dtype as u8, buffer) {
            let error = |name, number| error_of(&misfit, &self.group.name, name, number);
            let (sent, received) = (error("send", number), error("recv", receiving.own_number));
            drop((memory, receiving.memory));
            if let Some(ending) = ending {
                ending.fail(sent, &mut self.finished);
            }
            return receiving.ending.fail(received, &mut self.finished);
        }
        copy(&memory, &receiving.memory);
        receiving.peer = Some(self.rank);
        drop(memory);
        if let Some(ending) = ending {
            ending.finish(&mut self.finished);
        }
        self.end_receive(receiving);
    }
}

/// Copies bytes to as many others, which may be some of the same.
fn copy(from: &Region, into: &Region) {
    if from.overlaps(into) {
        let copy = from.read(<[u8]>::to_vec);
        into.write(|into| kernels::copy(into, &copy, Stores::Cached));
    } else {
        into.write_from(from, |into, from| kernels::copy(into, from, Stores::Cached));
    }
}
