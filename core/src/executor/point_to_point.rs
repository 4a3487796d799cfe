//! Point-to-point messages: matched by peer and tag, first come, first served.
//!
//! A small message goes at once; a larger one, or one for which the window has no room, is offered
//! and goes when the receiver has a buffer for it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::peers::Incoming;
use super::state::{Finished, State, bytes_of};
use super::{Completion, EAGER, FRAME_COST, IN_TRANSPORT, Message, Outcome, SEGMENT, WINDOW};
use crate::Error;
use crate::clock::Instant;
use crate::kernels::Stores;
use crate::tensor::Region;
use crate::transport::{Arrived, Destination, Payload, Rank, Transport};
use crate::wire::abort::Abort;
use crate::wire::frame::{Header, Kind};

/// A message on its way out.
pub(super) struct Sending {
    pub(super) peer: Rank,
    pub(super) tag: u32,
    /// Its number among this rank's messages.
    pub(super) number: u64,
    memory: Region,
    /// The prefix that the transport has, bytes.
    handed: usize,
    /// The prefix that has left, bytes.
    left: usize,
    /// Whether the receiver may be sent segments of it.
    accepted: bool,
    /// Whether the frame was handed over for an empty message.
    begun: bool,
    pub(super) ending: Ending,
}

/// A receive.
pub(super) struct Receiving {
    /// The sender, `None` for any; the actual one once it is matched.
    pub(super) peer: Option<Rank>,
    pub(super) tag: u32,
    memory: Region,
    /// The sender's number of the message, once it is matched.
    number: u64,
    /// The prefix that came, bytes.
    received: usize,
    pub(super) ending: Ending,
}

/// How a message ends.
pub(super) struct Ending {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    finish: Option<Outcome>,
    pub(super) completion: Arc<Completion>,
}

impl Ending {
    fn finish(self, finished: &mut Vec<Finished>) {
        if let Some(finish) = self.finish {
            finish();
        }
        finished.push(Finished::new(self.completion, Ok(())));
    }

    /// Ends badly. Called when no memory of the message is held any more.
    pub(super) fn fail(self, error: Error, finished: &mut Vec<Finished>) {
        drop(self.finish);
        finished.push(Finished::new(self.completion, Err(error)));
    }
}

/// A message that no receive waits for yet.
struct Unmatched {
    peer: Rank,
    tag: u32,
    number: u64,
    bytes: u64,
    /// `None` if it was only offered.
    payload: Option<Vec<u8>>,
}

/// How much was sent to, and came from, a peer without being asked for. Bytes with headers.
#[derive(Clone, Copy, Default)]
struct Flow {
    sent: u64,
    /// What of `sent` the peer has matched with receives, as far as it has told.
    acknowledged: u64,
    /// What came from the peer and was matched.
    matched: u64,
    /// What of `matched` the peer was told.
    reported: u64,
    /// What came from the peer and waits for a receive.
    waiting: u64,
}

/// All messages of a rank.
pub(super) struct PointToPoint {
    /// The number of the last message sent.
    last_number: u64,
    pub(super) sending: Vec<Sending>,
    /// Whether some of `sending` can go on.
    sendable: bool,
    /// Receives that wait for a message, in the order of the calls.
    pub(super) posted: VecDeque<Receiving>,
    /// Receives that are matched with a message.
    pub(super) matched: Vec<Receiving>,
    unmatched: VecDeque<Unmatched>,
    flows: Vec<Flow>,
}

impl PointToPoint {
    pub(super) fn new(size: u32) -> PointToPoint {
        PointToPoint {
            last_number: 0,
            sending: Vec::new(),
            sendable: false,
            posted: VecDeque::new(),
            matched: Vec::new(),
            unmatched: VecDeque::new(),
            flows: vec![Flow::default(); size as usize],
        }
    }

    /// Whether [`State::send_messages`] has something to do.
    pub(super) fn has_work(&self) -> bool {
        self.sendable
    }

