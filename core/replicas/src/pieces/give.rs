//! The rank that gives its state: it answers what others ask, until they have what they need.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use polyrank::{DType, Error, ProcessGroup, Region, Tensor, Work};

use super::wire::{
    BATCH, DATA, DIGEST, DIGESTS, Digest, Hello, Link, PIECE, Question, piece_length, pieces_of,
};
use crate::transport::{StatePeer, TransportError};

/// So many answers to one rank may be under way.
const DEPTH: usize = 4;

/// A state that is given.
struct StateSource {
    state: Region,
    step: i64,
    digests: Digests,
    /// Whether somebody computes them.
    is_hashed: AtomicBool,
}

/// The digests of its pieces, as they are computed.
#[derive(Default)]
struct Digests {
    all: Mutex<Vec<Digest>>,
    more: Condvar,
    /// Nobody needs them any more.
    is_over: AtomicBool,
}

/// Gives `state` to `destinations`; the bytes that went to them.
pub(super) fn give(
    group: &ProcessGroup,
    destinations: &[StatePeer<'_>],
    step: i64,
    state: Vec<u8>,
    deadline: Instant,
) -> Result<u64, TransportError> {
    let giving = StateSource {
        state: Region::from_vec(state),
        step,
        digests: Digests::default(),
        is_hashed: AtomicBool::new(false),
    };
    let giving = &giving;
    thread::scope(|scope| {
        let hashes = move || {
            if !giving.is_hashed.swap(true, Ordering::SeqCst) {
                scope.spawn(|| giving.hash());
            }
        };
        let serve = |peer| {
            let link = Link { group, peer, step, deadline };
            scope.spawn(move || giving.serve(link, hashes))
        };
        let serving: Vec<_> = destinations.iter().copied().map(serve).collect();
        let panicked = || TransportError::Other("the thread that gives a state panicked".into());
        let ended: Vec<Result<u64, TransportError>> = serving
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect();
        giving.digests.is_over.store(true, Ordering::SeqCst);
        ended.into_iter().sum()
    })
}

impl StateSource {
    /// Answers one rank until it is through; the bytes that went to it.
    fn serve(&self, link: Link<'_>, hashes: impl Fn()) -> Result<u64, TransportError> {
        let (mut given, mut under_way) = (0, VecDeque::<Work>::new());
        let lost = |cause: Error| TransportError::Lost {
            what: "the state".to_owned(),
            replica: link.peer.replica.to_owned(),
            cause: Box::new(cause),
        };
        let late = |given| TransportError::Late {
            bytes: given,
            all: self.state.len() as u64,
            missing: format!(", the next question of replica {}", link.peer.replica),
        };
        loop {
            let question = link.receive_question().map_err(lost)?;
            match question.wait_slice(link.left()) {
                Some(ended) => ended.map_err(lost)?,
                None => return Err(late(given)),
            }
            let (step, question) = Link::question(question).map_err(lost)?;
            // A question of an earlier quorum, whose rank had the state before this one answered.
            let is_of_now = step >= self.step;
            match question {
                Some(Question::Done) if is_of_now => break,
                Some(Question::Hello) if is_of_now => {
                    under_way.push_back(link.say_hello(self.hello(step)).map_err(lost)?);
                }
                Some(Question::Piece(number)) if is_of_now => {
                    let piece = self.piece(number, &link)?;
                    given += piece.bytes() as u64;
                    under_way.push_back(link.send(piece, DATA).map_err(lost)?);
                }
                Some(Question::Digests(first)) if is_of_now => {
                    hashes();
                    let batch = self.digests.wait(first, self.pieces(), &link);
                    let batch = batch.ok_or_else(|| late(given))?;
                    under_way.push_back(link.send(batch.into(), DIGESTS).map_err(lost)?);
                }
                _ => {}
            }
            while under_way.len() > DEPTH
                && let Some(work) = under_way.pop_front()
            {
                ended(&work, &link).map_err(lost)?.ok_or_else(|| late(given))?;
            }
        }
        for work in under_way {
            ended(&work, &link).map_err(lost)?.ok_or_else(|| late(given))?;
        }
        Ok(given)
    }

    fn hello(&self, asked: i64) -> Hello {
        let length = i64::try_from(self.state.len()).unwrap_or(i64::MAX);
        Hello { asked, step: self.step, length, piece: PIECE as i64 }
    }

    fn pieces(&self) -> u64 {
        pieces_of(self.state.len() as u64)
    }

    fn range(&self, number: u64) -> Option<std::ops::Range<usize>> {
        let length = piece_length(self.state.len() as u64, number)?;
        // It is a piece of the state.
        let start = number as usize * PIECE;
        Some(start..start + length)
    }

    fn piece(&self, number: u64, link: &Link<'_>) -> Result<Tensor, TransportError> {
        let range = self.range(number).ok_or_else(|| {
            let (replica, pieces) = (link.peer.replica, self.pieces());
            let what = format!("replica {replica} asked for piece {number} of a state of {pieces}");
            TransportError::Other(what)
        })?;
        let length = range.len();
        let part = self.state.slice(range);
        Ok(Tensor::contiguous(part, DType::U8, vec![length]).read_only())
    }

    /// Computes all digests, one after the other.
    fn hash(&self) {
        for range in (0..self.pieces()).map_while(|number| self.range(number)) {
            if self.digests.is_over.load(Ordering::SeqCst) {
                return;
            }
            let digest = self.state.slice(range).read(|bytes| *blake3::hash(bytes).as_bytes());
            self.digests.all.lock().unwrap_or_else(PoisonError::into_inner).push(digest);
            self.digests.more.notify_all();
        }
    }
}

impl Digests {
    /// A message of those from `first` on, once they are there; none if that is too late.
    fn wait(&self, first: u64, pieces: u64, link: &Link<'_>) -> Option<Vec<u8>> {
        let end = pieces.min(first.saturating_add(BATCH));
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |all: &mut Vec<Digest>| (all.len() as u64) < end;
        let waited = self.more.wait_timeout_while(all, link.left(), is_missing);
        let (all, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        let mut message = vec![0; BATCH as usize * DIGEST];
        // If there are none from there on, the message has zeros.
        let some = all.get(first.min(end) as usize..end as usize).unwrap_or_default();
        let some = some.as_flattened();
        message[..some.len()].copy_from_slice(some);
        Some(message)
    }
}

/// None if it is too late.
fn ended(work: &Work, link: &Link<'_>) -> Result<Option<()>, Error> {
    work.wait_slice(link.left()).transpose()
}
