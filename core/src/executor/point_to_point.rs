//! Point-to-point messages: matched by peer and tag, first come, first served.
//!
//! A small message is sent immediately. A larger one, or one for which the window has no room, is
//! offered, and sent when the receiver has a buffer for it. If asking takes long, the offer carries
//! a prefix of the message, as far as the window has room, so that a receiver never has to hold
//! more of these than of small messages.

use std::sync::Arc;

use super::finished_operation::FinishedOperation;
use super::limits::MESSAGE_WINDOW_BYTES;
use super::operation::takes;
use super::operation::{Envelope, Message};
use super::peers::PayloadTarget;
use super::pending_messages::{
    Announcement, Buffer, MessageEnd, PendingReceive, Route, UnexpectedMessage, frame_cost, misfit,
};
use super::state::{State, bytes_of};
use super::stores_choice::StoresClass;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome, error_of};
use crate::generated::error::Error;
use crate::kernels::{self, Stores};
use crate::transport::{ArrivedPayload, Destination, Rank};
use crate::wire::abort::Abort;
use crate::wire::frame::{Header, Kind};

impl State {
    /// Starts to receive a message.
    pub(super) fn receive_message(&mut self, message: Message) {
        let Some((peer, message)) = self.admitted(message, "recv") else { return };
        self.messages.last_receive += 1;
        let receiving = PendingReceive {
            peer,
            tag: message.tag,
            dtype: message.dtype,
            memory: message.memory,
            own_number: self.messages.last_receive,
            number: 0,
            received: 0,
            stores: None,
            probe: None,
            ending: self.ending(message.deadline, message.finish, message.completion),
        };
        let fits = |known: &UnexpectedMessage| {
            known.tag == receiving.tag
                && receiving.peer.is_none_or(|peer| peer == known.announcement.peer)
        };
        let Some(place) = self.messages.unmatched.iter().position(fits) else {
            let Some(receiving) = self.receive_own(receiving) else { return };
            self.messages.posted.push_back(receiving);
            if self.departed > 0 {
                self.check_departed_messages();
            }
            return;
        };
        let Some(found) = self.messages.unmatched.remove(place) else { return };
        self.messages.flow(found.announcement.peer).waiting -= found.cost();
        self.match_unexpected(receiving, &found);
    }

    /// Takes a message that has arrived completely and fits `memory` exactly, and returns its
    /// sender. None if there is no such message, or if an earlier receive may match it.
    pub(super) fn receive_short(&mut self, from: Envelope, memory: &mut [u8]) -> Option<Rank> {
        if self.is_failing() || self.deferred.is_some() || !self.messages.posted.is_empty() {
            return None;
        }
        let unmatched = &self.messages.unmatched;
        let is_first = |known: &UnexpectedMessage| {
            known.tag == from.tag && from.peer.is_none_or(|peer| peer == known.announcement.peer)
        };
        let place = unmatched.iter().position(is_first)?;
        let first = &unmatched[place];
        let fits = !first.offered && first.payload.len() == memory.len();
        if !fits || !takes(from.dtype, first.announcement.dtype) {
            return None;
        }
        let found = self.messages.unmatched.remove(place)?;
        kernels::copy(memory, &found.payload, Stores::Cached);
        self.messages.last_receive += 1;
        let sender = found.announcement.peer;
        self.messages.flow(sender).waiting -= found.cost();
        self.note_matched(sender, found.cost());
        Some(sender)
    }

    /// Matches a receive with an unexpected message.
    fn match_unexpected(&mut self, receiving: PendingReceive, found: &UnexpectedMessage) {
        let Announcement { peer, number, .. } = found.announcement;
        let bound = match found.offered {
            true => self.accept(receiving, found.announcement),
            false => self.matched(receiving, found.announcement),
        };
        if bound || found.offered {
            self.note_matched(peer, found.cost());
        }
        if bound {
            self.put(peer, number, &found.payload);
        }
    }

    /// Puts the first bytes of a message into the buffer that it is bound to.
    fn put(&mut self, peer: Rank, number: u64, payload: &[u8]) {
        let Some(place) = self.messages.matched_place(peer, number) else { return };
        let receiving = &self.messages.matched[place];
        // Another message with the same number may be in it.
        if receiving.received > 0 || payload.len() > receiving.memory.len() {
            self.protocol_error(peer, "two messages came with one number");
            return;
        }
        receiving.memory.write(|into| kernels::copy(into, payload, Stores::Cached));
        self.received(place, payload.len());
    }

