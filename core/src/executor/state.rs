//! The state machines of one rank: of its operations, its peers and its messages. Reacts to frames
//! as the transport's [`Sink`]; borrows the transport itself only to send.

use std::collections::VecDeque;
use std::sync::Arc;

use super::analysis::Analyses;
use super::broken_group::{
    BrokenGroup, Cause, DeferredFailure, GroupIdentity, HeardAbort, Suspicion,
};
use super::deferral::DEFERRED;
use super::finished_operation::FinishedOperation;
use super::in_flight::InFlight;
use super::liveness_check::LivenessCheck;
use super::peers::{PayloadTarget, Peers};
use super::pending_messages::PointToPoint;
use super::running_operation::{RunningOperation, StepState};
use super::scratch::ScratchPool;
use super::slot_exchange::SlotExchange;
use super::stores_choice::StoresChoice;
use super::unexpected_frames::UnexpectedFrames;
use super::windows::Windows;
use crate::clock::Instant;
use crate::completion::Completion;
use crate::transport::{ArrivedPayload, Destination, LossReason, Payload, Rank, Sink, Transport};
use crate::wire::abort::Abort;
use crate::wire::frame::{Fingerprint, Header, Kind};

/// Everything in an executor except the transport.
pub(super) struct State {
    pub(super) group: GroupIdentity,
    pub(super) rank: Rank,
    pub(super) size: u32,
    /// The time at the last call.
    pub(super) now: Instant,
    /// The highest operation that was issued here.
    pub(super) issued: u64,
    /// The operation whose part this rank has shown on the board, but which is not submitted yet.
    pub(super) tried: Option<u64>,
    pub(super) peers: Peers,
    pub(super) in_flight: InFlight,
    /// An operation, and the ranks that are known not to have joined it.
    pub(super) elsewhere: Option<(u64, Vec<Rank>)>,
    /// Which ranks hold up the oldest operation, as far as they have answered.
    pub(super) liveness: LivenessCheck,
    /// Frames of operations that were not issued yet.
    pub(super) unexpected: UnexpectedFrames,
    pub(super) analyses: Analyses,
    pub(super) scratch: ScratchPool,
    /// Memory of operations that are over, for later ones.
    pub(super) spare_steps: Vec<Vec<StepState>>,
    /// Steps that may be able to move: sequence number, step.
    pub(super) work: VecDeque<(u64, u32)>,
    /// Frames without payload, to be sent when the transport can be borrowed.
    pub(super) replies: VecDeque<(Rank, Header)>,
    /// Whether the fast path has sent frames, of which the transport has to tell.
    pub(super) has_woken: bool,
    /// The last calls of [`Executor::advance`](super::Executor::advance) that left frames where
    /// they are.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    pub(super) without_frames: u32,
    /// How many peers wait to be told that an operation was issued.
    pub(super) wanting_issued: usize,
    pub(super) messages: PointToPoint,
    pub(super) windows: Windows,
    /// How many ranks, this one included, share this rank's cache.
    pub(super) ranks_in_a_cache: usize,
    /// How results are stored.
    pub(super) stores: StoresChoice,
    /// The board for small operations, if all ranks share one. Boxed for the reason of `heard`.
    pub(super) exchange: Option<Box<SlotExchange>>,
    /// No deadline of an operation or message is earlier.
    pub(super) earliest: Option<Instant>,
    pub(super) suspicion: Option<Suspicion>,
    /// Why another rank broke the group, until what had arrived before is done with. Boxed as the
    /// next: they are rare, and thousands of ranks in one process have this state each.
    pub(super) heard: Option<Box<HeardAbort>>,
    /// Why the group must be broken as soon as the transport can be borrowed.
    pub(super) cause: Option<Cause>,
    /// Why it must be broken once the operations before have ended.
    pub(super) deferred: Option<Box<DeferredFailure>>,
    /// The first collective that this rank does not run to its end, as it told others when that was
    /// deferred.
    pub(super) promised: Option<u64>,
    pub(super) broken: Option<Box<BrokenGroup>>,
    /// What ends first when the group fails, unless by this rank's own will.
    pub(super) told_first: Option<Arc<Completion>>,
    /// How many peers said goodbye.
    pub(super) departed: usize,
    pub(super) finished: Vec<FinishedOperation>,
    /// Memory for [`Peer::note_issued`].
    released: Vec<(u64, u32)>,
}

