//! The messages of a rank: pending sends, posted receives, and unexpected messages. Knows how they
//! are matched and end, but no state machine.

use std::collections::VecDeque;
use std::sync::Arc;

use super::finished_operation::FinishedOperation;
use super::limits::FRAME_COST_BYTES;
use super::operation::takes;
use super::own_messages::{OwnMessage, OwnMessages};
use super::probes::FoundMessage;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::kernels::Stores;
use crate::sorted::LargeSortedMap;
use crate::tensor::Region;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Header;

/// A message that is being sent.
pub(super) struct PendingSend {
    pub(super) peer: Rank,
    pub(super) tag: u32,
    /// Its number among this rank's messages.
    pub(super) number: u64,
    pub(super) dtype: DType,
    pub(super) memory: Region,
    /// Bytes of the prefix that goes with the offer.
    pub(super) lead: usize,
    /// Bytes of the prefix that the transport has.
    pub(super) handed: usize,
    /// Bytes of the prefix that has left.
    pub(super) left: usize,
    /// Whether the receiver may be sent all of it.
    pub(super) accepted: bool,
    /// Whether the first frame was handed over, which may be empty.
    pub(super) begun: bool,
    /// Why the receiver refuses it.
    pub(super) refused: Option<Error>,
    pub(super) ending: MessageEnd,
}

impl PendingSend {
    /// Whether there is nothing more to do for it.
    pub(super) fn is_over(&self) -> bool {
        // The transport still reads what it has queued.
        self.left == self.handed
            && (self.refused.is_some() || self.accepted && self.left == self.memory.len())
    }
}

/// A receive.
pub(super) struct PendingReceive {
    /// The sender, `None` for any; the actual one once it is matched.
    pub(super) peer: Option<Rank>,
    pub(super) tag: u32,
    pub(super) dtype: DType,
    pub(super) memory: Region,
    /// Its number among this rank's receives.
    pub(super) own_number: u64,
    /// The sender's number of the message, once it is matched.
    pub(super) number: u64,
    /// Bytes of the prefix that has arrived.
    pub(super) received: usize,
    /// How it is stored, once its first segment comes, and since when if that is measured.
    pub(super) stores: Option<(Stores, Option<Instant>)>,
    /// Where to say what a receive would take, if it is not one itself but asks for that.
    pub(super) probe: Option<FoundMessage>,
    pub(super) ending: MessageEnd,
}

impl PendingReceive {
    /// The name of the operation, for its error.
    pub(super) fn name(&self) -> &'static str {
        if self.probe.is_some() { "probe" } else { "recv" }
    }
}

/// A message of a group that broke.
pub(super) struct AbandonedMessage {
    /// The name of the operation, for its error.
    pub(super) name: &'static str,
    /// Its number among this rank's sends or receives.
    pub(super) number: u64,
    pub(super) ending: MessageEnd,
}

/// How a message ends.
pub(super) struct MessageEnd {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) finish: Option<Outcome>,
    pub(super) completion: Arc<Completion>,
}

impl MessageEnd {
    pub(super) fn finish(self, finished: &mut Vec<FinishedOperation>) {
        if let Some(finish) = self.finish {
            finish();
        }
        finished.push(FinishedOperation::new(self.completion, Ok(())));
    }

    /// Fails the message. Called when its memory is no longer used.
    pub(super) fn fail(self, error: Error, finished: &mut Vec<FinishedOperation>) {
        drop(self.finish);
        finished.push(FinishedOperation::new(self.completion, Err(error)));
    }
}

/// What a sender announces about its message.
#[derive(Clone, Copy)]
pub(super) struct Announcement {
    pub(super) peer: Rank,
    /// Its number among the sender's messages.
    pub(super) number: u64,
    /// The length of the whole message.
    pub(super) bytes: u64,
    /// The number of its element type.
    pub(super) dtype: u8,
}

impl Announcement {
    pub(super) fn of(peer: Rank, header: &Header) -> Announcement {
        Announcement {
            peer,
            number: header.sequence,
            bytes: header.message_bytes,
            dtype: header.fingerprint.dtype,
        }
    }
}

/// A message that arrived before its receive was posted.
pub(super) struct UnexpectedMessage {
    pub(super) announcement: Announcement,
    pub(super) tag: u32,
    /// Whether it was offered, with a prefix; otherwise all its bytes are here.
    pub(super) offered: bool,
    pub(super) payload: Vec<u8>,
}

impl UnexpectedMessage {
    /// What it takes of the window.
    pub(super) fn cost(&self) -> u64 {
        frame_cost(self.offered, self.payload.len())
    }
}

/// Bytes of the window that an unasked frame takes: an offer alone takes none.
pub(super) fn frame_cost(offered: bool, payload_bytes: usize) -> u64 {
    if offered && payload_bytes == 0 { 0 } else { (payload_bytes + FRAME_COST_BYTES) as u64 }
}

