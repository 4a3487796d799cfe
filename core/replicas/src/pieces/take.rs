//! The rank that takes a state: it asks several sources for its pieces at once, and believes of
//! none that a piece is right. What the first source says of the digests counts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::{Error, ProcessGroup, Work};

use super::assembly::{Assembly, MAX_DAMAGED, PartialState};
use super::progress::Progress;
use super::wire::{self, BATCH, DATA, DIGEST, DIGESTS, Digest, Hello, LOOK, Link, PIECE, Question};
use crate::transport::{StatePeer, TransportError};

/// So many pieces may be on their way from one source.
const DEPTH: usize = 3;
/// How long one waits for a piece before it looks whether the others are through.
const SLICE: Duration = Duration::from_millis(20);
/// Other sources that have sent so many damaged pieces are not asked any more.
const MAX_DAMAGED_OF_OTHERS: u32 = 3;

/// What is to be taken, from whom, and how far it is.
pub(super) struct StateReceiver<'a> {
    pub(super) group: &'a ProcessGroup,
    pub(super) sources: &'a [StatePeer<'a>],
    pub(super) step: i64,
    pub(super) deadline: Instant,
    pub(super) verifies: bool,
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many pieces came from each source, and were right.
    pub(super) pieces: Vec<u64>,
    /// Bytes that were here before.
    pub(super) kept: u64,
    /// Ranks whose state is another one than that of the first source.
    pub(super) differing: BTreeSet<u32>,
    /// How many pieces came damaged.
    pub(super) damaged: u64,
}

struct Inner {
    /// What was kept, until the first source has said what it has.
    kept: Option<PartialState>,
    /// None before that.
    assembly: Option<Assembly>,
    failed: Option<TransportError>,
    outcome: Outcome,
    progress: Progress,
}

/// An answer that is on its way.
enum Answer {
    Piece(u64),
    Digests,
}

/// Those of a source, in the order of the questions.
type PendingAnswers = VecDeque<(Answer, Work)>;

/// Why a worker stops: the error of all, or nothing that concerns others.
enum Stop {
    Failed(TransportError),
    /// Others are through, or this source is of no use.
    Idle,
}

impl From<TransportError> for Stop {
    fn from(error: TransportError) -> Stop {
        Stop::Failed(error)
    }
}

