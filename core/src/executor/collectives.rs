//! Collectives: steps become frames, frames become progress of steps.

use std::sync::Arc;

use super::finished_operation::FinishedOperation;
use super::limits::{FRAME_COST_BYTES, SEGMENT_BYTES, TRANSPORT_QUEUE_BYTES, WINDOW_BYTES};
use super::operation::SmallOperation;
use super::operation::{Operation, SlotProgress};
use super::peers::PayloadTarget;
use super::running_operation::{Allowance, RunningOperation};
use super::state::{State, bytes_of};
use super::unexpected_frames::UnexpectedFrame;
use crate::completion::Completion;
use crate::generated::error::Error;
use crate::kernels;
use crate::schedule::Action;
use crate::transport::{ArrivedPayload, Destination, Payload, Rank, Transport};
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::{Header, Kind};

/// How far apart the numbers of two operations in flight may be.
const MAX_GAP: u64 = 1 << 16;

/// A step of an operation, and how much of it may be done now.
#[derive(Clone, Copy)]
struct AllowedStep {
    sequence: u64,
    step: u32,
    allowed: Allowance,
}

impl State {
    /// Starts an operation: checks it and lists its first steps.
    pub(super) fn submit(&mut self, operation: Operation) {
        let sequence = operation.sequence;
        if let Some(broken) = &self.broken {
            let error = broken.error(&self.group, &operation.fingerprint, sequence);
            broken.note(&operation.completion);
            self.finished.push(FinishedOperation::new(operation.completion, Err(error)));
            return;
        }
        let Some(operation) = self.end_lost(operation) else { return };
        // What was tried immediately is issued already.
        let tried = operation.slot_progress.is_some_and(|slot_progress| slot_progress.shown);
        if (sequence <= self.issued && !(tried && sequence == self.issued))
            || (!self.in_flight.is_empty() && sequence > self.issued + MAX_GAP)
        {
            let why = format!("operation {sequence} comes after operation {}", self.issued);
            self.refuse(sequence, operation.completion, why);
            return;
        }
        self.issued = sequence;
        self.tried = None;
        self.tell_issued();
        let after = operation.after;
        let analysis = match self.analyses.get(&operation.schedule, self.rank, self.size) {
            Ok(analysis) => analysis,
            Err(why) => return self.refuse(sequence, operation.completion, why),
        };
        let steps = self.spare_steps.pop().unwrap_or_default();
        let running =
            RunningOperation::new(operation, analysis, steps, &mut self.scratch, self.now);
        let mut running = match running {
            Ok(running) => running,
            Err((completion, why)) => return self.refuse(sequence, completion, why),
        };
        running.awaits_input = after.is_some_and(|after| self.in_flight.get(after).is_some());
        self.note_deadline(running.deadline);
        if let Some(exchange) = &mut self.exchange {
            match running.slot_progress {
                Some(slot_progress) => exchange.push(sequence, slot_progress.shown),
                None => exchange.skip_to(sequence),
            }
        }
        let begins = running.slot_progress.is_none();
        self.in_flight.push(running);
        if begins {
            self.choose_stores(sequence);
            self.list_first_steps(sequence);
        }
        self.take_unexpected(sequence);
        if self.departed > 0 {
            self.check_departed(sequence);
        }
        self.finish_if_done(sequence);
    }

    /// Lists the steps that need no other.
    fn list_first_steps(&mut self, sequence: u64) {
        let Some(running) = self.in_flight.get(sequence) else { return };
        let analysis = running.analysis.clone();
        for step in 0..analysis.schedule.steps.len() as u32 {
            if analysis.predecessors(step).is_empty() {
                self.list(sequence, step);
            }
        }
    }

    /// Begins an operation that awaits its input, which is there now.
    pub(super) fn give_input(&mut self, sequence: u64) {
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        if !std::mem::take(&mut running.awaits_input) {
            return;
        }
        running.progressed = self.now;
        (0..running.steps.len() as u32).for_each(|step| self.list(sequence, step));
    }