    /// Whether no message is under way or awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.sending.is_empty() && self.posted.is_empty() && self.matched.is_empty()
    }

    /// Takes out everything that has to end, without its memory: (name, number, ending).
    pub(super) fn take_all(&mut self) -> Vec<(&'static str, u64, Ending)> {
        self.unmatched.clear();
        self.sendable = false;
        let sends = self.sending.drain(..).map(|message| ("send", message.number, message.ending));
        let mut all: Vec<_> = sends.collect();
        let receives = self.matched.drain(..).chain(self.posted.drain(..));
        all.extend(receives.map(|message| ("recv", message.number, message.ending)));
        all
    }

    fn matched_place(&self, peer: Rank, number: u64) -> Option<usize> {
        self.matched.iter().position(|known| known.peer == Some(peer) && known.number == number)
    }

    /// Takes the first receive that waits for such a message.
    fn take_posted(&mut self, peer: Rank, tag: u32) -> Option<Receiving> {
        let fits =
            |known: &Receiving| known.tag == tag && known.peer.is_none_or(|wanted| wanted == peer);
        let place = self.posted.iter().position(fits)?;
        self.posted.remove(place)
    }
}

impl State {
    /// Starts to send a message.
    pub(super) fn send_message(&mut self, message: Message) {
        let Some((peer, message)) = self.admitted(message, "send") else { return };
        let Some(peer) = peer else {
            let error = Error::InvalidArgument { message: "send needs a destination".to_owned() };
            self.finished.push(Finished::new(message.completion, Err(error)));
            return;
        };
        let messages = &mut self.messages;
        messages.last_number += 1;
        let number = messages.last_number;
        let bytes = message.memory.len();
        let flow = &mut messages.flows[peer as usize];
        let cost = (bytes + FRAME_COST) as u64;
        let eager = bytes <= EAGER && flow.sent - flow.acknowledged + cost <= WINDOW as u64;
        if eager {
            flow.sent += cost;
        } else {
            let header = Header {
                message: message.tag,
                message_bytes: bytes as u64,
                ..self.header(Kind::Offer, number)
            };
            self.replies.push_back((peer, header));
        }
        let ending = self.ending(message.deadline, message.finish, message.completion);
        self.messages.sending.push(Sending {
            peer,
            tag: message.tag,
            number,
            memory: message.memory,
            handed: 0,
            left: 0,
            accepted: eager,
            begun: false,
            ending,
        });
        self.messages.sendable |= eager;
    }

    /// Starts to receive a message.
    pub(super) fn receive_message(&mut self, message: Message) {
        let Some((peer, message)) = self.admitted(message, "recv") else { return };
        let receiving = Receiving {
            peer,
            tag: message.tag,
            memory: message.memory,
            number: 0,
            received: 0,
            ending: self.ending(message.deadline, message.finish, message.completion),
        };
        let fits = |known: &Unmatched| {
            known.tag == receiving.tag && receiving.peer.is_none_or(|peer| peer == known.peer)
        };
        let Some(place) = self.messages.unmatched.iter().position(fits) else {
            self.messages.posted.push_back(receiving);
            if self.departed > 0 {
                self.check_departed_messages();
            }
            return;
        };
        let Some(found) = self.messages.unmatched.remove(place) else { return };
        let number = found.number;
        match found.payload {
            None => self.accept(receiving, found.peer, number, found.bytes),
            Some(payload) => {
                let cost = payload.len() as u64 + FRAME_COST as u64;
                self.messages.flows[found.peer as usize].waiting -= cost;
                if let Some(receiving) = self.matched(receiving, found.peer, number, found.bytes) {
                    receiving.memory.write(|into| into.copy_from_slice(&payload));
                    self.note_matched(found.peer, cost);
                    self.end_receive(receiving);
                }
            }
        }
    }

    /// Checks the peer of a message; ends it if the group is broken or the peer is none.
    fn admitted(&mut self, message: Message, name: &str) -> Option<(Option<Rank>, Message)> {
        let peer = message.peer;
        let error = if let Some(broken) = &self.broken {
            broken.error_named(&self.group, name, self.messages.last_number + 1)
        } else if peer.is_some_and(|peer| peer >= self.size || peer == self.rank) {
            let message = format!(
                "{name}: rank {} is no other rank of this group of {}",
                peer.unwrap_or_default(),
                self.size
            );
            Error::InvalidArgument { message }
        } else {
            return Some((peer, message));
        };
        self.finished.push(Finished::new(message.completion, Err(error)));
        None
    }

    fn ending(
        &mut self,
        deadline: Instant,
        finish: Option<Outcome>,
        completion: Arc<Completion>,
    ) -> Ending {
        self.note_deadline(deadline);
        Ending { started: self.now, deadline, finish, completion }
    }