impl State {
    pub(super) fn new(group: GroupIdentity, rank: Rank, size: u32, now: Instant) -> State {
        State {
            group,
            rank,
            size,
            now,
            issued: 0,
            tried: None,
            peers: Peers::default(),
            in_flight: InFlight::default(),
            elsewhere: None,
            liveness: LivenessCheck::default(),
            unexpected: UnexpectedFrames::default(),
            analyses: Analyses::default(),
            scratch: ScratchPool::default(),
            spare_steps: Vec::new(),
            work: VecDeque::new(),
            replies: VecDeque::new(),
            has_woken: false,
            #[cfg(all(feature = "tcp", target_os = "linux"))]
            without_frames: 0,
            wanting_issued: 0,
            messages: PointToPoint::new(),
            windows: Windows::default(),
            ranks_in_a_cache: 1,
            stores: StoresChoice::default(),
            exchange: None,
            earliest: None,
            suspicion: None,
            heard: None,
            cause: None,
            deferred: None,
            promised: None,
            broken: None,
            told_first: None,
            departed: 0,
            finished: Vec::new(),
            released: Vec::new(),
        }
    }

    /// A header of this rank.
    pub(super) fn header(&self, kind: Kind, sequence: u64) -> Header {
        Header {
            kind,
            generation: self.group.generation,
            sequence,
            message: 0,
            offset: 0,
            message_bytes: 0,
            payload_bytes: 0,
            issued: self.issued,
            fingerprint: Fingerprint::default(),
        }
    }

    /// Sends the replies that callbacks left and moves the listed steps; true if there was anything
    /// to do.
    pub(super) fn run(&mut self, transport: &mut dyn Transport) -> bool {
        let moved = self.look_at_board();
        let has_messages = self.messages.has_work() || self.windows.has_work();
        if self.replies.is_empty() && self.work.is_empty() && !has_messages {
            return moved;
        }
        self.send_replies(transport);
        // Steps that list themselves again (the next segment of a copy) wait for the next call, so
        // that the transport moves in between.
        for _ in 0..self.work.len() {
            let Some((sequence, step)) = self.work.pop_front() else { break };
            self.look_at(transport, sequence, step);
            if self.cause.is_some() {
                return true;
            }
        }
        self.send_messages(transport);
        if self.windows.has_work() {
            self.send_accesses(transport);
        }
        self.send_replies(transport);
        true
    }

    pub(super) fn send_replies(&mut self, transport: &mut dyn Transport) {
        while let Some((peer, mut header)) = self.replies.pop_front() {
            header.issued = self.issued;
            let payload = match header.kind {
                Kind::Report => self.report(&mut header),
                Kind::Abort => self.reason(&mut header),
                _ => Payload::Empty,
            };
            self.send_frame(transport, peer, header, payload);
        }
    }

    /// Hands a frame to the transport.
    pub(super) fn send_frame(
        &mut self,
        transport: &mut dyn Transport,
        peer: Rank,
        header: Header,
        payload: Payload,
    ) {
        self.peers.of(peer).was_reached = true;
        transport.send(peer, header, payload);
    }

    /// Lists a step, if it is not listed yet.
    pub(super) fn list(&mut self, sequence: u64, step: u32) {
        if let Some(running) = self.in_flight.get_mut(sequence) {
            let state = running.step(step);
            if !state.listed && !state.done {
                state.listed = true;
                self.work.push_back((sequence, step));
            }
        }
    }

    /// Lowers the earliest deadline.
    pub(super) fn note_deadline(&mut self, deadline: Instant) {
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
    }

    /// The peer has issued operations up to `issued`.
    fn note_issued(&mut self, peer: Rank, issued: u64) {
        let mut released = std::mem::take(&mut self.released);
        let held = self.peers.of(peer).note_issued(issued, &mut released);
        for (sequence, step) in released.drain(..) {
            if let Some(running) = self.in_flight.get_mut(sequence) {
                running.step(step).held = false;
            }
            self.list(sequence, step);
        }
        self.released = released;
        if let Some(sequence) = held {
            self.replies.push_back((peer, self.header(Kind::Held, sequence)));
        }
    }

    /// The peer holds frames of operation `sequence` until it is issued here.
    fn note_held(&mut self, peer: Rank, sequence: u64) {
        if sequence <= self.issued {
            self.replies.push_back((peer, self.header(Kind::Issued, self.issued)));
            return;
        }
        let wants = &mut self.peers.of(peer).wants_issued;
        if wants.is_none() {
            self.wanting_issued += 1;
        }
        *wants = Some(wants.map_or(sequence, |known| known.min(sequence)));
    }