    /// More bytes of a message are in its buffer.
    fn received(&mut self, place: usize, bytes: usize) {
        let receiving = &mut self.messages.matched[place];
        receiving.received += bytes;
        if receiving.received == receiving.memory.len() {
            let receiving = self.messages.matched.remove(place);
            if let Some((stores, Some(began))) = receiving.stores {
                let class = StoresClass::of_message(receiving.memory.len(), self.ranks_in_a_cache);
                self.stores.note(class, stores, began.elapsed());
            }
            self.end_receive(receiving);
        }
    }

    /// Checks the peer of a message. Ends the message if the group is broken or the peer is not a
    /// member of it.
    pub(super) fn admitted(
        &mut self,
        message: Message,
        name: &str,
    ) -> Option<(Option<Rank>, Message)> {
        let peer = message.peer;
        let error = if let Some(broken) = &self.broken {
            broken.note(&message.completion);
            broken.error_named(&self.group, name, self.messages.last_number + 1)
        } else if peer.is_some_and(|peer| peer >= self.size) {
            let message = format!(
                "{name}: rank {} is not in this group of {}",
                peer.unwrap_or_default(),
                self.size
            );
            Error::InvalidArgument { message }
        } else {
            return Some((peer, message));
        };
        self.finished.push(FinishedOperation::new(message.completion, Err(error)));
        None
    }

    pub(super) fn ending(
        &mut self,
        deadline: Instant,
        finish: Option<Outcome>,
        completion: Arc<Completion>,
    ) -> MessageEnd {
        self.note_deadline(deadline);
        MessageEnd { started: self.now, deadline, finish, completion }
    }