/// How many bytes, with headers, were sent to and arrived from a peer without asking the receiver.
#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) sent: u64,
    /// The part of `sent` that the peer has matched with receives, as far as it has reported.
    pub(super) acknowledged: u64,
    /// What arrived from the peer and was matched.
    pub(super) matched: u64,
    /// The part of `matched` that was reported to the peer.
    pub(super) reported: u64,
    /// What arrived from the peer and waits for a receive.
    pub(super) waiting: u64,
}

/// All messages of a rank.
pub(super) struct PointToPoint {
    /// The number of the last message sent.
    pub(super) last_number: u64,
    /// The number of the last receive.
    pub(super) last_receive: u64,
    pub(super) sending: Vec<PendingSend>,
    /// Whether a message in `sending` can continue.
    pub(super) sendable: bool,
    /// Receives that wait for a message, in the order of the calls.
    pub(super) posted: VecDeque<PendingReceive>,
    /// Receives that are matched with a message.
    pub(super) matched: Vec<PendingReceive>,
    pub(super) unmatched: VecDeque<UnexpectedMessage>,
    /// Messages of this rank to itself.
    pub(super) own: OwnMessages,
    /// Of the peers to which, or from which, a message went.
    flows: LargeSortedMap<Rank, Flow>,
}

impl PointToPoint {
    pub(super) fn new() -> PointToPoint {
        PointToPoint {
            last_number: 0,
            last_receive: 0,
            sending: Vec::new(),
            sendable: false,
            posted: VecDeque::new(),
            matched: Vec::new(),
            unmatched: VecDeque::new(),
            own: OwnMessages::default(),
            flows: LargeSortedMap::new(),
        }
    }

    /// The flow to and from a peer.
    pub(super) fn flow(&mut self, peer: Rank) -> &mut Flow {
        self.flows.entry(peer).or_default()
    }

    /// As [`PointToPoint::flow`], if there was any.
    pub(super) fn flow_of(&self, peer: Rank) -> Option<Flow> {
        self.flows.get(&peer).copied()
    }

    /// Whether there is something to hand to the transport.
    pub(super) fn has_work(&self) -> bool {
        self.sendable
    }

    /// Whether no message is being sent or received.
    pub(super) fn is_idle(&self) -> bool {
        self.sending.is_empty()
            && self.posted.is_empty()
            && self.matched.is_empty()
            && self.own.unfinished().next().is_none()
    }

    /// How many messages are being sent or received.
    pub(super) fn count(&self) -> usize {
        let own = self.own.unfinished().count();
        self.sending.len() + self.posted.len() + self.matched.len() + own
    }

    /// Takes all messages that have to end, without their memory.
    pub(super) fn take_all(&mut self) -> Vec<AbandonedMessage> {
        self.unmatched.clear();
        self.sendable = false;
        let sends = self.sending.drain(..).map(|message| AbandonedMessage {
            name: "send",
            number: message.number,
            ending: message.ending,
        });
        let mut all: Vec<_> = sends.collect();
        let own = self.own.take_all().into_iter();
        all.extend(own.filter_map(|OwnMessage { number, ending, .. }| {
            Some(AbandonedMessage { name: "send", number, ending: ending? })
        }));
        let receives = self.matched.drain(..).chain(self.posted.drain(..));
        all.extend(receives.map(|message| AbandonedMessage {
            name: message.name(),
            number: message.own_number,
            ending: message.ending,
        }));
        all
    }

    /// The receive that is matched with a message of this number.
    pub(super) fn matched_place(&self, peer: Rank, number: u64) -> Option<usize> {
        self.matched.iter().position(|known| known.peer == Some(peer) && known.number == number)
    }

    /// Takes the first receive that waits for such a message.
    pub(super) fn take_posted(&mut self, peer: Rank, tag: u32) -> Option<PendingReceive> {
        let fits = |known: &PendingReceive| {
            known.probe.is_none()
                && known.tag == tag
                && known.peer.is_none_or(|wanted| wanted == peer)
        };
        let place = self.posted.iter().position(fits)?;
        self.posted.remove(place)
    }
}

/// The sender, the receiver and the tag of a message.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) tag: u32,
}

/// The buffer that a receiver has for a message.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) bytes: u64,
    pub(super) dtype: DType,
}

/// Why a message of `sent_bytes` bytes, of the element type with the number `sent_dtype`, does not
/// fit into `buffer`, if it does not. Both ranks decide this in the same way.
pub(super) fn misfit(
    Route { from, to, tag }: Route,
    sent_bytes: u64,
    sent_dtype: u8,
    buffer: Buffer,
) -> Option<Abort> {
    let Buffer { bytes: buffer_bytes, dtype } = buffer;
    if !takes(dtype, sent_dtype) {
        let buffer_dtype = dtype as u8;
        return Some(Abort::MessageDType { from, to, tag, sent_dtype, buffer_dtype });
    }
    let sizes = Abort::MessageSize { from, to, tag, sent_bytes, buffer_bytes };
    (sent_bytes != buffer_bytes).then_some(sizes)
}
