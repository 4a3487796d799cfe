//! Windows: memory of this rank that others access, accesses of this rank to theirs, signals and
//! fences. Knows frames and memory; nothing of who asks, nor of memory that ranks share.
//!
//! An access goes in segments, each of which the target answers, in order. So the origin knows when
//! its access is done, what was read, and how much is under way: the target keeps nothing but
//! answers that have not left, and those are limited by what the origin may have under way. Signals
//! and fences stand in the same queue, so that they come after all that was issued before them.

mod closing;
mod origin;
mod perform;
mod target;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use super::advance::Executor;
use super::limits::SEGMENT_BYTES;
use super::pending_messages::{AbandonedMessage, MessageEnd};
use super::state::State;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::sorted::LargeSortedMap;
use crate::tensor::{Region, SharedBytes};
use crate::transport::{Payload, Rank};
use crate::wire::frame::Header;

pub use self::closing::{GoneRanks, GoneReason, closed_by};
pub use self::perform::AccessTarget;
pub use self::waiting::{Fence, Flush};

/// Most signals to one peer that the transport has and that have not left: the rest waits, and so
/// do those who signal.
pub(super) const MAX_UNSENT_SIGNALS: usize = 256;

/// Most bytes of accesses, with headers, that are under way to one peer.
const ACCESS_WINDOW_BYTES: usize = 8 * SEGMENT_BYTES;

/// What an access does.
#[derive(Clone, Debug)]
pub enum AccessAction {
    /// Writes the memory to the window.
    Put,
    /// Reads the memory from the window.
    Get,
    /// Reduces the memory into the window.
    Accumulate(ReduceOp),
    /// The same; what was there before goes to this memory.
    FetchAndUpdate(ReduceOp, Region),
    /// Writes the memory where what is there is as the first of these; what was there goes to the
    /// second.
    CompareAndSwap(Region, Region),
}

/// One access to the memory of a window at a rank.
pub struct WindowAccess {
    /// What it does.
    pub action: AccessAction,
    /// The window.
    pub window: u32,
    /// The rank whose memory it is, this one included.
    pub peer: Rank,
    /// The element type, which the target compares with that of its memory.
    pub dtype: DType,
    /// Where it begins in the target's memory, bytes.
    pub offset: usize,
    /// The memory of this rank.
    pub memory: Region,
}

/// A call on a window.
pub enum WindowOperation {
    /// An access to memory.
    Access(WindowAccess),
    /// A signal to a rank.
    Signal {
        /// The window.
        window: u32,
        /// The rank.
        peer: Rank,
    },
    /// The wait for a signal of a rank.
    WaitSignal {
        /// The window.
        window: u32,
        /// The rank.
        peer: Rank,
    },
    /// All that was issued before.
    Flush(Flush),
    /// A fence of all ranks.
    Fence(Fence),
}

/// Memory that others access.
pub struct ExposedMemory {
    /// The element type.
    pub dtype: DType,
    /// Where frames put it.
    pub region: Region,
    /// The same memory, for what is updated in place.
    pub shared: SharedBytes,
}

/// One window at this rank.
#[derive(Default)]
struct OpenWindow {
    exposed: Option<ExposedMemory>,
    /// Fences that this rank has begun.
    fences: u64,
    /// Who takes no part any more.
    gone: Arc<GoneRanks>,
    /// Whether it ends when no call waits on it.
    is_closing: bool,
}

/// What stands in the queue of a peer.
enum Queued {
    Access(PendingAccess),
    /// A signal, done when it is handed over, or the beginning of a fence.
    Signal {
        window: u32,
        number: u64,
        kind: SignalKind,
        ending: Option<MessageEnd>,
    },
}

/// What a signal says, by the number in its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignalKind {
    /// It is one that somebody waits for.
    Signal = 0,
    /// The rank has begun a fence.
    Fence = 1,
    /// The rank has begun the fence at whose end it gives its memory up.
    Closing = 2,
    /// The rank has closed the window.
    Closed = 3,
}

