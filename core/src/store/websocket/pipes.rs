//! A client's pipes through the relay of the store's server: chunks that wait to be read, and how
//! many more may be sent. Pure; knows nothing of sessions or locks.
//!
//! Both sides ask for a pipe by the same name. The one with the lower number opens it, so that the
//! two never open it twice; what it sends waits at the other until that one asks, too.

use std::collections::VecDeque;

use crate::sorted::{LargeMap, SortedMap};
use crate::transport::LossReason;
use crate::transport::websocket::PipeState;
use crate::wire::channel::{
    CHUNK_COST_BYTES, MAX_PIPES, PIPE_WINDOW_BYTES, RELAY_CHANNEL, RelayHeader, RelayKind,
};
use crate::wire::session::Message;

/// A pipe: the other's number, and by whose count and which number it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PipeKey {
    pub(super) peer: u64,
    pub(super) pipe: u32,
    /// This side opened it.
    pub(super) opened_here: bool,
}

/// What both sides call a pipe: the other's number, and the name that they agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PipeName {
    pub(super) peer: u64,
    pub(super) id: u64,
}

/// All pipes of a client.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    pipes: LargeMap<PipeKey, State>,
    /// Those that this side asked for.
    wanted: LargeMap<PipeName, PipeStage>,
    /// Those that others opened and this side has not asked for, oldest first.
    unwanted: VecDeque<(PipeName, PipeKey)>,
    /// What came over them.
    unwanted_bytes: usize,
    /// Those that this side closed before the other opened them, and how; oldest first.
    left: VecDeque<(PipeName, RelayKind)>,
    opened: u32,
}

#[derive(Debug)]
enum PipeStage {
    /// The other side will open it.
    Awaited,
    Opened(PipeKey),
    /// It was lost before it was opened.
    Lost(LossReason),
}

#[derive(Debug)]
struct State {
    inbox: VecDeque<Chunk>,
    /// What was sent and the other side has not read, as far as is known.
    under_way: usize,
    /// What was read and the other side does not know.
    unsaid: usize,
    state: PipeState,
    /// This side has asked for it.
    wanted: bool,
}

/// A chunk that came: the bytes of a message after the relay's header, which are not copied.
#[derive(Debug)]
pub(super) struct Chunk(Message);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        // Only what has a whole header becomes a chunk.
        &self.0.body()[RelayHeader::BYTES..]
    }
}

impl Chunk {
    /// What it takes of its pipe's window.
    fn cost_bytes(&self) -> usize {
        self.as_ref().len() + CHUNK_COST_BYTES
    }
}

/// Most pipes that wait for this side to ask for them: as many as it could ask for, for all of a
/// large group may be earlier than this side. One more puts out the oldest of the peer with most.
const MAX_UNWANTED: usize = MAX_PIPES;
/// Most bytes that came over them; a pipe that brings more is closed. Ranks say no more than hello
/// before they are answered.
const MAX_UNWANTED_BYTES: usize = 16 * PIPE_WINDOW_BYTES;
/// Most pipes that are remembered which this side closed before they were opened; one more puts out
/// the oldest.
const MAX_LEFT: usize = 64;

/// The relay's messages were not those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedMessage;

impl PipeKey {
    fn header(self, kind: RelayKind) -> RelayHeader {
        let PipeKey { peer, pipe, opened_here } = self;
        RelayHeader { kind, opened_by_sender: opened_here, pipe, peer }
    }
}

