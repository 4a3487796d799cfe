//! Sending point-to-point messages: what is sent without asking, what is offered, and what follows
//! when the receiver accepts. Knows nothing of receives.

use super::finished_operation::FinishedOperation;
use super::limits::{FRAME_COST_BYTES, MESSAGE_WINDOW_BYTES, SEGMENT_BYTES, TRANSPORT_QUEUE_BYTES};
use super::operation::{Envelope, Message};
use super::pending_messages::{Buffer, PendingSend, Route, frame_cost, misfit};
use super::state::State;
use crate::completion::error_of;
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::transport::{Payload, Rank, Transport};
use crate::wire::frame::{Header, Kind};

impl State {
    /// Starts to send a message. `worth` says how many of its bytes are sent without asking the
    /// receiver.
    pub(super) fn send_message(
        &mut self,
        message: Message,
        worth: impl FnOnce(Rank, usize) -> usize,
    ) {
        let Some((peer, message)) = self.admitted(message, "send") else { return };
        let Some(peer) = peer else {
            let error = Error::InvalidArgument { message: "send needs a destination".to_owned() };
            self.finished.push(FinishedOperation::new(message.completion, Err(error)));
            return;
        };
        if peer == self.rank {
            return self.send_to_self(message);
        }
        let messages = &mut self.messages;
        messages.last_number += 1;
        let number = messages.last_number;
        let bytes = message.memory.len();
        let flow = messages.flow(peer);
        let under_way = flow.sent - flow.acknowledged;
        let room = (MESSAGE_WINDOW_BYTES as u64).saturating_sub(under_way) as usize;
        let eager = bytes <= self.peers.eager_bytes(peer) && bytes + FRAME_COST_BYTES <= room;
        // A prefix beyond what one message may queue in the transport would never be handed over.
        let most = room.saturating_sub(FRAME_COST_BYTES).min(TRANSPORT_QUEUE_BYTES);
        let lead = if eager { 0 } else { worth(peer, bytes).min(bytes).min(most) };
        flow.sent += frame_cost(!eager, if eager { bytes } else { lead });
        let ending = self.ending(message.deadline, message.finish, message.completion);
        self.messages.sending.push(PendingSend {
            peer,
            tag: message.tag,
            number,
            dtype: message.dtype,
            memory: message.memory,
            lead,
            handed: 0,
            left: 0,
            accepted: eager,
            begun: false,
            refused: None,
            ending,
        });
        self.messages.sendable = true;
        if self.departed > 0 {
            self.check_departed_messages();
        }
    }

    /// Sends a short message from beginning to end, or does nothing. Returns whether it was sent.
    pub(super) fn send_short(
        &mut self,
        transport: &mut dyn Transport,
        to: Envelope,
        payload: &[u8],
    ) -> bool {
        let Some(peer) = to.peer else { return false };
        let is_plain = !self.is_failing()
            && self.deferred.is_none()
            && peer < self.size
            && peer != self.rank
            && payload.len() <= self.peers.eager_bytes(peer)
            && !self.messages.sending.iter().any(|earlier| earlier.peer == peer);
        let flow = self.messages.flow_of(peer).unwrap_or_default();
        let cost = frame_cost(false, payload.len());
        if !is_plain || flow.sent - flow.acknowledged + cost > MESSAGE_WINDOW_BYTES as u64 {
            return false;
        }
        let number = self.messages.last_number + 1;
        let mut header = Header {
            message: to.tag,
            message_bytes: payload.len() as u64,
            payload_bytes: payload.len() as u32,
            ..self.header(Kind::Message, number)
        };
        header.fingerprint.dtype = to.dtype as u8;
        if !transport.send_at_once(peer, header, payload) {
            return false;
        }
        self.messages.last_number = number;
        self.messages.flow(peer).sent += cost;
        self.peers.of(peer).was_reached = true;
        true
    }

    /// Hands messages that may go to the transport.
    pub(super) fn send_messages(&mut self, transport: &mut dyn Transport) {
        if !std::mem::take(&mut self.messages.sendable) {
            return;
        }
        let header = self.header(Kind::Message, 0);
        for message in &mut self.messages.sending {
            let bytes = message.memory.len();
            while !message.begun || message.accepted && message.handed < bytes {
                let (kind, end) = match message.accepted {
                    true => (Kind::Message, bytes.min(message.handed + SEGMENT_BYTES)),
                    false => (Kind::Offer, message.lead),
                };
                if end - message.left > TRANSPORT_QUEUE_BYTES {
                    break;
                }
                let mut header = Header {
                    kind,
                    sequence: message.number,
                    message: message.tag,
                    offset: message.handed as u64,
                    message_bytes: bytes as u64,
                    payload_bytes: (end - message.handed) as u32,
                    ..header
                };
                header.fingerprint.dtype = message.dtype as u8;
                let payload = match end - message.handed {
                    0 => Payload::Empty,
                    _ => Payload::Region(message.memory.slice(message.handed..end)),
                };
                message.handed = end;
                message.begun = true;
                self.peers.of(message.peer).was_reached = true;
                transport.send(message.peer, header, payload);
            }
        }
    }

    /// A segment of a message, or its offer, has left.
    pub(super) fn message_sent(&mut self, header: &Header) {
        let number = header.sequence;
        let sending = &mut self.messages.sending;
        let Some(place) = sending.iter().position(|known| known.number == number) else {
            return;
        };
        let message = &mut sending[place];
        message.left += header.payload_bytes as usize;
        self.finish_or_continue(place);
    }

    /// The receiver accepts an offered message, or reports how much it has matched.
    pub(super) fn accept_arrived(&mut self, peer: Rank, header: &Header) {
        if header.sequence == 0 {
            let flow = self.messages.flow(peer);
            flow.acknowledged = flow.acknowledged.max(header.message_bytes).min(flow.sent);
            return;
        }
        let number = header.sequence;
        let offered = |known: &PendingSend| {
            known.number == number
                && known.peer == peer
                && known.begun
                && !known.accepted
                && known.refused.is_none()
        };
        let Some(place) = self.messages.sending.iter().position(offered) else { return };
        let message = &mut self.messages.sending[place];
        let Some(dtype) = DType::from_code(header.fingerprint.dtype) else {
            return self.protocol_error(peer, "it receives elements of an unknown type");
        };
        let buffer = Buffer { bytes: header.message_bytes, dtype };
        let route = Route { from: self.rank, to: peer, tag: message.tag };
        match misfit(route, message.memory.len() as u64, message.dtype as u8, buffer) {
            None => message.accepted = true,
            Some(misfit) => {
                let error = error_of(&misfit, &self.group.name, "send", number);
                message.refused = Some(error);
            }
        }
        self.finish_or_continue(place);
    }

    /// Ends a message that is over, or notes that it can continue.
    fn finish_or_continue(&mut self, place: usize) {
        let message = &self.messages.sending[place];
        if !message.is_over() {
            self.messages.sendable |= message.accepted && message.handed < message.memory.len();
            return;
        }
        let PendingSend { memory, refused, ending, .. } = self.messages.sending.remove(place);
        drop(memory);
        match refused {
            Some(error) => ending.fail(error, &mut self.finished),
            None => ending.finish(&mut self.finished),
        }
    }
}