/// An access that has not ended.
struct PendingAccess {
    number: u64,
    access: WindowAccess,
    /// Bytes of its memory of which requests were handed over.
    handed: usize,
    /// Bytes of which the target has said that they are done.
    done: usize,
    /// Whether the target has refused a part of it.
    refused: bool,
    ending: MessageEnd,
}

/// What is under way to a peer, and what waits.
#[derive(Default)]
struct PeerAccesses {
    /// Not handed over completely.
    queued: VecDeque<Queued>,
    /// Handed over; the first is answered next.
    unanswered: VecDeque<PendingAccess>,
    bytes_under_way: usize,
    /// Signals that the transport has and that have not left.
    unsent_signals: usize,
    /// Bytes of answers to the peer that have not left.
    answering: usize,
    /// Signals of the peer that nobody has waited for, by window.
    signals: LargeSortedMap<u32, u64>,
    /// Fences that the peer has begun, by window.
    fences: LargeSortedMap<u32, u64>,
    /// Which of them give memory up, of those that have not ended here.
    closing: LargeSortedMap<u32, Vec<u64>>,
}

/// All windows of a group at this rank.
#[derive(Default)]
pub(super) struct Windows {
    open: LargeSortedMap<u32, OpenWindow>,
    peers: LargeSortedMap<Rank, PeerAccesses>,
    waiting: Vec<waiting::Waiting>,
    /// How many of the open ones are to be closed.
    closing: usize,
    /// Answers to be sent.
    answers: VecDeque<(Rank, Header, Payload)>,
    /// The number of the last access.
    last_number: u64,
    /// Whether something can be handed over.
    sendable: bool,
}

impl AccessAction {
    /// The method, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            AccessAction::Put => "put",
            AccessAction::Get => "get",
            AccessAction::Accumulate(_) => "accumulate",
            AccessAction::FetchAndUpdate(..) => "fetch_and_add",
            AccessAction::CompareAndSwap(..) => "compare_and_swap",
        }
    }

    /// Its number in frames.
    fn code(&self) -> u8 {
        match self {
            AccessAction::Put => code::PUT,
            AccessAction::Get => code::GET,
            AccessAction::Accumulate(_) => code::ACCUMULATE,
            AccessAction::FetchAndUpdate(..) => code::FETCH,
            AccessAction::CompareAndSwap(..) => code::SWAP,
        }
    }

    /// Where what was read goes, if that is not the memory of the access.
    pub fn result(&self) -> Option<&Region> {
        match self {
            AccessAction::FetchAndUpdate(_, result) | AccessAction::CompareAndSwap(_, result) => {
                Some(result)
            }
            _ => None,
        }
    }
}

/// The numbers of what accesses do.
mod code {
    pub(super) const PUT: u8 = 1;
    pub(super) const GET: u8 = 2;
    pub(super) const ACCUMULATE: u8 = 3;
    pub(super) const FETCH: u8 = 4;
    pub(super) const SWAP: u8 = 5;
}

impl Windows {
    /// Whether others may access memory of this rank at any time.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether there is something to hand to the transport.
    pub(super) fn has_work(&self) -> bool {
        self.sendable || !self.answers.is_empty()
    }