    /// Runs the schedule of an operation that was on the board.
    pub(super) fn run_schedule(&mut self, sequence: u64) {
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        running.progressed = self.now;
        match running.prepare(&mut self.scratch) {
            Ok(()) => {
                self.choose_stores(sequence);
                self.list_first_steps(sequence);
                self.finish_if_done(sequence);
            }
            Err(why) => {
                let Some(running) = self.in_flight.take(sequence) else { return };
                let completion = running.release(&mut self.scratch).completion;
                self.refuse(sequence, completion, why);
            }
        }
    }

    /// A frame came for an operation that is on the board here, so its sender runs the schedule.
    /// Then all ranks have to, and the board still shows which rank asked for that: nothing there
    /// is overwritten before this rank is done.
    fn follow_to_schedule(&mut self, peer: Rank, header: &Header) {
        let Some(running) = self.in_flight.get(header.sequence) else { return };
        let Some(SlotProgress { small, .. }) = running.slot_progress else { return };
        let &Header { sequence, fingerprint, .. } = header;
        let operation = SmallOperation { sequence, fingerprint, small };
        if !operation.may_be_elsewhere() || !running.fingerprint.agrees_with(&fingerprint) {
            return;
        }
        let Some(exchange) = &self.exchange else { return };
        if exchange.is_scheduled(&operation) {
            self.leave_board(sequence);
        } else {
            self.protocol_error(peer, "it runs a schedule that no rank asked for");
        }
    }

    /// Ends an operation that cannot be run. The other ranks would wait in vain, so the group
    /// breaks.
    fn refuse(&mut self, sequence: u64, completion: Arc<Completion>, why: String) {
        let message = format!("operation {sequence} cannot run: {why}");
        let error = Error::InvalidArgument { message: message.clone() };
        self.finished.push(FinishedOperation::new(completion, Err(error)));
        self.fail_from(sequence, Abort::User { rank: self.rank, why: message });
    }

    /// Takes the frames that came before operation `sequence` was issued.
    fn take_unexpected(&mut self, sequence: u64) {
        // The numbers need not be consecutive: some operations have no frames, and older frames
        // belong to numbers that were never issued here.
        while let Some(frame) = self.unexpected.take(sequence) {
            let cost = frame.payload.len() + FRAME_COST_BYTES;
            let peer = self.peers.of(frame.peer);
            peer.received_ahead_bytes = peer.received_ahead_bytes.saturating_sub(cost);
            match frame.header.kind {
                Kind::Ready => self.ready_arrived(frame.peer, &frame.header),
                _ => self.early_arrived(frame),
            }
        }
    }

    /// A message that came before its operation.
    fn early_arrived(&mut self, frame: UnexpectedFrame) {
        self.follow_to_schedule(frame.peer, &frame.header);
        let eager_bytes = self.peers.eager_bytes(frame.peer);
        let Some(step) = self.receiving_step(frame.peer, &frame.header) else { return };
        let Some(running) = self.in_flight.get_mut(frame.header.sequence) else { return };
        let bytes = running.step(step).bytes;
        let twice = running.early.iter().any(|early| early.0 == step);
        if twice || bytes > eager_bytes || bytes != frame.payload.len() {
            self.protocol_error(frame.peer, "a message came twice or in parts too early");
            return;
        }
        running.early.push((step, frame.payload));
        self.list(frame.header.sequence, step);
    }

    /// Carries a step as far as it goes now.
    pub(super) fn look_at(&mut self, transport: &mut dyn Transport, sequence: u64, step: u32) {
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let state = running.step(step);
        state.listed = false;
        if state.done || state.held {
            return;
        }
        let at = AllowedStep { sequence, step, allowed: running.allowed(step) };
        match running.action(step) {
            // It is listed again when there is an input.
            action if running.awaits_input && !matches!(action, Action::Recv { .. }) => {}
            Action::Send { peer, .. } => self.send_step(transport, peer, at),
            Action::Recv { peer, .. } | Action::RecvReduce { peer, .. } => {
                self.receive_step(transport, peer, at);
            }
            Action::Reduce { .. } | Action::Copy { .. } => self.local_step(at),
        }
        self.finish_if_done(sequence);
    }

