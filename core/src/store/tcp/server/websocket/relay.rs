//! The relay's pipes between sessions: who may send what to whom, and how much is under way.
//! Pure; knows sessions by number.

use std::collections::{BTreeSet, HashMap};

use crate::wire::channel::{
    CHUNK_COST_BYTES, MAX_PIPES, PIPE_WINDOW_BYTES, RelayHeader, RelayKind,
};

/// All pipes.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    /// By opener and the opener's count.
    pipes: HashMap<(u64, u32), Pipe>,
    /// The same, by each end.
    by_end: HashMap<u64, End>,
    /// Bytes that one has sent and the other has not read, by the two, of all their pipes.
    under_way: HashMap<(u64, u64), usize>,
}

#[derive(Debug)]
struct Pipe {
    other: u64,
    /// Bytes that the opener sent and the other has not read, and the other way round.
    under_way: [usize; 2],
}

#[derive(Debug, Default)]
struct End {
    pipes: BTreeSet<(u64, u32)>,
    /// Counts go up, so that nobody mistakes a new pipe for an old one.
    next_count: u32,
    /// Who wants to learn of its end, and whose end it wants to learn of.
    watchers: BTreeSet<u64>,
    watched: BTreeSet<u64>,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass it on.
    Forward,
    /// There is nothing to pass on: it was for the server, or for a pipe whose end crossed it.
    Drop,
    /// Tell the sender that the peer is dead.
    TellDead,
}

/// Why a session ends that sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The message makes no sense.
    Malformed,
    /// Nobody ever had this number.
    UnknownPeer(u64),
    /// There are more than [`MAX_PIPES`].
    TooMany,
    /// More was sent than the window allows that the pipes of two ranks share.
    Overrun,
}

impl Pipes {
    /// Judges a message of `from` with `bytes` after the header. `is_there` tells whether the
    /// header's peer has a session, `was_there` whether it had one.
    pub(super) fn judge(
        &mut self,
        from: u64,
        header: &RelayHeader,
        bytes: &[u8],
        (is_there, was_there): (bool, bool),
    ) -> Result<Verdict, Fault> {
        if !was_there || header.peer == from {
            return Err(Fault::UnknownPeer(header.peer));
        }
        let opener = if header.opened_by_sender { from } else { header.peer };
        let key = (opener, header.pipe);
        match header.kind {
            RelayKind::Open => return self.open(from, header, is_there),
            RelayKind::Watch => return self.watch(from, header.peer, is_there),
            _ => {}
        }
        let Some(pipe) = self.pipes.get_mut(&key) else { return Ok(Verdict::Drop) };
        if pipe.other != if header.opened_by_sender { header.peer } else { from } {
            return Err(Fault::Malformed);
        }
        match header.kind {
            RelayKind::Data => {
                let bytes = bytes.len() + CHUNK_COST_BYTES;
                pipe.under_way[usize::from(!header.opened_by_sender)] += bytes;
                let both = self.under_way.entry((from, header.peer)).or_default();
                *both += bytes;
                if *both > PIPE_WINDOW_BYTES { Err(Fault::Overrun) } else { Ok(Verdict::Forward) }
            }
            RelayKind::Credit => {
                let read =
                    bytes.try_into().map(u32::from_le_bytes).map_err(|_| Fault::Malformed)?;
                // Who reads frees the other direction.
                let under_way = &mut pipe.under_way[usize::from(header.opened_by_sender)];
                *under_way = under_way.checked_sub(read as usize).ok_or(Fault::Malformed)?;
                self.settle((header.peer, from), read as usize);
                Ok(Verdict::Forward)
            }
            RelayKind::Goodbye | RelayKind::Abandon => {
                self.close(key);
                Ok(Verdict::Forward)
            }
            RelayKind::Open | RelayKind::Watch | RelayKind::Left | RelayKind::Dead => {
                Err(Fault::Malformed)
            }
        }
    }

    /// Closes the pipes of `number`, which is gone. Whom to tell: those that had some, and those
    /// that wanted to learn of it.
    pub(super) fn leave(&mut self, number: u64) -> BTreeSet<u64> {
        let Some(end) = self.by_end.remove(&number) else { return BTreeSet::new() };
        for watched in end.watched {
            if let Some(end) = self.by_end.get_mut(&watched) {
                end.watchers.remove(&number);
            }
        }
        let mut others = end.watchers;
        for watcher in &others {
            if let Some(end) = self.by_end.get_mut(watcher) {
                end.watched.remove(&number);
            }
        }
        for key in end.pipes {
            let Some(pipe) = self.forget(key) else { continue };
            let other = if key.0 == number { pipe.other } else { key.0 };
            if let Some(end) = self.by_end.get_mut(&other) {
                end.pipes.remove(&key);
            }
            others.insert(other);
        }
        others
    }