    /// Tells the peers that wait for it which operations this rank has issued.
    pub(super) fn tell_issued(&mut self) {
        if self.wanting_issued == 0 {
            return;
        }
        let header = self.header(Kind::Issued, self.issued);
        for (peer, state) in self.peers.iter_mut() {
            if state.wants_issued.is_some_and(|sequence| sequence <= self.issued) {
                state.wants_issued = None;
                self.wanting_issued -= 1;
                self.replies.push_back((peer, header));
            }
        }
    }

    /// Ends an operation whose steps are all done.
    pub(super) fn finish_if_done(&mut self, sequence: u64) {
        if self.in_flight.get(sequence).is_some_and(|running| running.remaining == 0)
            && let Some(running) = self.in_flight.take(sequence)
        {
            self.finish(running);
        }
    }

    /// Chooses how operation `sequence` stores its result: when it is known whether it runs its
    /// schedule, before it stores anything.
    pub(super) fn choose_stores(&mut self, sequence: u64) {
        let is_alone = self.in_flight.len() == 1;
        let Some(running) = self.in_flight.get_mut(sequence) else { return };
        let class = running.stores_class(self.ranks_in_a_cache);
        let (stores, is_measured) = self.stores.choose(class, is_alone);
        running.result_stores = stores;
        running.stores_chosen = is_measured.then(Instant::now);
    }

    fn finish(&mut self, running: RunningOperation) {
        self.note_duration(&running);
        if let Some(chosen) = running.stores_chosen {
            let class = running.stores_class(self.ranks_in_a_cache);
            self.stores.note(class, running.result_stores, chosen.elapsed());
        }
        let sequence = running.sequence;
        let released = running.release(&mut self.scratch);
        if let Some(finish) = released.finish {
            finish();
        }
        self.give_input(sequence + 1);
        self.finished.push(FinishedOperation::new(released.completion, Ok(())));
        if self.spare_steps.len() < 64 {
            self.spare_steps.push(released.steps);
        }
    }

    /// Bytes of memory that stay when no operation is in flight.
    pub(super) fn memory_bytes(&self) -> usize {
        let spare: usize = self.spare_steps.iter().map(Vec::capacity).sum();
        self.peers.memory_bytes()
            + self.analyses.memory_bytes()
            + self.scratch.memory_bytes()
            + spare * size_of::<StepState>()
            + self.work.capacity() * size_of::<(u64, u32)>()
            + self.replies.capacity() * size_of::<(Rank, Header)>()
    }

    /// Whether operation `sequence` is still to be submitted here: its frames have to wait.
    pub(super) fn is_to_come(&self, sequence: u64) -> bool {
        sequence > self.issued || self.tried == Some(sequence)
    }

    /// The last operation after which this rank no longer reads the board, by its own numbers.
    pub(super) fn done_with_board(&self) -> u64 {
        self.tried.map_or(self.issued, |tried| tried - 1)
    }

    /// Whether the group is broken or about to be: only aborts matter any more.
    pub(super) fn is_failing(&self) -> bool {
        self.cause.is_some() || self.broken.is_some()
    }
}

impl Sink for State {
    /// A frame of an operation that this rank has not issued is left in the transport, which saves
    /// a copy, unless something in flight, or a window, may need the frames after it.
    fn wants(&mut self, _: Rank, header: &Header) -> bool {
        let is_ahead = matches!(header.kind, Kind::Data | Kind::Ready)
            && self.is_to_come(header.sequence)
            && header.generation == self.group.generation;
        !is_ahead || self.is_busy() || self.is_failing() || self.windows.is_open()
    }

    fn announced(&mut self, peer: Rank, header: &Header) -> Destination {
        let state = self.peers.of(peer);
        state.was_reached = true;
        state.incoming = PayloadTarget::Nothing;
        if header.generation != self.group.generation {
            return Destination::Discard;
        }
        if header.kind == Kind::Abort {
            state.incoming = PayloadTarget::Abort;
            return Destination::Borrowed;
        }
        if self.is_failing() {
            return Destination::Discard;
        }
        if header.issued > self.peers.of(peer).issued() {
            self.note_issued(peer, header.issued);
        }
        let (incoming, destination) = match header.kind {
            Kind::Data => self.data_announced(peer, header),
            Kind::Message => self.message_announced(peer, header),
            Kind::Offer => self.offer_announced(peer, header),
            Kind::Report => self.report_announced(peer, header),
            Kind::Access => self.access_announced(peer, header),
            Kind::AccessReply => self.access_reply_announced(peer, header),
            _ => (PayloadTarget::Nothing, Destination::Discard),
        };
        self.peers.of(peer).incoming = incoming;
        destination
    }