    /// Does the next segment of a step that needs no peer.
    fn local_step(&mut self, at: AllowedStep) {
        let AllowedStep { sequence, step, allowed } = at;
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let state = *running.step(step);
        let Some(bytes) = next_segment(state.finished, state.bytes, allowed) else { return };
        running.run_locally(step, state.finished, bytes);
        running.progress(step, bytes, &mut self.work);
        self.list(sequence, step);
    }

    /// Hands the segments of a message that may go to the transport.
    fn send_step(&mut self, transport: &mut dyn Transport, peer: Rank, at: AllowedStep) {
        let AllowedStep { sequence, step, allowed } = at;
        let header = self.header(Kind::Data, sequence);
        loop {
            let Some(running) = self.in_flight.get_mut(sequence) else { return };
            let state = *running.step(step);
            if state.begun && state.handed == state.bytes {
                return;
            }
            let Some(bytes) = next_segment(state.handed, state.bytes, allowed) else { return };
            let end = state.handed + bytes;
            let large = state.bytes > self.peers.eager_bytes(peer);
            if large && (end > state.permitted || end - state.finished > TRANSPORT_QUEUE_BYTES) {
                return;
            }
            if !self.peers.of(peer).admit(sequence, bytes + FRAME_COST_BYTES) {
                self.hold(sequence, step, peer, bytes + FRAME_COST_BYTES);
                return;
            }
            let header = Header {
                message: running.analysis.message(step),
                offset: state.handed as u64,
                message_bytes: state.bytes as u64,
                payload_bytes: bytes as u32,
                fingerprint: running.fingerprint,
                ..header
            };
            let payload = match bytes {
                0 => Payload::Empty,
                _ => Payload::Region(running.memory(step).slice(state.handed..end)),
            };
            let state = running.step(step);
            state.begun = true;
            state.handed = end;
            self.send_frame(transport, peer, header, payload);
        }
    }

    /// Keeps a step back until the peer has issued its operation.
    fn hold(&mut self, sequence: u64, step: u32, peer: Rank, bytes: usize) {
        if let Some(running) = self.in_flight.get_mut(sequence) {
            running.step(step).held = true;
        }
        if let Some(told) = self.peers.of(peer).hold(sequence, step, bytes) {
            self.replies.push_back((peer, self.header(Kind::Held, told)));
        }
    }

    /// Takes a message that is here already, or allows the sender to send a large one.
    fn receive_step(&mut self, transport: &mut dyn Transport, peer: Rank, at: AllowedStep) {
        let AllowedStep { sequence, step, allowed } = at;
        let header = self.header(Kind::Ready, sequence);
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let state = *running.step(step);
        if state.bytes <= self.peers.eager_bytes(peer) {
            if allowed.all
                && let Some(place) = running.early.iter().position(|early| early.0 == step)
            {
                let (_, payload) = running.early.swap_remove(place);
                running.take_in(step, 0, &payload);
                running.progressed = self.now;
                running.progress(step, payload.len(), &mut self.work);
            }
            return;
        }
        if next_segment(state.handed, state.bytes, allowed).is_none() {
            return;
        }
        if !self.peers.of(peer).admit(sequence, FRAME_COST_BYTES) {
            self.hold(sequence, step, peer, FRAME_COST_BYTES);
            return;
        }
        running.step(step).handed = allowed.bytes;
        let header = Header {
            message: running.analysis.message(step),
            offset: allowed.bytes as u64,
            message_bytes: state.bytes as u64,
            fingerprint: running.fingerprint,
            ..header
        };
        self.send_frame(transport, peer, header, Payload::Empty);
    }

    /// The step that receives the message of `header`, if the two ranks agree on the operation. If
    /// they do not, the group breaks.
    fn receiving_step(&mut self, peer: Rank, header: &Header) -> Option<u32> {
        let running = self.in_flight.get(header.sequence)?;
        let step = running.analysis.receive_step(peer, header.message);
        self.agreed(peer, header, step)
    }