impl Pipes {
    /// Asks for a pipe, being number `own`; what to tell the server, if anything.
    pub(super) fn open(&mut self, own: u64, name: PipeName) -> Option<Message> {
        if own == name.peer {
            let why = LossReason::Protocol("a pipe to itself".into());
            self.wanted.insert(name, PipeStage::Lost(why));
            return None;
        }
        let waiting = self.unwanted.iter().position(|(other, _)| *other == name);
        self.left.retain(|(other, _)| *other != name);
        if let Some((_, key)) = waiting.and_then(|at| self.unwanted.remove(at)) {
            if let Some(pipe) = self.pipes.get_mut(&key) {
                pipe.wanted = true;
                self.unwanted_bytes -= pipe.inbox_bytes();
            }
            self.wanted.insert(name, PipeStage::Opened(key));
            return None;
        }
        if own >= name.peer {
            self.wanted.insert(name, PipeStage::Awaited);
            // The other side may be dead before it opens the pipe.
            let key = PipeKey { peer: name.peer, pipe: 0, opened_here: true };
            return Some(key.header(RelayKind::Watch).message(&[]));
        }
        let key = PipeKey { peer: name.peer, pipe: self.opened, opened_here: true };
        self.opened = self.opened.wrapping_add(1);
        self.pipes.insert(key, State::new(true));
        self.wanted.insert(name, PipeStage::Opened(key));
        Some(key.header(RelayKind::Open).message(&name.id.to_le_bytes()))
    }

    /// How many bytes of a chunk may be sent on the pipe, as far as its reader is concerned, with
    /// whom it shares a window with the other pipes to the same.
    pub(super) fn room(&self, name: PipeName) -> usize {
        match self.key(name).and_then(|key| self.pipes.get(&key)) {
            Some(pipe) if pipe.state == PipeState::Open => {
                let under_way: usize = self.open_to(name.peer).map(|pipe| pipe.under_way).sum();
                PIPE_WINDOW_BYTES.saturating_sub(under_way + CHUNK_COST_BYTES)
            }
            _ => 0,
        }
    }

    /// The pipes to `peer` that stand.
    fn open_to(&self, peer: u64) -> impl Iterator<Item = &State> {
        let pipes = self.pipes.iter().filter(move |(key, _)| key.peer == peer);
        pipes.map(|(_, pipe)| pipe).filter(|pipe| pipe.state == PipeState::Open)
    }

    /// The message that carries a chunk of `parts`; `None` if the pipe is gone.
    pub(super) fn send(&mut self, name: PipeName, parts: &[&[u8]]) -> Option<Message> {
        let key = self.key(name)?;
        let pipe = self.pipes.get_mut(&key).filter(|pipe| pipe.state == PipeState::Open)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        pipe.under_way += bytes + CHUNK_COST_BYTES;
        let header = key.header(RelayKind::Data);
        let mut message = Message::with_capacity(RELAY_CHANNEL, RelayHeader::BYTES + bytes);
        message.extend(&header.encode());
        parts.iter().for_each(|part| message.extend(part));
        Some(message)
    }

    /// The next chunk that came, and what to tell the other side, if it is time to: of all pipes to
    /// it, for what little was read of each of many may be all of the window.
    pub(super) fn receive(&mut self, name: PipeName) -> Option<(Chunk, Vec<Message>)> {
        let key = self.key(name)?;
        let pipe = self.pipes.get_mut(&key)?;
        let chunk = pipe.inbox.pop_front()?;
        pipe.unsaid += chunk.cost_bytes();
        let unsaid: usize = self.open_to(name.peer).map(|pipe| pipe.unsaid).sum();
        if unsaid < PIPE_WINDOW_BYTES / 4 {
            return Some((chunk, Vec::new()));
        }
        let read = self.pipes.iter_mut().filter(|(key, pipe)| {
            key.peer == name.peer && pipe.state == PipeState::Open && pipe.unsaid > 0
        });
        let credits = read.map(|(key, pipe)| {
            // No more than the window can be unsaid.
            let bytes = std::mem::take(&mut pipe.unsaid) as u32;
            key.header(RelayKind::Credit).message(&bytes.to_le_bytes())
        });
        Some((chunk, credits.collect()))
    }

    /// How the pipe is.
    pub(super) fn state(&self, name: PipeName) -> PipeState {
        let gone = || PipeState::Lost(LossReason::Died("the pipe was closed".into()));
        match self.wanted.get(&name) {
            Some(PipeStage::Awaited) => PipeState::Connecting,
            Some(PipeStage::Lost(why)) => PipeState::Lost(why.clone()),
            Some(PipeStage::Opened(key)) => {
                self.pipes.get(key).map_or_else(gone, |pipe| pipe.state.clone())
            }
            None => gone(),
        }
    }

