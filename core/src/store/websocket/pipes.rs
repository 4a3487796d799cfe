//! A client's pipes through the relay of the store's server: chunks that wait to be read, and how
//! many more may be sent. Pure; knows nothing of sessions or locks.

use std::collections::{HashMap, VecDeque};

use crate::transport::Lost;
use crate::transport::websocket::PipeState;
use crate::wire::channel::{CHUNK_COST_BYTES, PIPE_WINDOW_BYTES, RelayHeader, RelayKind};
use crate::wire::session::Message;

/// A pipe: the other's number, and by whose count and which number it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PipeKey {
    pub(super) peer: u64,
    pub(super) pipe: u32,
    /// This side opened it.
    pub(super) mine: bool,
}

/// All pipes of a client.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    pipes: HashMap<PipeKey, State>,
    incoming: VecDeque<PipeKey>,
    opened: u32,
}

#[derive(Debug)]
struct State {
    inbox: VecDeque<Vec<u8>>,
    /// What may still be sent before the other side reads.
    room: usize,
    /// What was read and the other side does not know.
    unsaid: usize,
    state: PipeState,
}

/// The relay's messages were not those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl PipeKey {
    fn header(self, kind: RelayKind) -> RelayHeader {
        let PipeKey { peer, pipe, mine } = self;
        RelayHeader { kind, mine, pipe, peer }
    }
}

impl Pipes {
    /// Opens a pipe to `peer`; the message that says so.
    pub(super) fn open(&mut self, peer: u64) -> (PipeKey, Message) {
        let key = PipeKey { peer, pipe: self.opened, mine: true };
        self.opened = self.opened.wrapping_add(1);
        self.pipes.insert(key, State::new());
        (key, key.header(RelayKind::Open).message(&[]))
    }

    /// The next pipe that somebody opened to this client.
    pub(super) fn incoming(&mut self) -> Option<PipeKey> {
        self.incoming.pop_front()
    }

    /// How many bytes of a chunk may be sent on the pipe, as far as its reader is concerned.
    pub(super) fn room(&self, key: PipeKey) -> usize {
        match self.pipes.get(&key) {
            Some(pipe) if pipe.state == PipeState::Open => {
                pipe.room.saturating_sub(CHUNK_COST_BYTES)
            }
            _ => 0,
        }
    }

    /// The message that carries `chunk`; `None` if the pipe is gone.
    pub(super) fn send(&mut self, key: PipeKey, chunk: &[u8]) -> Option<Message> {
        let pipe = self.pipes.get_mut(&key).filter(|pipe| pipe.state == PipeState::Open)?;
        pipe.room = pipe.room.saturating_sub(chunk.len() + CHUNK_COST_BYTES);
        Some(key.header(RelayKind::Data).message(chunk))
    }

    /// The next chunk that came, and what to tell the other side, if it is time to.
    pub(super) fn receive(&mut self, key: PipeKey) -> Option<(Vec<u8>, Option<Message>)> {
        let pipe = self.pipes.get_mut(&key)?;
        let chunk = pipe.inbox.pop_front()?;
        pipe.unsaid += chunk.len() + CHUNK_COST_BYTES;
        let say = pipe.unsaid >= PIPE_WINDOW_BYTES / 4 && pipe.state == PipeState::Open;
        let credit = say.then(|| {
            let bytes = std::mem::take(&mut pipe.unsaid) as u32;
            key.header(RelayKind::Credit).message(&bytes.to_le_bytes())
        });
        Some((chunk, credit))
    }

    /// How the pipe is.
    pub(super) fn state(&self, key: PipeKey) -> PipeState {
        let gone = || PipeState::Lost(Lost::Died("the pipe was closed".into()));
        self.pipes.get(&key).map_or_else(gone, |pipe| pipe.state.clone())
    }

    /// Forgets the pipe; the message that says so, unless it is gone already.
    pub(super) fn close(&mut self, key: PipeKey, orderly: bool) -> Option<Message> {
        let pipe = self.pipes.remove(&key)?;
        let kind = if orderly { RelayKind::Goodbye } else { RelayKind::Abandon };
        (pipe.state == PipeState::Open).then(|| key.header(kind).message(&[]))
    }

    /// All pipes are gone, and so is the way to open others.
    pub(super) fn lose_all(&mut self, why: &str) {
        for pipe in self.pipes.values_mut().filter(|pipe| pipe.state == PipeState::Open) {
            pipe.state = PipeState::Lost(Lost::Died(why.into()));
        }
    }

    /// What the relay brought.
    pub(super) fn arrived(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let (RelayHeader { kind, mine, pipe, peer }, bytes) =
            RelayHeader::decode(body).ok_or(Malformed)?;
        // Who sent it and called it its own is the other side.
        let key = PipeKey { peer, pipe, mine: !mine };
        let lost = match kind {
            RelayKind::Open => {
                if !mine || self.pipes.insert(key, State::new()).is_some() {
                    return Err(Malformed);
                }
                self.incoming.push_back(key);
                return Ok(());
            }
            RelayKind::Data => {
                // What was under way to a pipe that this side closed goes nowhere.
                if let Some(pipe) = self.pipes.get_mut(&key) {
                    pipe.inbox.push_back(bytes.to_vec());
                }
                return Ok(());
            }
            RelayKind::Credit => {
                let credit = bytes.try_into().map(u32::from_le_bytes).map_err(|_| Malformed)?;
                if let Some(pipe) = self.pipes.get_mut(&key) {
                    pipe.room = (pipe.room + credit as usize).min(PIPE_WINDOW_BYTES);
                }
                return Ok(());
            }
            RelayKind::Goodbye | RelayKind::Left => Lost::Goodbye,
            RelayKind::Abandon => Lost::Died("it closed its end of the pipe".into()),
            RelayKind::Dead => {
                Lost::Died("its connection to the store's server ended or was lost".into())
            }
        };
        let to_peer = matches!(kind, RelayKind::Left | RelayKind::Dead);
        let concerned = |other: &PipeKey| if to_peer { other.peer == peer } else { *other == key };
        // Those that nobody has asked for yet are not kept: a peer could make them without end.
        let pipes = &mut self.pipes;
        self.incoming.retain(|other| !concerned(other) || pipes.remove(other).is_none());
        for (_, pipe) in self.pipes.iter_mut().filter(|(other, _)| concerned(other)) {
            if pipe.state == PipeState::Open {
                pipe.state = PipeState::Lost(lost.clone());
            }
        }
        Ok(())
    }
}

impl State {
    fn new() -> State {
        let room = PIPE_WINDOW_BYTES;
        State { inbox: VecDeque::new(), room, unsaid: 0, state: PipeState::Open }
    }
}