    /// `step`, if it exists and both ranks mean the same operation and length; else breaks the
    /// group.
    fn agreed(&mut self, peer: Rank, header: &Header, step: Option<u32>) -> Option<u32> {
        let running = self.in_flight.get(header.sequence)?;
        let ours = running.fingerprint;
        let state = step.and_then(|step| running.steps.get(step as usize));
        let bytes = state.map(|state| state.bytes as u64);
        let same_call = ours.agrees_with(&header.fingerprint);
        if same_call && bytes == Some(header.message_bytes) {
            return step;
        }
        // For the same call with messages of different lengths, the error names those lengths.
        let one =
            Side { rank: self.rank, fingerprint: ours, message_bytes: bytes.filter(|_| same_call) };
        let other = Side {
            rank: peer,
            fingerprint: header.fingerprint,
            message_bytes: Some(header.message_bytes).filter(|_| same_call),
        };
        self.fail(Abort::Mismatch { sequence: header.sequence, one, other });
        None
    }

    /// A frame came for an operation that is not in flight: compares it with those that ended here.
    fn check_finished(&mut self, peer: Rank, header: &Header) {
        let Some(ours) = self.in_flight.finished(header.sequence) else { return };
        if !ours.agrees_with(&header.fingerprint) {
            let one = Side { rank: self.rank, fingerprint: ours, message_bytes: None };
            let other = Side { rank: peer, fingerprint: header.fingerprint, message_bytes: None };
            self.fail(Abort::Mismatch { sequence: header.sequence, one, other });
        }
    }

    /// Breaks the group because `peer` sent what the protocol does not allow.
    pub(super) fn protocol_error(&mut self, peer: Rank, what: &str) {
        let why = format!("it broke the protocol: {what}");
        self.fail(Abort::Failed { rank: peer, why });
    }

