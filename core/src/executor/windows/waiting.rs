//! Calls that wait for what others do, or for what this rank has issued: signals, fences, flushes.
//! Knows no memory.

use super::super::pending_messages::MessageEnd;
use super::super::state::State;
use super::{Queued, SignalKind, WindowCall, Windows, closed_by};
use crate::completion::error_of;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Header;

/// A fence of all ranks: what was issued before it is done when it ends, at every rank.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    /// The window.
    pub window: u32,
    /// The method, for messages.
    pub name: &'static str,
    /// Whether the memory of this rank is given up at its end.
    pub closes: bool,
}

/// The end of what this rank has issued.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// The rank to which; all of them if it is none.
    pub peer: Option<Rank>,
}

/// A call that waits.
pub(super) struct Waiting {
    pub(super) number: u64,
    what: Awaited,
    pub(super) ending: MessageEnd,
}

enum Awaited {
    /// A signal of a rank.
    Signal { window: u32, peer: Rank },
    /// All that was issued before.
    Flush(Flush),
    /// The same, and that all others have begun as many fences of the window. A rank begins a
    /// fence, and tells so, when all that it has issued before is done.
    Fence { fence: Fence, count: u64, has_begun: bool },
}

/// The most fences that give memory up of which a rank may be ahead of another.
const MAX_CLOSING_AHEAD: usize = 1 << 16;

impl Waiting {
    pub(super) fn name(&self) -> &'static str {
        match &self.what {
            Awaited::Signal { .. } => "wait_signal",
            Awaited::Flush(_) => "flush",
            Awaited::Fence { fence, .. } => fence.name,
        }
    }

    /// The window on which it waits, if it is one.
    pub(super) fn window(&self) -> Option<u32> {
        match self.what {
            Awaited::Signal { window, .. } => Some(window),
            Awaited::Flush(_) => None,
            Awaited::Fence { fence, .. } => Some(fence.window),
        }
    }
}

impl State {
    /// Waits for a signal of `peer`, and takes it.
    pub(in super::super) fn wait_for_signal(&mut self, window: u32, peer: Rank, call: WindowCall) {
        self.wait_for(call, "wait_signal", |_| Awaited::Signal { window, peer });
    }

    /// Waits until what was issued is done.
    pub(in super::super) fn start_flush(&mut self, flush: Flush, call: WindowCall) {
        self.wait_for(call, "flush", |_| Awaited::Flush(flush));
    }

    /// Begins a fence.
    pub(in super::super) fn start_fence(&mut self, fence: Fence, call: WindowCall) {
        self.wait_for(call, fence.name, |windows| {
            let count = windows.open.entry(fence.window).or_default().next_fence();
            Awaited::Fence { fence, count, has_begun: false }
        });
    }

    /// Tells the others that this rank has begun a fence.
    fn announce(&mut self, fence: Fence, number: u64) {
        let kind = if fence.closes { SignalKind::Closing } else { SignalKind::Fence };
        for peer in (0..self.size).filter(|&peer| peer != self.rank) {
            let frame = Queued::Signal { window: fence.window, number, kind, ending: None };
            self.windows.peer(peer).queued.push_back(frame);
            self.windows.sendable = true;
        }
    }

    fn wait_for(
        &mut self,
        call: WindowCall,
        name: &str,
        what: impl FnOnce(&mut Windows) -> Awaited,
    ) {
        let Some(call) = self.admit_window_call(name, call) else { return };
        let number = self.windows.number();
        let what = what(&mut self.windows);
        let ending = self.ending(call.deadline, call.finish, call.completion);
        self.windows.waiting.push(Waiting { number, what, ending });
        self.check_window_waits();
        self.check_departed_if_any();
    }

    /// Ends the calls for which no signal has come by their deadline. Nothing was sent for them, so
    /// that the group goes on; a signal that comes later is for another call.
    pub(in super::super) fn end_late_signals(&mut self) {
        let now = self.now;
        let is_late = |it: &mut Waiting| {
            matches!(it.what, Awaited::Signal { .. }) && it.ending.deadline <= now
        };
        let late: Vec<Waiting> = self.windows.waiting.extract_if(.., is_late).collect();
        for waiting in late {
            let (name, number) = (waiting.name(), waiting.number);
            let peer = self.windows.late_peer(&waiting);
            let late = self.past_deadline(name.to_owned(), number, peer, &waiting.ending);
            let error = error_of(&late, &self.group.name, name, number);
            waiting.ending.fail(error, &mut self.finished);
        }
    }

    /// A signal, or a fence, of a peer has come.
    pub(in super::super) fn signal_arrived(&mut self, peer: Rank, header: &Header) {
        // This rank opens a window before any other can know of it.
        if !self.windows.open.contains_key(&header.message) {
            return;
        }
        if header.offset == SignalKind::Closed as u64 {
            self.closing_arrived(peer, header.message);
            return;
        }
        let from = self.windows.peer(peer);
        let is_signal = header.offset == SignalKind::Signal as u64;
        let counts = if is_signal { &mut from.signals } else { &mut from.fences };
        let count = counts.entry(header.message).or_default();
        *count += 1;
        if header.offset == SignalKind::Closing as u64 {
            let count = *count;
            let closing = from.closing.entry(header.message).or_default();
            closing.push(count);
            if closing.len() > MAX_CLOSING_AHEAD {
                let why = format!("rank {peer} deregistered too often ahead of the others");
                self.fail(Abort::User { rank: self.rank, why });
            }
        }
        self.check_window_waits();
    }