    /// Whether nothing of this rank is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.peers.values().all(PeerAccesses::is_idle)
    }

    /// How many calls of this rank have not ended.
    pub(super) fn count(&self) -> usize {
        let under_way = |peer: &PeerAccesses| peer.queued.len() + peer.unanswered.len();
        self.waiting.len() + self.peers.values().map(under_way).sum::<usize>()
    }

    /// Whether something needs `peer`.
    pub(super) fn needs(&self, peer: Rank) -> bool {
        self.peers.get(&peer).is_some_and(|it| !it.is_idle()) || self.await_peer(peer)
    }

    /// All that has not ended, with its name, its number, and the rank that it waits for.
    pub(super) fn endings(
        &self,
    ) -> impl Iterator<Item = (&'static str, u64, Option<Rank>, &MessageEnd)> {
        let accesses = self.peers.iter().flat_map(|(peer, it)| {
            let queued = it.queued.iter().filter_map(Queued::ending);
            let unanswered = it.unanswered.iter().map(PendingAccess::ending);
            queued
                .chain(unanswered)
                .map(|(name, number, ending)| (name, number, Some(*peer), ending))
        });
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|it| (it.name(), it.number, self.late_peer(it), &it.ending));
        accesses.chain(waiting)
    }

    /// Takes all that has to end, because the group breaks, without its memory. Nobody accesses
    /// memory of this rank by frames any more.
    pub(super) fn take_all(&mut self) -> Vec<AbandonedMessage> {
        let mut all = Vec::new();
        for peer in self.peers.values_mut() {
            for queued in peer.queued.drain(..) {
                let (name, number, ending) = match queued {
                    Queued::Access(it) => (it.access.action.name(), it.number, Some(it.ending)),
                    Queued::Signal { number, ending, .. } => ("signal", number, ending),
                };
                all.extend(ending.map(|ending| AbandonedMessage { name, number, ending }));
            }
            all.extend(peer.unanswered.drain(..).map(|it| {
                let name = it.access.action.name();
                AbandonedMessage { name, number: it.number, ending: it.ending }
            }));
        }
        all.extend(self.waiting.drain(..).map(|it| {
            let name = it.name();
            AbandonedMessage { name, number: it.number, ending: it.ending }
        }));
        self.peers = LargeSortedMap::new();
        self.answers.clear();
        self.open = LargeSortedMap::new();
        self.closing = 0;
        self.sendable = false;
        all
    }

    /// The next number.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn peer(&mut self, peer: Rank) -> &mut PeerAccesses {
        self.peers.entry(peer).or_default()
    }
}

impl PeerAccesses {
    fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.unanswered.is_empty()
    }

    /// The number of the oldest that has not ended.
    fn oldest(&self) -> Option<u64> {
        let queued = self.queued.front().map(|queued| match queued {
            Queued::Access(access) => access.number,
            Queued::Signal { number, .. } => *number,
        });
        self.unanswered.front().map(|access| access.number).or(queued)
    }
}

impl Queued {
    fn ending(&self) -> Option<(&'static str, u64, &MessageEnd)> {
        match self {
            Queued::Access(access) => Some(access.ending()),
            Queued::Signal { number, ending, .. } => {
                ending.as_ref().map(|ending| ("signal", *number, ending))
            }
        }
    }
}

impl PendingAccess {
    fn ending(&self) -> (&'static str, u64, &MessageEnd) {
        (self.access.action.name(), self.number, &self.ending)
    }
}

impl State {
    /// Starts a call on a window.
    pub(super) fn start_on_window(&mut self, operation: WindowOperation, call: WindowCall) {
        match operation {
            WindowOperation::Access(access) => self.start_access(access, call),
            WindowOperation::Signal { window, peer } => self.start_signal(window, peer, call),
            WindowOperation::WaitSignal { window, peer } => {
                self.wait_for_signal(window, peer, call);
            }
            WindowOperation::Flush(flush) => self.start_flush(flush, call),
            WindowOperation::Fence(fence) => self.start_fence(fence, call),
        }
    }
}

impl Executor {
    /// Opens a window, whose signals count from now on; `gone` is kept up to date.
    pub fn open_window(&mut self, window: u32, gone: Arc<GoneRanks>, now: Instant) {
        self.change_windows(now, |state| state.open_window(window, gone));
    }

    /// Closes a window, on which nobody here makes a call any more; the others are told.
    pub fn close_window(&mut self, window: u32, now: Instant) {
        self.change_windows(now, |state| state.close_window(window));
    }

    /// Lets others access `memory`, or nothing any more.
    pub fn expose(&mut self, window: u32, memory: Option<ExposedMemory>, now: Instant) {
        self.change_windows(now, |state| state.expose(window, memory));
    }

    /// Starts a call on a window.
    pub fn start_on_window(&mut self, operation: WindowOperation, call: WindowCall, now: Instant) {
        self.change_windows(now, |state| state.start_on_window(operation, call));
    }
}

/// When and how a call on a window ends.
pub struct WindowCall {
    /// When it must be done.
    pub deadline: Instant,
    /// What is left to do on this rank at the end.
    pub finish: Option<Outcome>,
    /// Notified of the end.
    pub completion: Arc<Completion>,
}