    /// Hands messages that may go to the transport.
    pub(super) fn send_messages(&mut self, transport: &mut dyn Transport) {
        if !std::mem::take(&mut self.messages.sendable) {
            return;
        }
        let header = self.header(Kind::Message, 0);
        for message in &mut self.messages.sending {
            let bytes = message.memory.len();
            while message.accepted && !(message.begun && message.handed == bytes) {
                let end = bytes.min(message.handed + SEGMENT);
                if end - message.left > IN_TRANSPORT {
                    break;
                }
                let header = Header {
                    sequence: message.number,
                    message: message.tag,
                    offset: message.handed as u64,
                    message_bytes: bytes as u64,
                    payload_bytes: (end - message.handed) as u32,
                    ..header
                };
                let payload = match bytes {
                    0 => Payload::Empty,
                    _ => Payload::Region(message.memory.slice(message.handed..end)),
                };
                message.handed = end;
                message.begun = true;
                self.peers[message.peer as usize].touched = true;
                transport.send(message.peer, header, payload);
            }
        }
    }

    /// A segment of a message has left.
    pub(super) fn message_sent(&mut self, header: &Header) {
        let number = header.sequence;
        let messages = &mut self.messages;
        let Some(place) = messages.sending.iter().position(|known| known.number == number) else {
            return;
        };
        let message = &mut messages.sending[place];
        message.left += header.payload_bytes as usize;
        if message.left < message.memory.len() {
            messages.sendable = true;
            return;
        }
        let message = messages.sending.remove(place);
        drop(message.memory);
        message.ending.finish(&mut self.finished);
    }

    /// Where the payload of a `Message` frame goes.
    pub(super) fn message_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (Incoming, Destination) {
        let nothing = (Incoming::Nothing, Destination::Discard);
        let bytes = header.payload_bytes as usize;
        let mut place = self.messages.matched_place(peer, header.sequence);
        if place.is_none() {
            if header.offset != 0 || u64::from(header.payload_bytes) != header.message_bytes {
                self.protocol_error(peer, "a part of a message that was not accepted came");
                return nothing;
            }
            let Some(posted) = self.messages.take_posted(peer, header.message) else {
                return (Incoming::Unmatched, Destination::Borrowed);
            };
            let number = header.sequence;
            let Some(receiving) = self.matched(posted, peer, number, header.message_bytes) else {
                return nothing;
            };
            self.note_matched(peer, (bytes + FRAME_COST) as u64);
            self.messages.matched.push(receiving);
            place = self.messages.matched_place(peer, number);
        }
        let Some(receiving) = place.map(|place| &self.messages.matched[place]) else {
            return nothing;
        };
        let start = receiving.received;
        if header.offset != start as u64 || bytes > receiving.memory.len() - start {
            self.protocol_error(peer, "a segment of a message came out of place");
            return nothing;
        }
        let destination = match bytes {
            0 => Destination::Discard,
            _ => Destination::Into(
                receiving.memory.slice(start..start + bytes),
                Stores::of_result(receiving.memory.len()),
            ),
        };
        (Incoming::Matched, destination)
    }

    /// A `Message` frame is complete.
    pub(super) fn message_arrived(
        &mut self,
        peer: Rank,
        header: &Header,
        incoming: Incoming,
        payload: &Arrived<'_>,
    ) {
        if incoming == Incoming::Matched {
            let Some(place) = self.messages.matched_place(peer, header.sequence) else { return };
            let receiving = &mut self.messages.matched[place];
            receiving.received += header.payload_bytes as usize;
            if receiving.received == receiving.memory.len() {
                let receiving = self.messages.matched.remove(place);
                self.end_receive(receiving);
            }
        } else if incoming == Incoming::Unmatched {
            self.unmatched_arrived(peer, header, bytes_of(payload));
        }
    }

    /// A message came for which no receive waited when it began.
    fn unmatched_arrived(&mut self, peer: Rank, header: &Header, payload: &[u8]) {
        let cost = (payload.len() + FRAME_COST) as u64;
        if let Some(posted) = self.messages.take_posted(peer, header.message) {
            // The receive was posted while the payload came.
            let matched = self.matched(posted, peer, header.sequence, header.message_bytes);
            if let Some(receiving) = matched {
                receiving.memory.write(|into| into.copy_from_slice(payload));
                self.note_matched(peer, cost);
                self.end_receive(receiving);
            }
            return;
        }
        let flow = &mut self.messages.flows[peer as usize];
        flow.waiting += cost;
        if flow.waiting > 2 * WINDOW as u64 {
            self.protocol_error(peer, "it sent too many messages that nobody receives");
            return;
        }
        self.messages.unmatched.push_back(Unmatched {
            peer,
            tag: header.message,
            number: header.sequence,
            bytes: header.message_bytes,
            payload: Some(payload.to_vec()),
        });
    }