    /// Forgets the pipe; the message that says so, unless it is gone already.
    pub(super) fn close(&mut self, name: PipeName, orderly: bool) -> Option<Message> {
        let kind = if orderly { RelayKind::Goodbye } else { RelayKind::Abandon };
        let key = match self.wanted.remove(&name)? {
            PipeStage::Opened(key) => key,
            PipeStage::Lost(_) => return None,
            PipeStage::Awaited => {
                // The peer that opens it is told then.
                self.left.push_back((name, kind));
                if self.left.len() > MAX_LEFT {
                    self.left.pop_front();
                }
                return None;
            }
        };
        let pipe = self.forget(key)?;
        (pipe.state == PipeState::Open).then(|| key.header(kind).message(&[]))
    }

    fn key(&self, name: PipeName) -> Option<PipeKey> {
        match self.wanted.get(&name)? {
            PipeStage::Opened(key) => Some(*key),
            PipeStage::Awaited | PipeStage::Lost(_) => None,
        }
    }

    /// The other side opened a pipe; the message that closes the one that makes room, if any.
    fn opened(&mut self, key: PipeKey, bytes: &[u8]) -> Result<Option<Message>, MalformedMessage> {
        let id = bytes.try_into().map(u64::from_le_bytes).map_err(|_| MalformedMessage)?;
        let name = PipeName { peer: key.peer, id };
        if key.opened_here || self.pipes.contains_key(&key) {
            return Err(MalformedMessage);
        }
        if let Some(at) = self.left.iter().position(|(other, _)| *other == name) {
            let left = self.left.remove(at);
            return Ok(left.map(|(_, kind)| key.header(kind).message(&[])));
        }
        let wanted = matches!(self.wanted.get(&name), Some(PipeStage::Awaited));
        self.pipes.insert(key, State::new(wanted));
        if wanted {
            self.wanted.insert(name, PipeStage::Opened(key));
            return Ok(None);
        }
        self.unwanted.push_back((name, key));
        if self.unwanted.len() <= MAX_UNWANTED {
            return Ok(None);
        }
        Ok(self.greediest().map(|key| self.put_out(key)))
    }

    /// Of the pipes that nobody asked for, the oldest of the peer that has most of them, so that
    /// nobody puts out another's.
    fn greediest(&self) -> Option<PipeKey> {
        let mut counts: SortedMap<u64, usize> = SortedMap::new();
        for (name, _) in &self.unwanted {
            *counts.entry(name.peer).or_default() += 1;
        }
        let (peer, _) = counts.iter().max_by_key(|(_, count)| **count)?;
        self.unwanted.iter().find(|(name, _)| name.peer == *peer).map(|(_, key)| *key)
    }

    /// Closes a pipe that nobody asked for; what tells the other side.
    fn put_out(&mut self, key: PipeKey) -> Message {
        self.unwanted.retain(|(_, other)| *other != key);
        self.forget(key);
        key.header(RelayKind::Abandon).message(&[])
    }

    fn forget(&mut self, key: PipeKey) -> Option<State> {
        let pipe = self.pipes.remove(&key)?;
        if !pipe.wanted {
            self.unwanted_bytes -= pipe.inbox_bytes();
        }
        Some(pipe)
    }

    /// All pipes are gone, and so is the way to open others.
    pub(super) fn lose_all(&mut self, why: &str) {
        for pipe in self.pipes.values_mut().filter(|pipe| pipe.state == PipeState::Open) {
            pipe.state = PipeState::Lost(LossReason::Died(why.into()));
        }
        self.lose_awaited(|_| true, &LossReason::Died(why.into()));
    }

    /// Pipes that the other side has not opened, and never will.
    fn lose_awaited(&mut self, concerned: impl Fn(&PipeName) -> bool, why: &LossReason) {
        for (name, wanted) in self.wanted.iter_mut() {
            if matches!(wanted, PipeStage::Awaited) && concerned(name) {
                *wanted = PipeStage::Lost(why.clone());
            }
        }
    }