    /// Where the payload of a `Data` frame goes.
    pub(super) fn data_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        let nothing = (PayloadTarget::Nothing, Destination::Discard);
        if self.is_to_come(header.sequence) {
            return (PayloadTarget::UnexpectedFrame, Destination::Borrowed);
        }
        if self.in_flight.get(header.sequence).is_none() {
            self.check_finished(peer, header);
            return nothing;
        }
        self.follow_to_schedule(peer, header);
        let Some(step) = self.receiving_step(peer, header) else { return nothing };
        let Some(running) = self.in_flight.get(header.sequence) else { return nothing };
        let state = running.steps[step as usize];
        let (offset, bytes) = (header.offset, u64::from(header.payload_bytes));
        let whole = state.bytes <= self.peers.eager_bytes(peer);
        let end = if whole { state.bytes } else { state.handed } as u64;
        let in_order = offset == state.finished as u64 && bytes <= end - offset.min(end);
        let complete = !whole || bytes == state.bytes as u64;
        let aligned = bytes.is_multiple_of(running.element_bytes() as u64);
        let waits = running.early.iter().any(|early| early.0 == step);
        if state.done || !in_order || !complete || !aligned || waits {
            self.protocol_error(peer, "a segment came twice, too early or in a wrong place");
            return nothing;
        }
        let sequence = header.sequence;
        if whole && !running.allowed(step).all {
            return (PayloadTarget::Early { sequence, step }, Destination::Borrowed);
        }
        let destination = match running.action(step) {
            _ if bytes == 0 => Destination::Discard,
            Action::Recv { .. } => {
                let (start, length) = (offset as usize, bytes as usize);
                let region = running.memory(step).slice(start..start + length);
                Destination::Into(region, running.stores(step))
            }
            _ => Destination::Borrowed,
        };
        (PayloadTarget::Step { sequence, step }, destination)
    }

    /// A `Data` frame is complete.
    pub(super) fn data_arrived(
        &mut self,
        peer: Rank,
        header: &Header,
        incoming: PayloadTarget,
        payload: &ArrivedPayload<'_>,
    ) {
        match incoming {
            PayloadTarget::Step { sequence, step } => {
                let Some(running) = self.in_flight.get_mut(sequence) else { return };
                if let Some(bytes) = payload.bytes() {
                    running.take_in(step, header.offset as usize, bytes);
                }
                if !payload.holds() {
                    return;
                }
                self.peers.note_wait(Some(peer), (running.progressed, self.now));
                running.progressed = self.now;
                running.progress(step, header.payload_bytes as usize, &mut self.work);
                self.finish_if_done(sequence);
            }
            PayloadTarget::Early { sequence, step } => {
                let Some(running) = self.in_flight.get_mut(sequence) else { return };
                let bytes = kernels::copied(bytes_of(payload));
                if !payload.holds() {
                    return;
                }
                running.early.push((step, bytes));
                // The steps before it may have ended while the payload was on its way.
                self.list(sequence, step);
            }
            PayloadTarget::UnexpectedFrame => self.keep_unexpected(peer, header, payload),
            _ => {}
        }
    }

    /// Keeps a frame of an operation that is not issued here yet.
    fn keep_unexpected(&mut self, peer: Rank, header: &Header, payload: &ArrivedPayload<'_>) {
        let kept = kernels::copied(bytes_of(payload));
        if !payload.holds() {
            return;
        }
        let payload = kept;
        let is_to_come = self.is_to_come(header.sequence);
        let state = self.peers.of(peer);
        state.received_ahead_bytes += payload.len() + FRAME_COST_BYTES;
        if state.received_ahead_bytes > 2 * WINDOW_BYTES {
            self.protocol_error(peer, "it sent too much ahead of the operations issued here");
            return;
        }
        let kept_bytes = payload.len() + FRAME_COST_BYTES;
        let frame = UnexpectedFrame { peer, header: *header, payload };
        if !is_to_come {
            // The operation was issued while the payload was on its way.
            state.received_ahead_bytes -= kept_bytes;
            self.early_arrived(frame);
        } else {
            self.unexpected.keep(frame);
        }
    }

    /// The receiver allows a large message, or more of it.
    pub(super) fn ready_arrived(&mut self, peer: Rank, header: &Header) {
        if self.is_to_come(header.sequence) {
            self.keep_unexpected(peer, header, &ArrivedPayload::Discarded);
            return;
        }
        let Some(running) = self.in_flight.get(header.sequence) else {
            self.check_finished(peer, header);
            return;
        };
        let analysis = running.analysis.clone();
        self.follow_to_schedule(peer, header);
        let step = analysis.send_step(peer, header.message);
        let Some(step) = self.agreed(peer, header, step) else { return };
        let Some(running) = self.in_flight.get_mut(header.sequence) else { return };
        let state = running.step(step);
        // `agreed` has compared the lengths, so that the offset fits if it does not exceed them.
        let permitted = header.offset.min(header.message_bytes) as usize;
        state.permitted = state.permitted.max(permitted);
        self.peers.note_wait(Some(peer), (running.progressed, self.now));
        running.progressed = self.now;
        self.list(header.sequence, step);
    }

    /// A segment has left: its memory may be overwritten.
    pub(super) fn data_sent(&mut self, peer: Rank, header: &Header) {
        let Some(running) = self.in_flight.get_mut(header.sequence) else { return };
        let Some(step) = running.analysis.send_step(peer, header.message) else { return };
        running.progressed = self.now;
        running.progress(step, header.payload_bytes as usize, &mut self.work);
        self.list(header.sequence, step);
        self.finish_if_done(header.sequence);
    }
}

/// Bytes of the segment at `start` of a step of `bytes` bytes, if its predecessors allow it.
/// Segments end at multiples of [`SEGMENT_BYTES`], and so between elements, and at the end of the
/// message.
fn next_segment(start: usize, bytes: usize, allowed: Allowance) -> Option<usize> {
    if bytes == 0 {
        return allowed.all.then_some(0);
    }
    let end = bytes.min(start + SEGMENT_BYTES);
    (start < end && end <= allowed.bytes).then(|| end - start)
}