impl<'a> StateReceiver<'a> {
    /// Of the state of `step`, some of which may have been kept; there is at least one source.
    pub(super) fn new(
        group: &'a ProcessGroup,
        sources: &'a [StatePeer<'a>],
        (step, deadline): (i64, Instant),
        verifies: bool,
        kept: Option<PartialState>,
    ) -> StateReceiver<'a> {
        let inner = Inner {
            kept: kept.filter(|kept| kept.step == step && verifies),
            assembly: None,
            failed: None,
            outcome: Outcome { pieces: vec![0; sources.len()], ..Outcome::default() },
            progress: Progress::new(),
        };
        let (inner, changed) = (Mutex::new(inner), Condvar::new());
        StateReceiver { group, sources, step, deadline, verifies, inner, changed }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, source: usize) -> Link<'a> {
        let StateReceiver { group, step, deadline, .. } = *self;
        Link { group, peer: self.sources[source], step, deadline }
    }

    /// Takes it. What is here of a state that did not come whole is kept.
    pub(super) fn run(self) -> (Result<Vec<u8>, TransportError>, Outcome, Option<PartialState>) {
        thread::scope(|scope| {
            for source in 0..self.sources.len() {
                let taking = &self;
                scope.spawn(move || taking.work(source));
            }
        });
        // All of them wait for what this one asks next.
        for source in 0..self.sources.len() {
            // A group that broke has ended their waiting.
            let _ = self.link(source).ask(Question::Done);
        }
        let (step, verifies) = (self.step, self.verifies);
        let inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Inner { assembly, failed, mut outcome, progress, kept } = inner;
        outcome.kept = assembly.as_ref().map_or(0, Assembly::kept);
        match (assembly, failed) {
            (Some(whole), None) if whole.is_whole() => {
                progress.end(&outcome, whole.length(), verifies);
                (Ok(whole.into_state()), outcome, None)
            }
            (assembly, failed) => {
                let error = failed.unwrap_or_else(|| {
                    TransportError::Other("the threads that take a state ended".to_owned())
                });
                let part = assembly.filter(|_| verifies).map(|part| part.keep(step)).or(kept);
                (Err(error), outcome, part)
            }
        }
    }

    fn work(&self, source: usize) {
        let mut awaited = PendingAnswers::new();
        let stopped = self.serve(source, &mut awaited);
        let mut inner = self.lock();
        if let Some(assembly) = &mut inner.assembly {
            for (what, _) in awaited {
                if let Answer::Piece(number) = what {
                    assembly.give_back(source, number);
                }
            }
        }
        if let Err(Stop::Failed(error)) = stopped {
            inner.failed.get_or_insert(error);
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn serve(&self, source: usize, awaited: &mut PendingAnswers) -> Result<(), Stop> {
        let link = self.link(source);
        let hello = self.hello(source, &link)?;
        match source {
            0 => self.begin(&link, hello)?,
            _ => self.join(&link, hello)?,
        }
        let mut damaged = 0;
        let mut digests_asked = self.lock().assembly.as_ref().map_or(0, Assembly::digests);
        loop {
            self.ask_pieces(source, &link, &mut digests_asked, awaited)?;
            let Some((what, work)) = awaited.front() else {
                // Others may leave something.
                self.pause(SLICE)?;
                self.unless_late(0, None)?;
                continue;
            };
            let number = match what {
                Answer::Piece(number) => Some(*number),
                Answer::Digests => None,
            };
            self.wait(source, number, work)?;
            let Some((_, work)) = awaited.pop_front() else { continue };
            let bytes = wire::bytes(work).map_err(|cause| self.lost(source, number, cause))?;
            match number {
                None => self.add_digests(&bytes),
                Some(number) => self.arrived(source, &link, number, bytes, &mut damaged)?,
            }
        }
    }

    /// Asks for what may be under way now.
    fn ask_pieces(
        &self,
        source: usize,
        link: &Link<'_>,
        digests_asked: &mut u64,
        awaited: &mut PendingAnswers,
    ) -> Result<(), Stop> {
        let gives_digests = source == 0 && self.verifies;
        let is_piece = |(what, _): &&(Answer, Work)| matches!(what, Answer::Piece(_));
        while awaited.iter().filter(is_piece).count() < DEPTH
            && let Some((number, memory)) = self.pick(source)?
        {
            if gives_digests {
                // That of a piece comes before it.
                self.ask_digests(link, number + 1, digests_asked, awaited)?;
            }
            let lost = |cause| self.lost(source, Some(number), cause);
            let receive = link.receive(memory, DATA).map_err(lost)?;
            awaited.push_back((Answer::Piece(number), receive));
            link.ask(Question::Piece(number)).map_err(lost)?;
        }
        if gives_digests {
            // Others have asked for more pieces, or will soon. Behind too many digests, which are
            // to be computed, pieces would wait.
            let (needed, soon) = match &self.lock().assembly {
                Some(assembly) => assembly.digests_needed(),
                None => return Ok(()),
            };
            let soon = soon.min(*digests_asked + 1);
            self.ask_digests(link, needed.max(soon), digests_asked, awaited)?;
        }
        Ok(())
    }

    /// Asks what the source has.
    fn hello(&self, source: usize, link: &Link<'_>) -> Result<Hello, Stop> {
        let lost = |cause| self.lost(source, None, cause);
        link.ask(Question::Hello).map_err(lost)?;
        loop {
            while !link.has_hello().map_err(lost)? {
                self.pause(LOOK)?;
                self.unless_late(source, None)?;
            }
            let work = link.receive_hello().map_err(lost)?;
            self.wait(source, None, &work)?;
            let hello = Link::hello(work).map_err(lost)?;
            // One of an earlier step came after this rank had its state.
            if hello.asked == self.step {
                return Ok(hello);
            }
        }
    }

    /// The first source has told what it has: what is kept of the same is looked for.
    fn begin(&self, link: &Link<'_>, hello: Hello) -> Result<(), Stop> {
        let Hello { step, length, piece, .. } = hello;
        if step != self.step {
            return Err(TransportError::Step { sent: step, expected: self.step }.into());
        }
        let replica = link.peer.replica;
        let length = u64::try_from(length).ok().filter(|_| piece == PIECE as i64);
        let length = length.ok_or_else(|| {
            let message = format!(
                "replica {replica} announced a state of {} bytes in pieces of {piece}, and pieces \
                 have {PIECE} here: is it of another version?",
                hello.length
            );
            TransportError::Other(message)
        })?;
        let kept = self.lock().kept.take().filter(|kept| kept.length == length);
        let mut digests: Vec<Digest> = Vec::new();
        let count = kept.as_ref().map_or(0, PartialState::digests);
        while (digests.len() as u64) < count {
            let lost = |cause| self.lost(0, None, cause);
            let work = link.receive(vec![0; BATCH as usize * DIGEST], DIGESTS).map_err(lost)?;
            link.ask(Question::Digests(digests.len() as u64)).map_err(lost)?;
            self.wait(0, None, &work)?;
            let bytes = wire::bytes(work).map_err(lost)?;
            digests.extend(bytes.as_chunks::<DIGEST>().0);
        }
        digests.truncate(usize::try_from(wire::pieces_of(length)).unwrap_or(usize::MAX));
        let assembly = Assembly::new(length, kept, digests);
        if assembly.kept() > 0 {
            let kept = assembly.kept();
            tracing::info!("{kept} bytes of the state of step {step} were here already");
        }
        self.lock().assembly = Some(assembly);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the first source has told what it has; whether this one is of use.
    fn join(&self, link: &Link<'_>, hello: Hello) -> Result<(), Stop> {
        loop {
            if let Some(assembly) = &self.lock().assembly {
                let length = u64::try_from(hello.length).ok();
                if (hello.step, length) == (self.step, Some(assembly.length())) {
                    return Ok(());
                }
                break;
            }
            self.pause(SLICE)?;
            self.unless_late(0, None)?;
        }
        let (first, other) = (self.sources[0].replica, link.peer.replica);
        let Hello { step, length, .. } = hello;
        tracing::warn!(
            "replica {other} has another state than replica {first}: {length} bytes of step \
             {step}; it is not asked for pieces of that of step {}",
            self.step
        );
        self.lock().outcome.differing.insert(link.peer.rank);
        Err(Stop::Idle)
    }

    /// Asks for the digests of the pieces before `end`.
    fn ask_digests(
        &self,
        link: &Link<'_>,
        end: u64,
        asked: &mut u64,
        awaited: &mut PendingAnswers,
    ) -> Result<(), Stop> {
        while *asked < end {
            let lost = |cause| self.lost(0, None, cause);
            let work = link.receive(vec![0; BATCH as usize * DIGEST], DIGESTS).map_err(lost)?;
            awaited.push_back((Answer::Digests, work));
            link.ask(Question::Digests(*asked)).map_err(lost)?;
            *asked += BATCH;
        }
        Ok(())
    }

    fn add_digests(&self, bytes: &[u8]) {
        if let Some(assembly) = &mut self.lock().assembly {
            assembly.add_digests(bytes.as_chunks::<DIGEST>().0.iter().copied());
        }
        self.changed.notify_all();
    }

    /// The next piece for a source, and memory for it.
    fn pick(&self, source: usize) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        let mut inner = self.lock();
        self.unless_over(&inner)?;
        let Some(assembly) = &mut inner.assembly else { return Ok(None) };
        let Some(number) = assembly.pick(source, Instant::now()) else { return Ok(None) };
        match assembly.memory(number) {
            Some(memory) => Ok(Some((number, memory))),
            None => Err(TransportError::Memory(assembly.length()).into()),
        }
    }

    /// A piece is here.
    fn arrived(
        &self,
        source: usize,
        link: &Link<'_>,
        number: u64,
        bytes: Vec<u8>,
        damaged: &mut u32,
    ) -> Result<(), Stop> {
        if self.verifies {
            let right = self.digest(number)?;
            if *blake3::hash(&bytes).as_bytes() != right {
                return self.refuse(source, link, number, right, damaged);
            }
        }
        let mut inner = self.lock();
        let Inner { assembly, outcome, progress, .. } = &mut *inner;
        if let Some(assembly) = assembly {
            let is_new = assembly.put(number, bytes)?;
            outcome.pieces[source] += u64::from(is_new);
            progress.note(assembly.bytes() - assembly.kept(), assembly, self.step);
        }
        drop(inner);
        self.changed.notify_all();
        Ok(())
    }

    /// What the first source says of a piece.
    fn digest(&self, number: u64) -> Result<Digest, Stop> {
        loop {
            let digest = self.lock().assembly.as_ref().and_then(|it| it.digest(number));
            if let Some(digest) = digest {
                return Ok(digest);
            }
            self.pause(SLICE)?;
            self.unless_late(0, Some(number))?;
        }
    }

    /// A piece is not what the first source says of it.
    fn refuse(
        &self,
        source: usize,
        link: &Link<'_>,
        number: u64,
        right: Digest,
        damaged: &mut u32,
    ) -> Result<(), Stop> {
        let (first, other) = (self.sources[0].replica, link.peer.replica);
        let (pieces, times) = {
            let mut inner = self.lock();
            inner.outcome.damaged += u64::from(source == 0);
            let Some(assembly) = &mut inner.assembly else { return Ok(()) };
            let times = match source {
                0 => assembly.damage(number),
                _ => {
                    assembly.refuse(source, number);
                    0
                }
            };
            (assembly.pieces(), times)
        };
        self.changed.notify_all();
        let piece = number + 1;
        if source == 0 {
            tracing::warn!("piece {piece} of {pieces} from replica {other} came damaged");
            if times < MAX_DAMAGED {
                return Ok(());
            }
            let (replica, rank) = (other.to_owned(), link.peer.rank);
            return Err(TransportError::Damaged { replica, rank, piece, pieces, times }.into());
        }
        if self.own_digest(source, link, number)? == Some(right) {
            tracing::warn!(
                "piece {piece} of {pieces} from replica {other} came damaged; it is taken from \
                 another"
            );
            self.lock().outcome.damaged += 1;
            *damaged += 1;
            return if *damaged < MAX_DAMAGED_OF_OTHERS { Ok(()) } else { Err(Stop::Idle) };
        }
        tracing::warn!(
            "replica {other} has another state than replica {first}: piece {piece} of {pieces} \
             differs; it is taken from replica {first}, and replica {other} is not asked any more"
        );
        self.lock().outcome.differing.insert(link.peer.rank);
        Err(Stop::Idle)
    }

    /// What the source itself says of a piece that was not right.
    fn own_digest(
        &self,
        source: usize,
        link: &Link<'_>,
        number: u64,
    ) -> Result<Option<Digest>, Stop> {
        let lost = |cause| self.lost(source, Some(number), cause);
        let work = link.receive(vec![0; BATCH as usize * DIGEST], DIGESTS).map_err(lost)?;
        link.ask(Question::Digests(number)).map_err(lost)?;
        self.wait(source, Some(number), &work)?;
        Ok(wire::bytes(work).map_err(lost)?.first_chunk().copied())
    }

    /// Waits for an answer of `source`.
    fn wait(&self, source: usize, number: Option<u64>, work: &Work) -> Result<(), Stop> {
        loop {
            if let Some(ended) = work.wait_slice(SLICE) {
                return ended.map_err(|cause| self.lost(source, number, cause).into());
            }
            self.unless_over(&self.lock())?;
            self.unless_late(source, number)?;
        }
    }

    /// Waits for others, not longer than `limit`.
    fn pause(&self, limit: Duration) -> Result<(), Stop> {
        let inner = self.lock();
        self.unless_over(&inner)?;
        let waited = self.changed.wait_timeout(inner, limit);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.unless_over(&inner)
    }

    /// Stops if nothing is left to do.
    fn unless_over(&self, inner: &Inner) -> Result<(), Stop> {
        let is_whole = inner.assembly.as_ref().is_some_and(Assembly::is_whole);
        if is_whole || inner.failed.is_some() { Err(Stop::Idle) } else { Ok(()) }
    }

    fn unless_late(&self, source: usize, number: Option<u64>) -> Result<(), Stop> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let inner = self.lock();
        let (bytes, all) = inner.assembly.as_ref().map_or((0, 0), |it| (it.bytes(), it.length()));
        let missing = format!(", {}", self.what(source, number, inner.assembly.as_ref()));
        Err(TransportError::Late { bytes, all, missing }.into())
    }

    fn what(&self, source: usize, number: Option<u64>, assembly: Option<&Assembly>) -> String {
        let replica = self.sources[source].replica;
        let pieces = assembly.map_or(0, Assembly::pieces);
        match number {
            Some(number) => format!("piece {} of {pieces} from replica {replica}", number + 1),
            None => format!("what replica {replica} says of its state"),
        }
    }

    fn lost(&self, source: usize, number: Option<u64>, cause: Error) -> TransportError {
        let pieces = self.lock().assembly.as_ref().map_or(0, Assembly::pieces);
        let what = match number {
            Some(number) => format!("piece {} of {pieces}", number + 1),
            None => "the state".to_owned(),
        };
        let replica = self.sources[source].replica.to_owned();
        TransportError::Lost { what, replica, cause: Box::new(cause) }
    }
}