    /// Ends the calls for which nothing is missing any more, in the order in which they were made.
    pub(super) fn check_window_waits(&mut self) {
        let mut place = 0;
        while place < self.windows.waiting.len() {
            if let Some((fence, number)) = self.windows.begins_fence(place) {
                self.announce(fence, number);
            }
            if !self.windows.takes_place(place, (self.rank, self.size)) {
                if let Some(peer) = self.windows.closed_before(place, (self.rank, self.size)) {
                    let waiting = self.windows.waiting.remove(place);
                    let error = closed_by(waiting.name(), peer);
                    waiting.ending.fail(error, &mut self.finished);
                    continue;
                }
                place += 1;
                continue;
            }
            if let Some(why) = self.windows.disagreement(place) {
                // The group breaks, and with it what waits.
                self.fail(Abort::User { rank: self.rank, why });
                return;
            }
            let Waiting { what, ending, .. } = self.windows.waiting.remove(place);
            if let Awaited::Fence { fence: Fence { window, closes: true, .. }, .. } = what {
                self.expose(window, None);
            }
            ending.finish(&mut self.finished);
        }
        self.end_closing();
    }
}

impl Windows {
    /// The rank that has closed the window before it did what the call at this place waits for.
    fn closed_before(&self, place: usize, (rank, size): (Rank, u32)) -> Option<Rank> {
        match self.waiting[place].what {
            Awaited::Signal { window, peer } => self.is_closed_by(window, peer).then_some(peer),
            Awaited::Flush(_) => None,
            Awaited::Fence { fence: Fence { window, .. }, count, .. } => {
                let mut others = (0..size).filter(|&peer| peer != rank);
                others.find(|&peer| {
                    self.fences_of(peer, window) < count && self.is_closed_by(window, peer)
                })
            }
        }
    }

    /// The fence at this place, if all that was issued before it is done by now.
    fn begins_fence(&mut self, place: usize) -> Option<(Fence, u64)> {
        let number = self.waiting[place].number;
        let is_due = self.is_flushed(None, number);
        match &mut self.waiting[place].what {
            Awaited::Fence { fence, has_begun, .. } if is_due && !*has_begun => {
                *has_begun = true;
                Some((*fence, number))
            }
            _ => None,
        }
    }

    /// What is wrong if a peer's fence is of another kind than the one at this place, which has all
    /// that it waits for.
    fn disagreement(&mut self, place: usize) -> Option<String> {
        let Awaited::Fence { fence, count, .. } = self.waiting[place].what else { return None };
        for (peer, accesses) in self.peers.iter_mut() {
            let closing = accesses.closing.get_mut(&fence.window);
            let closes = closing.as_ref().is_some_and(|closing| closing.contains(&count));
            if closes != fence.closes && accesses.fences.contains_key(&fence.window) {
                let theirs = if closes { "tensor_deregister" } else { "fence" };
                let (ours, window) = (fence.name, fence.window);
                return Some(format!(
                    "it runs {ours} of window {window}, but rank {peer} runs {theirs}; all ranks \
                     must call the same"
                ));
            }
            if let Some(closing) = closing {
                closing.retain(|&other| other > count);
            }
        }
        None
    }

    /// Whether nothing is missing for the call at this place; if it is a signal, that is taken.
    fn takes_place(&mut self, place: usize, (rank, size): (Rank, u32)) -> bool {
        let Waiting { number, what, .. } = &self.waiting[place];
        match *what {
            Awaited::Signal { window, peer } => {
                let signals = self.peers.get_mut(&peer).and_then(|it| it.signals.get_mut(&window));
                let Some(signals) = signals.filter(|signals| **signals > 0) else { return false };
                *signals -= 1;
                true
            }
            Awaited::Flush(Flush { peer }) => self.is_flushed(peer, *number),
            Awaited::Fence { fence, count, has_begun } => {
                let mut others = (0..size).filter(|&peer| peer != rank);
                has_begun && others.all(|peer| self.fences_of(peer, fence.window) >= count)
            }
        }
    }

    /// Whether all to `peer`, or to all ranks, that was issued before `number` is done.
    fn is_flushed(&self, peer: Option<Rank>, number: u64) -> bool {
        let mut peers = self.peers.iter().filter(|(rank, _)| peer.is_none_or(|it| it == **rank));
        peers.all(|(_, peer)| peer.oldest().is_none_or(|oldest| oldest > number))
    }

    /// Whether a call waits for what only `peer` can do.
    pub(super) fn await_peer(&self, peer: Rank) -> bool {
        self.waiting.iter().any(|waiting| match waiting.what {
            Awaited::Signal { peer: from, .. } => from == peer,
            Awaited::Flush(_) => false,
            Awaited::Fence { fence, count, .. } => self.fences_of(peer, fence.window) < count,
        })
    }

    fn fences_of(&self, peer: Rank, window: u32) -> u64 {
        let known = self.peers.get(&peer).and_then(|peer| peer.fences.get(&window));
        known.copied().unwrap_or_default()
    }

    /// A rank that holds up a call.
    pub(super) fn late_peer(&self, waiting: &Waiting) -> Option<Rank> {
        match waiting.what {
            Awaited::Signal { peer, .. } => Some(peer),
            Awaited::Flush(Flush { peer }) => peer.or_else(|| self.first_busy(waiting.number)),
            Awaited::Fence { fence, count, .. } => {
                let known = self.peers.keys().copied();
                let mut late = known.filter(|&peer| self.fences_of(peer, fence.window) < count);
                late.next().or_else(|| self.first_busy(waiting.number))
            }
        }
    }

    fn first_busy(&self, number: u64) -> Option<Rank> {
        let mut peers = self.peers.iter();
        let busy = peers.find(|(_, peer)| peer.oldest().is_some_and(|oldest| oldest <= number));
        busy.map(|(rank, _)| *rank)
    }
}