    /// What the relay brought; a message to send in turn, if any.
    pub(super) fn arrived(
        &mut self,
        message: Message,
    ) -> Result<Option<Message>, MalformedMessage> {
        let (RelayHeader { kind, opened_by_sender, pipe, peer }, bytes) =
            RelayHeader::decode(message.body()).ok_or(MalformedMessage)?;
        // Who sent it and called it its own is the other side.
        let key = PipeKey { peer, pipe, opened_here: !opened_by_sender };
        let lost = match kind {
            RelayKind::Open => return self.opened(key, bytes),
            RelayKind::Data => return Ok(self.chunk_arrived(key, Chunk(message))),
            RelayKind::Credit => {
                let credit =
                    bytes.try_into().map(u32::from_le_bytes).map_err(|_| MalformedMessage)?;
                if let Some(pipe) = self.pipes.get_mut(&key) {
                    pipe.under_way = pipe.under_way.saturating_sub(credit as usize);
                }
                return Ok(None);
            }
            RelayKind::Watch => return Err(MalformedMessage),
            RelayKind::Goodbye => LossReason::Goodbye,
            RelayKind::Left => LossReason::Died("its page was closed, or its program ended".into()),
            RelayKind::Abandon => {
                LossReason::Died("it closed its connection without a goodbye".into())
            }
            RelayKind::Dead => LossReason::Died(
                "its connection to the store's server broke and was not opened again in time"
                    .into(),
            ),
        };
        let to_peer = matches!(kind, RelayKind::Left | RelayKind::Dead);
        let concerned = |other: &PipeKey| if to_peer { other.peer == peer } else { *other == key };
        // Those that nobody has asked for yet are not kept: a peer could make them without end.
        let unwanted = std::mem::take(&mut self.unwanted);
        let (over, others) = unwanted.into_iter().partition(|(_, other)| concerned(other));
        self.unwanted = others;
        let over: VecDeque<(PipeName, PipeKey)> = over;
        over.into_iter().for_each(|(_, key)| drop(self.forget(key)));
        for (_, pipe) in self.pipes.iter_mut().filter(|(other, _)| concerned(other)) {
            if pipe.state == PipeState::Open {
                pipe.state = PipeState::Lost(lost.clone());
            }
        }
        if to_peer {
            self.lose_awaited(|name| name.peer == peer, &lost);
        }
        Ok(None)
    }
}

impl Pipes {
    /// A chunk came; the message that closes its pipe, if that brings too much.
    fn chunk_arrived(&mut self, key: PipeKey, chunk: Chunk) -> Option<Message> {
        // What was under way to a pipe that this side closed goes nowhere.
        let pipe = self.pipes.get_mut(&key)?;
        let cost_bytes = chunk.cost_bytes();
        pipe.inbox.push_back(chunk);
        if pipe.wanted {
            return None;
        }
        self.unwanted_bytes += cost_bytes;
        (self.unwanted_bytes > MAX_UNWANTED_BYTES).then(|| self.put_out(key))
    }
}

impl State {
    fn new(wanted: bool) -> State {
        let state = PipeState::Open;
        State { inbox: VecDeque::new(), under_way: 0, unsaid: 0, state, wanted }
    }

