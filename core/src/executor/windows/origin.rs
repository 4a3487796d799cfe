//! Accesses of this rank to the memory of others: how they are queued, handed over in segments, and
//! answered. Knows nothing of what the target does.

use super::super::finished_operation::FinishedOperation;
use super::super::limits::{FRAME_COST_BYTES, SEGMENT_BYTES};
use super::super::peers::PayloadTarget;
use super::super::state::State;
use super::{
    ACCESS_WINDOW_BYTES, AccessAction, MAX_UNSENT_SIGNALS, PeerAccesses, PendingAccess, Queued,
    SignalKind, WindowAccess, WindowCall,
};
use crate::generated::error::Error;
use crate::transport::{Destination, Payload, Rank, Transport};
use crate::wire::frame::{Header, Kind};

/// A segment of an access: which bytes of it, and where they lie in the window.
struct Segment {
    start: usize,
    bytes: usize,
}

impl State {
    /// Starts an access.
    pub(in super::super) fn start_access(&mut self, access: WindowAccess, call: WindowCall) {
        let Some(call) = self.admit_window_call(access.action.name(), call) else { return };
        let number = self.windows.number();
        if access.peer == self.rank {
            let result = self.access_own(&access);
            let WindowCall { finish, completion, .. } = call;
            if let (Ok(()), Some(finish)) = (&result, finish) {
                finish();
            }
            self.finished.push(FinishedOperation::new(completion, result));
            return;
        }
        let ending = self.ending(call.deadline, call.finish, call.completion);
        let peer = access.peer;
        let pending = PendingAccess { number, access, handed: 0, done: 0, refused: false, ending };
        self.windows.peer(peer).queued.push_back(Queued::Access(pending));
        self.windows.sendable = true;
        self.check_departed_if_any();
    }

    /// Starts to signal `peer`. Done when the signal is on its way.
    pub(in super::super) fn start_signal(&mut self, window: u32, peer: Rank, call: WindowCall) {
        let Some(call) = self.admit_window_call("signal", call) else { return };
        let number = self.windows.number();
        let ending = self.ending(call.deadline, call.finish, call.completion);
        if peer == self.rank {
            *self.windows.peer(peer).signals.entry(window).or_default() += 1;
            ending.finish(&mut self.finished);
            self.check_window_waits();
            return;
        }
        let kind = SignalKind::Signal;
        let signal = Queued::Signal { window, number, kind, ending: Some(ending) };
        self.windows.peer(peer).queued.push_back(signal);
        self.windows.sendable = true;
        self.check_departed_if_any();
    }

    /// The call, unless the group is broken: then it ends.
    pub(super) fn admit_window_call(&mut self, name: &str, call: WindowCall) -> Option<WindowCall> {
        let Some(broken) = &self.broken else { return Some(call) };
        broken.note(&call.completion);
        let error = broken.error_named(&self.group, name, self.windows.last_number + 1);
        self.finished.push(FinishedOperation::new(call.completion, Err(error)));
        None
    }

    /// Breaks the group if what was issued needs a peer that left.
    pub(super) fn check_departed_if_any(&mut self) {
        if self.departed > 0 {
            self.check_departed_messages();
        }
    }

    /// Hands over what may go: answers, and segments of accesses.
    pub(in super::super) fn send_accesses(&mut self, transport: &mut dyn Transport) {
        while let Some((peer, mut header, payload)) = self.windows.answers.pop_front() {
            header.issued = self.issued;
            self.send_frame(transport, peer, header, payload);
        }
        // What is over then may let a fence begin, of which others are to be told.
        while std::mem::take(&mut self.windows.sendable) {
            let mut ready = Vec::new();
            let template = self.header(Kind::Access, 0);
            let finished = &mut self.finished;
            for (&peer, accesses) in self.windows.peers.iter_mut() {
                while let Some((header, payload)) = accesses.next_frame(template, finished) {
                    ready.push((peer, header, payload));
                }
            }
            for (peer, header, payload) in ready {
                self.send_frame(transport, peer, header, payload);
            }
            self.check_window_waits();
        }
    }

    /// A signal has left.
    pub(in super::super) fn signal_sent(&mut self, peer: Rank) {
        let accesses = self.windows.peer(peer);
        accesses.unsent_signals = accesses.unsent_signals.saturating_sub(1);
        if !accesses.queued.is_empty() {
            self.windows.sendable = true;
        }
    }

    /// Where the payload of an answer goes.
    pub(in super::super) fn access_reply_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        let place = self.windows.peer(peer).answered(header);
        match place {
            Some(place) => (PayloadTarget::AccessReply, place),
            None => {
                self.protocol_error(peer, "an answer to no access of this rank came");
                (PayloadTarget::Nothing, Destination::Discard)
            }
        }
    }

    /// The answer to a segment is complete.
    pub(in super::super) fn access_reply_arrived(&mut self, peer: Rank, header: &Header) {
        let accesses = self.windows.peer(peer);
        let cost = cost(header.fingerprint.elements as usize);
        accesses.bytes_under_way = accesses.bytes_under_way.saturating_sub(cost);
        let Some(pending) = accesses.first_unanswered() else { return };
        pending.done += header.fingerprint.elements as usize;
        pending.refused |= header.message_bytes != 0;
        let is_done = pending.done == pending.access.memory.len();
        if is_done
            && let Some(PendingAccess { access, ending, refused, .. }) =
                accesses.unanswered.pop_front()
        {
            let name = access.action.name();
            drop(access);
            match refused {
                false => ending.finish(&mut self.finished),
                true => ending.fail(refused_by(name, peer), &mut self.finished),
            }
        }
        self.windows.sendable = true;
        self.check_window_waits();
    }
}

