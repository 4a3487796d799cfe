//! The end of a window at one rank, of which it tells the others, and who takes no part any more.
//! Knows no memory.
//!
//! A rank closes its window by letting it go; the others need not. What they ask of it afterwards
//! is an error of theirs, and so is what waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::super::state::State;
use super::{Queued, SignalKind, Windows};
use crate::generated::error::Error;
use crate::transport::Rank;

/// Why a rank takes no part in a window any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// It has left the group.
    Left = 1,
    /// It has closed the window.
    Closed = 2,
}

/// The ranks that take no part in a window any more, for all who ask, without a lock.
#[derive(Debug, Default)]
pub struct GoneRanks {
    reasons: Box<[AtomicU8]>,
}

impl GoneRanks {
    /// None of so many ranks is gone.
    pub fn new(size: u32) -> GoneRanks {
        GoneRanks { reasons: (0..size).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Why `rank` is gone, if it is.
    #[inline]
    pub fn of(&self, rank: Rank) -> Option<GoneReason> {
        match self.reasons.get(rank as usize)?.load(Ordering::Relaxed) {
            0 => None,
            reason if reason == GoneReason::Left as u8 => Some(GoneReason::Left),
            _ => Some(GoneReason::Closed),
        }
    }

    fn note(&self, rank: Rank, why: GoneReason) {
        if let Some(reason) = self.reasons.get(rank as usize) {
            reason.store(why as u8, Ordering::Relaxed);
        }
    }
}

/// What a call on a window ends with that needs a rank which has closed it.
pub fn closed_by(name: &str, peer: Rank) -> Error {
    let message = format!(
        "{name}: rank {peer} has closed this window: nothing of its program refers to it any more"
    );
    Error::InvalidArgument { message }
}

impl State {
    /// Opens a window, whose signals count from now on; `gone` is kept up to date.
    pub(in super::super) fn open_window(&mut self, window: u32, gone: Arc<GoneRanks>) {
        self.peers.departed().for_each(|peer| gone.note(peer, GoneReason::Left));
        self.windows.open.entry(window).or_default().gone = gone;
    }

    /// Closes a window, once no call waits on it any more: nobody here will make one again.
    pub(in super::super) fn close_window(&mut self, window: u32) {
        if let Some(open) = self.windows.open.get_mut(&window) {
            open.is_closing = true;
            self.windows.closing += 1;
            self.end_closing();
        }
    }

    /// Ends the windows that are to be closed and on which no call waits, and tells the others.
    pub(super) fn end_closing(&mut self) {
        if self.windows.closing == 0 {
            return;
        }
        for window in self.windows.take_closed() {
            let tells = self.broken.is_none();
            let others = (0..self.size).filter(|&peer| peer != self.rank);
            for peer in others.filter(|&peer| tells && !self.peers.has_left(peer)) {
                let number = self.windows.number();
                let kind = SignalKind::Closed;
                let told = Queued::Signal { window, number, kind, ending: None };
                self.windows.peer(peer).queued.push_back(told);
                self.windows.sendable = true;
            }
        }
    }

    /// A peer has closed a window that is open here.
    pub(super) fn closing_arrived(&mut self, peer: Rank, window: u32) {
        if let Some(open) = self.windows.open.get(&window) {
            open.gone.note(peer, GoneReason::Closed);
        }
        self.check_window_waits();
    }

    /// A peer has left the group.
    pub(in super::super) fn leaves_windows(&mut self, peer: Rank) {
        for open in self.windows.open.values() {
            open.gone.note(peer, GoneReason::Left);
        }
    }
}

impl Windows {
    /// Takes the windows that are to be closed, and on which no call waits.
    fn take_closed(&mut self) -> Vec<u32> {
        let Windows { open, waiting, .. } = self;
        let is_due = |window: u32| waiting.iter().all(|it| it.window() != Some(window));
        let closing = open.iter().filter(|(_, open)| open.is_closing).map(|(window, _)| *window);
        let closed: Vec<u32> = closing.filter(|&window| is_due(window)).collect();
        for window in &closed {
            self.open.remove(window);
            self.closing -= 1;
            for peer in self.peers.values_mut() {
                peer.signals.remove(window);
                peer.fences.remove(window);
                peer.closing.remove(window);
            }
        }
        closed
    }

    /// Whether `peer` has closed a window.
    pub(super) fn is_closed_by(&self, window: u32, peer: Rank) -> bool {
        let open = self.open.get(&window);
        open.is_some_and(|open| open.gone.of(peer) == Some(GoneReason::Closed))
    }
}