    /// A message waits at its sender.
    pub(super) fn offer_arrived(&mut self, peer: Rank, header: &Header) {
        match self.messages.take_posted(peer, header.message) {
            Some(posted) => self.accept(posted, peer, header.sequence, header.message_bytes),
            None => self.messages.unmatched.push_back(Unmatched {
                peer,
                tag: header.message,
                number: header.sequence,
                bytes: header.message_bytes,
                payload: None,
            }),
        }
    }

    /// Accepts an offered message; one of another size than the buffer fails on both sides.
    fn accept(&mut self, mut receiving: Receiving, peer: Rank, number: u64, bytes: u64) {
        let buffer_bytes = receiving.memory.len() as u64;
        let header = Header {
            message: receiving.tag,
            message_bytes: buffer_bytes,
            ..self.header(Kind::Accept, number)
        };
        self.replies.push_back((peer, header));
        if bytes != buffer_bytes {
            let error = self.size_error(peer, self.rank, receiving.tag, bytes, buffer_bytes);
            drop(receiving.memory);
            receiving.ending.fail(error, &mut self.finished);
            return;
        }
        receiving.peer = Some(peer);
        receiving.number = number;
        self.messages.matched.push(receiving);
    }

    /// The receiver takes an offered message, or tells how much it has matched.
    pub(super) fn accept_arrived(&mut self, peer: Rank, header: &Header) {
        if header.sequence == 0 {
            let flow = &mut self.messages.flows[peer as usize];
            flow.acknowledged = flow.acknowledged.max(header.message_bytes).min(flow.sent);
            return;
        }
        let (number, rank) = (header.sequence, self.rank);
        let messages = &mut self.messages;
        let offered =
            |known: &Sending| known.number == number && known.peer == peer && !known.accepted;
        let Some(place) = messages.sending.iter().position(offered) else { return };
        let message = &mut messages.sending[place];
        let bytes = message.memory.len() as u64;
        if bytes == header.message_bytes {
            message.accepted = true;
            messages.sendable = true;
            return;
        }
        let message = messages.sending.remove(place);
        let error = self.size_error(rank, peer, message.tag, bytes, header.message_bytes);
        drop(message.memory);
        message.ending.fail(error, &mut self.finished);
    }

    /// Binds a receive to a message that was sent without asking. Another size than the buffer's
    /// breaks the group: the sender has already been told that its message went out well.
    fn matched(
        &mut self,
        mut receiving: Receiving,
        peer: Rank,
        number: u64,
        bytes: u64,
    ) -> Option<Receiving> {
        let buffer_bytes = receiving.memory.len() as u64;
        receiving.peer = Some(peer);
        receiving.number = number;
        if bytes == buffer_bytes {
            return Some(receiving);
        }
        let (from, to, tag) = (peer, self.rank, receiving.tag);
        // It ends with all others when the group breaks.
        self.messages.matched.push(receiving);
        self.fail(Abort::MessageSize { from, to, tag, sent_bytes: bytes, buffer_bytes });
        None
    }

    /// Notes that `cost` bytes from `peer` met their receive; tells the peer now and then.
    fn note_matched(&mut self, peer: Rank, cost: u64) {
        let flow = &mut self.messages.flows[peer as usize];
        flow.matched += cost;
        if flow.matched - flow.reported >= WINDOW as u64 / 4 {
            flow.reported = flow.matched;
            let header = Header { message_bytes: flow.matched, ..self.header(Kind::Accept, 0) };
            self.replies.push_back((peer, header));
        }
    }

    fn end_receive(&mut self, receiving: Receiving) {
        drop(receiving.memory);
        if let Some(peer) = receiving.peer {
            receiving.ending.completion.set_source_rank(peer);
        }
        receiving.ending.finish(&mut self.finished);
    }

    fn size_error(&self, from: Rank, to: Rank, tag: u32, sent: u64, buffer: u64) -> Error {
        Error::MessageSize { from, to, tag, sent_bytes: sent, buffer_bytes: buffer }
    }

    /// Number of messages to `peer` that have not gone, and receives that only it can meet.
    pub(super) fn messages_need(&self, peer: Rank) -> bool {
        let messages = &self.messages;
        messages.sending.iter().any(|known| known.peer == peer)
            || messages.matched.iter().any(|known| known.peer == Some(peer))
            || messages.posted.iter().any(|known| known.peer == Some(peer))
    }
}