    /// Where the payload of a `Message` frame goes.
    pub(super) fn message_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        let nothing = (PayloadTarget::Nothing, Destination::Discard);
        let bytes = header.payload_bytes as usize;
        if self.messages.matched_place(peer, header.sequence).is_none() {
            if header.offset != 0 || u64::from(header.payload_bytes) != header.message_bytes {
                self.protocol_error(peer, "a part of a message that was not accepted came");
                return nothing;
            }
            let Some(posted) = self.messages.take_posted(peer, header.message) else {
                return (PayloadTarget::UnexpectedMessage, Destination::Borrowed);
            };
            if !self.matched(posted, Announcement::of(peer, header)) {
                return nothing;
            }
            self.note_matched(peer, frame_cost(false, bytes));
        }
        self.place(peer, header)
    }

    /// Where the payload of an `Offer` frame goes, the first bytes of the message.
    pub(super) fn offer_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        let nothing = (PayloadTarget::Nothing, Destination::Discard);
        if header.offset != 0 || self.messages.matched_place(peer, header.sequence).is_some() {
            self.protocol_error(peer, "a message was offered twice");
            return nothing;
        }
        let Some(posted) = self.messages.take_posted(peer, header.message) else {
            return (PayloadTarget::UnexpectedMessage, Destination::Borrowed);
        };
        self.note_matched(peer, frame_cost(true, header.payload_bytes as usize));
        match self.accept(posted, Announcement::of(peer, header)) {
            true => self.place(peer, header),
            false => nothing,
        }
    }

    /// Where the payload of a segment goes, if its message is bound to a buffer.
    fn place(&mut self, peer: Rank, header: &Header) -> (PayloadTarget, Destination) {
        let nothing = (PayloadTarget::Nothing, Destination::Discard);
        let bytes = header.payload_bytes as usize;
        let place = self.messages.matched_place(peer, header.sequence);
        let Some(receiving) = place.map(|place| &mut self.messages.matched[place]) else {
            return nothing;
        };
        let start = receiving.received;
        if header.offset != start as u64 || bytes > receiving.memory.len() - start {
            self.protocol_error(peer, "a segment of a message came out of place");
            return nothing;
        }
        let (stores, _) = *receiving.stores.get_or_insert_with(|| {
            let class = StoresClass::of_message(receiving.memory.len(), self.ranks_in_a_cache);
            // Of what is there already as a whole, the time says how long copying takes.
            let (stores, is_measured) = self.stores.choose(class, true);
            (stores, is_measured.then(Instant::now))
        });
        let destination = match bytes {
            0 => Destination::Discard,
            _ => Destination::Into(receiving.memory.slice(start..start + bytes), stores),
        };
        (PayloadTarget::Matched, destination)
    }

    /// A `Message` or `Offer` frame is complete.
    pub(super) fn message_arrived(
        &mut self,
        peer: Rank,
        header: &Header,
        incoming: PayloadTarget,
        payload: &ArrivedPayload<'_>,
    ) {
        if incoming == PayloadTarget::Matched {
            let Some(place) = self.messages.matched_place(peer, header.sequence) else { return };
            self.received(place, header.payload_bytes as usize);
        } else if incoming == PayloadTarget::UnexpectedMessage {
            self.unmatched_arrived(peer, header, bytes_of(payload));
        }
    }

    /// A message arrived, or was offered, for which no receive was posted when it began.
    fn unmatched_arrived(&mut self, peer: Rank, header: &Header, payload: &[u8]) {
        let found = UnexpectedMessage {
            announcement: Announcement::of(peer, header),
            tag: header.message,
            offered: header.kind == Kind::Offer,
            payload: kernels::copied(payload),
        };
        if let Some(posted) = self.messages.take_posted(peer, header.message) {
            // The receive was posted while the payload was on its way.
            self.match_unexpected(posted, &found);
            return;
        }
        let flow = self.messages.flow(peer);
        flow.waiting += found.cost();
        if flow.waiting > 2 * MESSAGE_WINDOW_BYTES as u64 {
            self.protocol_error(peer, "it sent too many messages that nobody receives");
            return;
        }
        self.messages.unmatched.push_back(found);
        self.answer_probes();
    }

    /// Accepts an offered message. One that does not fit the buffer fails on both sides. Returns
    /// whether it was bound to the buffer.
    fn accept(&mut self, mut receiving: PendingReceive, offered: Announcement) -> bool {
        let mut header = Header {
            message: receiving.tag,
            message_bytes: receiving.memory.len() as u64,
            ..self.header(Kind::Accept, offered.number)
        };
        // The sender makes the same comparison.
        header.fingerprint.dtype = receiving.dtype as u8;
        self.replies.push_back((offered.peer, header));
        if let Some(misfit) = self.misfit(&receiving, offered) {
            let error = error_of(&misfit, &self.group.name, "recv", receiving.own_number);
            drop(receiving.memory);
            receiving.ending.fail(error, &mut self.finished);
            return false;
        }
        receiving.peer = Some(offered.peer);
        receiving.number = offered.number;
        self.messages.matched.push(receiving);
        true
    }

    /// Binds a receive to a message that was sent without asking. One that does not fit the buffer
    /// breaks the group, because its send has already ended successfully. Returns whether it was
    /// bound.
    fn matched(&mut self, mut receiving: PendingReceive, sent: Announcement) -> bool {
        let misfit = self.misfit(&receiving, sent);
        receiving.peer = Some(sent.peer);
        receiving.number = sent.number;
        // A receive that does not fit ends with all others when the group breaks.
        self.messages.matched.push(receiving);
        let fits = misfit.is_none();
        let next = self.issued + 1;
        misfit.into_iter().for_each(|misfit| self.fail_from(next, misfit));
        fits
    }

    /// Why a message does not fit the buffer of a receive, if it does not.
    fn misfit(&self, receiving: &PendingReceive, sent: Announcement) -> Option<Abort> {
        let buffer = Buffer { bytes: receiving.memory.len() as u64, dtype: receiving.dtype };
        let route = Route { from: sent.peer, to: self.rank, tag: receiving.tag };
        misfit(route, sent.bytes, sent.dtype, buffer)
    }

    /// Notes that `cost` bytes from `peer` were matched with a receive; reports to the peer now and
    /// then.
    fn note_matched(&mut self, peer: Rank, cost: u64) {
        let flow = self.messages.flow(peer);
        flow.matched += cost;
        if flow.matched - flow.reported >= MESSAGE_WINDOW_BYTES as u64 / 4 {
            flow.reported = flow.matched;
            let header = Header { message_bytes: flow.matched, ..self.header(Kind::Accept, 0) };
            self.replies.push_back((peer, header));
        }
    }

    pub(super) fn end_receive(&mut self, receiving: PendingReceive) {
        self.peers.note_wait(receiving.peer, (receiving.ending.started, self.now));
        drop(receiving.memory);
        if let Some(peer) = receiving.peer {
            receiving.ending.completion.set_source_rank(peer);
        }
        receiving.ending.finish(&mut self.finished);
    }

    /// Whether there are messages to `peer` that have not left, or receives that only it can match.
    pub(super) fn messages_need(&self, peer: Rank) -> bool {
        let messages = &self.messages;
        messages.sending.iter().any(|known| known.peer == peer)
            || messages.matched.iter().any(|known| known.peer == Some(peer))
            || messages.posted.iter().any(|known| known.peer == Some(peer))
    }
}