    fn open(&mut self, from: u64, header: &RelayHeader, is_there: bool) -> Result<Verdict, Fault> {
        let end = self.by_end.entry(from).or_default();
        if !header.opened_by_sender || header.pipe < end.next_count {
            return Err(Fault::Malformed);
        }
        // Those that others opened are not its own doing.
        if end.pipes.range((from, 0)..=(from, u32::MAX)).count() >= MAX_PIPES {
            return Err(Fault::TooMany);
        }
        // The last number of all is never used, for it could be used again.
        end.next_count = header.pipe.checked_add(1).ok_or(Fault::Malformed)?;
        if !is_there {
            return Ok(Verdict::TellDead);
        }
        let key = (from, header.pipe);
        end.pipes.insert(key);
        self.by_end.entry(header.peer).or_default().pipes.insert(key);
        self.pipes.insert(key, Pipe { other: header.peer, under_way: [0; 2] });
        Ok(Verdict::Forward)
    }

    fn watch(&mut self, from: u64, peer: u64, is_there: bool) -> Result<Verdict, Fault> {
        if !is_there {
            return Ok(Verdict::TellDead);
        }
        let end = self.by_end.entry(from).or_default();
        if end.watched.len() >= MAX_PIPES {
            return Err(Fault::TooMany);
        }
        end.watched.insert(peer);
        self.by_end.entry(peer).or_default().watchers.insert(from);
        Ok(Verdict::Drop)
    }

    fn forget(&mut self, key: (u64, u32)) -> Option<Pipe> {
        let pipe = self.pipes.remove(&key)?;
        let [there, back] = pipe.under_way;
        self.settle((key.0, pipe.other), there);
        self.settle((pipe.other, key.0), back);
        Some(pipe)
    }

    /// So many bytes are not under way any more from the first to the second of `pair`.
    fn settle(&mut self, pair: (u64, u64), bytes: usize) {
        if let Some(under_way) = self.under_way.get_mut(&pair) {
            *under_way -= bytes;
            if *under_way == 0 {
                self.under_way.remove(&pair);
            }
        }
    }

    fn close(&mut self, key: (u64, u32)) {
        let Some(pipe) = self.forget(key) else { return };
        for end in [key.0, pipe.other] {
            if let Some(end) = self.by_end.get_mut(&end) {
                end.pipes.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: (bool, bool) = (true, true);

    fn open(pipes: &mut Pipes, from: u64, pipe: u32, peer: u64) -> Result<Verdict, Fault> {
        let header = RelayHeader { kind: RelayKind::Open, opened_by_sender: true, pipe, peer };
        pipes.judge(from, &header, &[0; 8], THERE)
    }

    #[test]
    fn no_number_opens_two_pipes() {
        let mut pipes = Pipes::default();
        for pipe in [0, 7, u32::MAX - 1] {
            assert_eq!(open(&mut pipes, 1, pipe, 2), Ok(Verdict::Forward));
            assert_eq!(open(&mut pipes, 1, pipe, 3), Err(Fault::Malformed));
        }
        assert_eq!(open(&mut pipes, 1, u32::MAX, 2), Err(Fault::Malformed));
    }

    #[test]
    fn the_pipes_of_two_ranks_share_a_window() {
        let mut pipes = Pipes::default();
        let chunk = vec![0; 60_000];
        let chunks = PIPE_WINDOW_BYTES / (chunk.len() + CHUNK_COST_BYTES);
        let send = |pipes: &mut Pipes, pipe: u32, peer: u64| {
            let header = RelayHeader { kind: RelayKind::Data, opened_by_sender: true, pipe, peer };
            pipes.judge(1, &header, &chunk, THERE)
        };
        for (pipe, peer) in [(0, 2), (1, 2), (2, 2), (3, 9)] {
            assert_eq!(open(&mut pipes, 1, pipe, peer), Ok(Verdict::Forward));
        }
        for sent in 0..chunks as u32 {
            assert_eq!(send(&mut pipes, sent % 2, 2), Ok(Verdict::Forward));
        }
        // What goes to others is theirs; what a closed pipe had under way is its reader's.
        assert_eq!(send(&mut pipes, 3, 9), Ok(Verdict::Forward));
        let close =
            RelayHeader { kind: RelayKind::Abandon, opened_by_sender: true, pipe: 0, peer: 2 };
        assert_eq!(pipes.judge(1, &close, &[], THERE), Ok(Verdict::Forward));
        for _ in 0..chunks.div_ceil(2) {
            assert_eq!(send(&mut pipes, 2, 2), Ok(Verdict::Forward));
        }
        assert_eq!(send(&mut pipes, 2, 2), Err(Fault::Overrun));
        pipes.leave(1);
        assert!(pipes.pipes.is_empty() && pipes.under_way.is_empty());
    }

    #[test]
    fn pipes_that_others_open_leave_a_rank_its_own() {
        let mut pipes = Pipes::default();
        for pipe in 0..MAX_PIPES as u32 {
            assert_eq!(open(&mut pipes, 1, pipe, 2), Ok(Verdict::Forward));
        }
        assert_eq!(open(&mut pipes, 1, MAX_PIPES as u32, 2), Err(Fault::TooMany));
        assert_eq!(open(&mut pipes, 2, 0, 1), Ok(Verdict::Forward));
    }
}
