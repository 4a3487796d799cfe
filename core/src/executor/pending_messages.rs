//! The messages of a rank: on their way out, awaited, and here without a receive. Knows how they
//! meet and end, no state machine.

use std::collections::VecDeque;
use std::sync::Arc;

use super::finished_operation::FinishedOperation;
use super::limits::FRAME_COST;
use super::operation::takes;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::sorted::LargeSortedMap;
use crate::tensor::Region;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Header;

/// A message on its way out.
pub(super) struct PendingSend {
    pub(super) peer: Rank,
    pub(super) tag: u32,
    /// Its number among this rank's messages.
    pub(super) number: u64,
    pub(super) dtype: DType,
    pub(super) memory: Region,
    /// The prefix that goes with the offer, bytes.
    pub(super) lead: usize,
    /// The prefix that the transport has, bytes.
    pub(super) handed: usize,
    /// The prefix that has left, bytes.
    pub(super) left: usize,
    /// Whether the receiver may be sent all of it.
    pub(super) accepted: bool,
    /// Whether the first frame was handed over, which may be empty.
    pub(super) begun: bool,
    /// Why the receiver does not take it.
    pub(super) refused: Option<Error>,
    pub(super) ending: MessageEnd,
}

impl PendingSend {
    /// Whether there is nothing more to do for it.
    pub(super) fn is_over(&self) -> bool {
        // What the transport has is still read.
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
    /// The prefix that came, bytes.
    pub(super) received: usize,
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

    /// Ends badly. Called when no memory of the message is held any more.
    pub(super) fn fail(self, error: Error, finished: &mut Vec<FinishedOperation>) {
        drop(self.finish);
        finished.push(FinishedOperation::new(self.completion, Err(error)));
    }
}

/// What a sender says of its message.
#[derive(Clone, Copy)]
pub(super) struct Announcement {
    pub(super) peer: Rank,
    /// Its number among the sender's messages.
    pub(super) number: u64,
    /// Of all of it.
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

/// A message that no receive waits for yet.
pub(super) struct UnexpectedMessage {
    pub(super) announcement: Announcement,
    pub(super) tag: u32,
    /// It was offered, with the bytes that are here; otherwise they are all.
    pub(super) offered: bool,
    pub(super) payload: Vec<u8>,
}

impl UnexpectedMessage {
    /// What it takes of the window.
    pub(super) fn cost(&self) -> u64 {
        frame_cost(self.offered, self.payload.len())
    }
}

/// What a frame that nobody asked for takes of the window: an offer alone takes nothing.
pub(super) fn frame_cost(offered: bool, payload_bytes: usize) -> u64 {
    if offered && payload_bytes == 0 { 0 } else { (payload_bytes + FRAME_COST) as u64 }
}

/// How much was sent to, and came from, a peer without being asked for. Bytes with headers.
#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) sent: u64,
    /// What of `sent` the peer has matched with receives, as far as it has told.
    pub(super) acknowledged: u64,
    /// What came from the peer and was matched.
    pub(super) matched: u64,
    /// What of `matched` the peer was told.
    pub(super) reported: u64,
    /// What came from the peer and waits for a receive.
    pub(super) waiting: u64,
}

/// All messages of a rank.
pub(super) struct PointToPoint {
    /// The number of the last message sent.
    pub(super) last_number: u64,
    /// The number of the last receive.
    pub(super) last_receive: u64,
    pub(super) sending: Vec<PendingSend>,
    /// Whether some of `sending` can go on.
    pub(super) sendable: bool,
    /// Receives that wait for a message, in the order of the calls.
    pub(super) posted: VecDeque<PendingReceive>,
    /// Receives that are matched with a message.
    pub(super) matched: Vec<PendingReceive>,
    pub(super) unmatched: VecDeque<UnexpectedMessage>,
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
            flows: LargeSortedMap::new(),
        }
    }

    /// What went to and came from a peer.
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

    /// Whether no message is under way or awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.sending.is_empty() && self.posted.is_empty() && self.matched.is_empty()
    }

    /// Takes out everything that has to end, without its memory: (name, number, ending).
    pub(super) fn take_all(&mut self) -> Vec<(&'static str, u64, MessageEnd)> {
        self.unmatched.clear();
        self.sendable = false;
        let sends = self.sending.drain(..).map(|message| ("send", message.number, message.ending));
        let mut all: Vec<_> = sends.collect();
        let receives = self.matched.drain(..).chain(self.posted.drain(..));
        all.extend(receives.map(|message| ("recv", message.own_number, message.ending)));
        all
    }

    /// The receive that is matched with a message of this number.
    pub(super) fn matched_place(&self, peer: Rank, number: u64) -> Option<usize> {
        self.matched.iter().position(|known| known.peer == Some(peer) && known.number == number)
    }

    /// Takes the first receive that waits for such a message.
    pub(super) fn take_posted(&mut self, peer: Rank, tag: u32) -> Option<PendingReceive> {
        let fits = |known: &PendingReceive| {
            known.tag == tag && known.peer.is_none_or(|wanted| wanted == peer)
        };
        let place = self.posted.iter().position(fits)?;
        self.posted.remove(place)
    }
}

/// From which rank to which a message goes, and with which tag.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) tag: u32,
}

/// What a receiver has for a message.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) bytes: u64,
    pub(super) dtype: DType,
}

/// Why a message of `sent_bytes` bytes, of the element type with the number `sent_dtype`, cannot go
/// into `buffer`, if it cannot. Both ends decide this alike.
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