    fn arrived(&mut self, peer: Rank, header: &Header, payload: ArrivedPayload<'_>) {
        let incoming = std::mem::take(&mut self.peers.of(peer).incoming);
        if header.generation != self.group.generation {
            return;
        }
        if incoming == PayloadTarget::Abort {
            self.abort_arrived(peer, header, &payload);
            return;
        }
        if self.is_failing() {
            return;
        }
        match header.kind {
            Kind::Data => self.data_arrived(peer, header, incoming, &payload),
            Kind::Ready => self.ready_arrived(peer, header),
            Kind::Held => self.note_held(peer, header.sequence),
            Kind::Message | Kind::Offer => self.message_arrived(peer, header, incoming, &payload),
            Kind::Accept => self.accept_arrived(peer, header),
            Kind::Inquiry => {
                self.replies.push_back((peer, self.header(Kind::Report, header.sequence)));
            }
            Kind::Report => self.report_arrived(peer, header, bytes_of(&payload)),
            Kind::Access => self.access_arrived(peer, header, incoming, &payload),
            Kind::AccessReply if incoming == PayloadTarget::AccessReply => {
                self.access_reply_arrived(peer, header);
            }
            Kind::Signal => self.signal_arrived(peer, header),
            // The number in `Issued` is in every header.
            Kind::Issued | Kind::Goodbye | Kind::Abort | Kind::AccessReply => {}
        }
    }

    fn sent(&mut self, peer: Rank, header: &Header) {
        match header.kind {
            Kind::Abort => self.peers.of(peer).abort_sent = true,
            _ if self.is_failing() || header.generation != self.group.generation => {}
            Kind::Data => self.data_sent(peer, header),
            Kind::Message | Kind::Offer => self.message_sent(header),
            Kind::AccessReply => self.access_reply_sent(peer, header),
            Kind::Signal => self.signal_sent(peer),
            _ => {}
        }
    }

    fn lost(&mut self, peer: Rank, why: LossReason) {
        self.peer_lost(peer, why);
    }

    fn process_ended(&mut self, peer: Rank, all_arrived: bool) {
        self.suspect_ended(peer, all_arrived);
    }

    fn ended_in_silence(&mut self, peer: Rank) {
        self.suspect_silent(peer);
    }
}

/// The bytes of a payload that was not put in place.
pub(super) fn bytes_of<'a>(payload: &'a ArrivedPayload<'_>) -> &'a [u8] {
    payload.bytes().unwrap_or_default()
}

impl State {
    /// The payload of an abort. Fills in the lengths of `header`.
    fn reason(&self, header: &mut Header) -> Payload {
        let Some(broken) = &self.broken else { return Payload::Empty };
        let payload = broken.abort.encode();
        header.payload_bytes = payload.len() as u32;
        header.message_bytes = payload.len() as u64;
        Payload::Owned(payload)
    }

    fn abort_arrived(&mut self, peer: Rank, header: &Header, payload: &ArrivedPayload<'_>) {
        let abort = Abort::decode(bytes_of(payload)).unwrap_or_else(|| Abort::User {
            rank: peer,
            why: "for a reason that this version does not know".to_owned(),
        });
        let state = self.peers.of(peer);
        // Its goodbye follows. What needs nothing more of it may end well.
        if matches!(abort, Abort::Left { rank, sequence: 0, retired: true } if rank == peer) {
            state.retired = true;
            return;
        }
        state.abort_received = true;
        state.has_broken_group |= header.message != DEFERRED;
        // A peer that breaks the group, too, waits until it has received this rank's abort.
        if self.broken.is_some() && !std::mem::replace(&mut state.abort_given, true) {
            let gives_up = self.broken.as_ref().map_or(0, |broken| broken.gives_up);
            self.replies.push_back((peer, self.header(Kind::Abort, gives_up)));
        }
        self.hear(abort, (header.sequence > 0).then_some(header.sequence));
    }
}