/// What an access ends with that the target refused.
pub(super) fn refused_by(name: &str, peer: Rank) -> Error {
    let message = format!(
        "{name}: rank {peer} has no memory of this window with these elements: it is not \
         registered there, or no longer, or with another dtype or length"
    );
    Error::InvalidArgument { message }
}

/// What a segment takes of what may be under way.
fn cost(bytes: usize) -> usize {
    bytes + FRAME_COST_BYTES
}

impl PeerAccesses {
    /// The next frame to the peer, if one may go now.
    fn next_frame(
        &mut self,
        template: Header,
        finished: &mut Vec<FinishedOperation>,
    ) -> Option<(Header, Payload)> {
        let pending = match self.queued.front_mut()? {
            Queued::Access(pending) => pending,
            Queued::Signal { .. } if self.unsent_signals >= MAX_UNSENT_SIGNALS => return None,
            Queued::Signal { window, number, kind, ending } => {
                self.unsent_signals += 1;
                let mut header = Header { kind: Kind::Signal, message: *window, ..template };
                header.sequence = *number;
                header.offset = *kind as u64;
                if let Some(ending) = ending.take() {
                    ending.finish(finished);
                }
                self.queued.pop_front();
                return Some((header, Payload::Empty));
            }
        };
        let segment = pending.next_segment();
        let cost = cost(segment.bytes);
        if self.bytes_under_way > 0 && self.bytes_under_way + cost > ACCESS_WINDOW_BYTES {
            return None;
        }
        self.bytes_under_way += cost;
        let frame = pending.frame(template, &segment);
        pending.handed += segment.bytes;
        if pending.handed == pending.access.memory.len()
            && let Some(Queued::Access(pending)) = self.queued.pop_front()
        {
            self.unanswered.push_back(pending);
        }
        Some(frame)
    }

    /// The access that is answered next.
    fn first_unanswered(&mut self) -> Option<&mut PendingAccess> {
        if let Some(first) = self.unanswered.front_mut() {
            return Some(first);
        }
        match self.queued.front_mut() {
            Some(Queued::Access(pending)) => Some(pending),
            _ => None,
        }
    }

    /// Where the payload of this answer goes; none if it answers nothing.
    fn answered(&mut self, header: &Header) -> Option<Destination> {
        let pending = self.first_unanswered()?;
        let bytes = usize::try_from(header.fingerprint.elements).ok()?;
        let under_way = pending.handed - pending.done;
        let is_next = header.sequence == pending.number
            && header.offset == pending.done as u64
            && bytes > 0
            && bytes <= under_way
            && bytes == pending.segment_at(pending.done).bytes;
        if !is_next {
            return None;
        }
        let access = &pending.access;
        let into = match &access.action {
            AccessAction::Get => Some(&access.memory),
            action => action.result(),
        };
        let payload = header.payload_bytes as usize;
        match into.filter(|_| header.message_bytes == 0) {
            Some(into) if payload == bytes => {
                let place = into.slice(pending.done..pending.done + bytes);
                Some(Destination::Into(place, crate::kernels::Stores::Cached))
            }
            None if payload == 0 => Some(Destination::Discard),
            _ => None,
        }
    }
}

impl PendingAccess {
    fn next_segment(&self) -> Segment {
        self.segment_at(self.handed)
    }

    /// The segment that begins at `start`. That of a comparison has two operands.
    fn segment_at(&self, start: usize) -> Segment {
        let most = match self.access.action {
            AccessAction::CompareAndSwap(..) => SEGMENT_BYTES / 2,
            _ => SEGMENT_BYTES,
        };
        Segment { start, bytes: most.min(self.access.memory.len() - start) }
    }

    /// The request for a segment.
    fn frame(&self, template: Header, segment: &Segment) -> (Header, Payload) {
        let WindowAccess { action, window, dtype, offset, memory, .. } = &self.access;
        let Segment { start, bytes } = *segment;
        let part = || memory.slice(start..start + bytes);
        let payload = match action {
            AccessAction::Get => Payload::Empty,
            AccessAction::CompareAndSwap(compare, _) => {
                let mut both = compare.slice(start..start + bytes).read(<[u8]>::to_vec);
                part().read(|value| both.extend_from_slice(value));
                Payload::Owned(both)
            }
            _ => Payload::Region(part()),
        };
        let mut header = Header {
            sequence: self.number,
            message: *window,
            offset: (offset + start) as u64,
            message_bytes: start as u64,
            payload_bytes: payload.len() as u32,
            ..template
        };
        header.fingerprint.collective = action.code();
        header.fingerprint.dtype = *dtype as u8;
        header.fingerprint.elements = bytes as u64;
        if let AccessAction::Accumulate(op) | AccessAction::FetchAndUpdate(op, _) = action {
            header.fingerprint.reduce_op = op.code();
        }
        (header, payload)
    }
}