    /// What the chunks that came cost.
    fn inbox_bytes(&self) -> usize {
        self.inbox.iter().map(Chunk::cost_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const OWN: u64 = 1000;

    fn came(pipes: &mut Pipes, kind: RelayKind, (peer, pipe): (u64, u32), bytes: &[u8]) -> bool {
        let header = RelayHeader { kind, opened_by_sender: true, pipe, peer };
        pipes.arrived(header.message(bytes)).unwrap().is_some()
    }

    fn name(peer: u64, id: u32) -> PipeName {
        PipeName { peer, id: id.into() }
    }

    #[test]
    fn early_pipes_of_a_large_group_wait_and_a_stranger_puts_out_none_but_its_own() {
        let mut pipes = Pipes::default();
        let hello = [7; 52];
        for peer in 1..=100 {
            assert!(!came(&mut pipes, RelayKind::Open, (peer, 0), &0u64.to_le_bytes()));
            assert!(!came(&mut pipes, RelayKind::Data, (peer, 0), &hello));
        }
        for pipe in 0..2000u32 {
            let name = u64::from(pipe).to_le_bytes();
            came(&mut pipes, RelayKind::Open, (200, pipe), &name);
        }
        assert_eq!((pipes.unwanted.len(), pipes.pipes.len()), (MAX_UNWANTED, MAX_UNWANTED));
        for peer in 1..=100 {
            assert!(pipes.open(OWN, name(peer, 0)).is_none());
            assert_eq!(pipes.receive(name(peer, 0)).unwrap().0.as_ref(), hello);
        }
        assert_eq!(pipes.unwanted_bytes, 0);
    }

    #[test]
    fn what_nobody_asked_for_is_not_kept_without_end() {
        let mut pipes = Pipes::default();
        let chunk = vec![1; 64 << 10];
        for pipe in 0..100u32 {
            came(&mut pipes, RelayKind::Open, (5, pipe), &u64::from(pipe).to_le_bytes());
            for _ in 0..15 {
                came(&mut pipes, RelayKind::Data, (5, pipe), &chunk);
            }
            assert!(pipes.unwanted_bytes <= MAX_UNWANTED_BYTES);
        }
        let kept: usize = pipes.pipes.values().map(State::inbox_bytes).sum();
        assert_eq!(kept, pipes.unwanted_bytes);
        assert!(!came(&mut pipes, RelayKind::Dead, (5, 0), &[]));
        assert_eq!((pipes.pipes.len(), pipes.unwanted_bytes), (0, 0));
    }

    #[test]
    fn pipes_to_the_same_rank_share_a_window_that_many_small_reads_give_back() {
        let mut pipes = Pipes::default();
        let others: Vec<PipeName> = (0..8).map(|id| name(2000, id)).collect();
        others.iter().for_each(|name| drop(pipes.open(OWN, *name)));
        pipes.open(OWN, name(3000, 0));
        let chunk = [0; 30_000];
        let mut sent = 0;
        while pipes.room(others[sent % 8]) >= chunk.len() {
            pipes.send(others[sent % 8], &[&chunk]).unwrap();
            sent += 1;
        }
        assert_eq!(sent, PIPE_WINDOW_BYTES / (chunk.len() + CHUNK_COST_BYTES));
        assert!(others.iter().all(|name| pipes.room(*name) < chunk.len()));
        assert_eq!(pipes.room(name(3000, 0)), PIPE_WINDOW_BYTES - CHUNK_COST_BYTES);
        // The other side reads a little of each pipe, and says so of all at once.
        let mut reader = Pipes::default();
        let mut credits = Vec::new();
        for (at, other) in others.iter().enumerate() {
            let (from, bytes) = ((OWN, at as u32), at as u64);
            came(&mut reader, RelayKind::Open, from, &bytes.to_le_bytes());
            reader.open(2000, name(OWN, at as u32));
            for _ in (0..sent).filter(|sent| sent % 8 == at) {
                came(&mut reader, RelayKind::Data, from, &chunk);
                credits.extend(reader.receive(name(OWN, at as u32)).unwrap().1);
            }
            assert_eq!(other.id, bytes);
        }
        for credit in credits {
            let (header, bytes) = RelayHeader::decode(credit.body()).unwrap();
            let there = RelayHeader { peer: 2000, ..header };
            assert_eq!((header.kind, header.peer), (RelayKind::Credit, OWN));
            pipes.arrived(there.message(bytes)).unwrap();
        }
        assert!(pipes.room(others[0]) > PIPE_WINDOW_BYTES * 3 / 4 - CHUNK_COST_BYTES);
    }

    #[test]
    fn a_pipe_to_itself_is_not_asked_for() {
        let mut pipes = Pipes::default();
        assert!(pipes.open(OWN, name(OWN, 0)).is_none());
        assert!(matches!(pipes.state(name(OWN, 0)), PipeState::Lost(LossReason::Protocol(_))));
    }
}
