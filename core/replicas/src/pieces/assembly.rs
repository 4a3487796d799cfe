//! A state that is put together from pieces, as they come: which are there, and which one a source
//! is asked for next. Knows no messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::wire::{Digest, PIECE, piece_length, pieces_of};
use crate::transport::TransportError;

/// So many pieces may be on their way or here while the one before them is not: what may be in
/// memory besides the state.
const WINDOW: u64 = 32;
/// A piece that has not come for so long is asked for at another source too.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often may a piece come damaged from the source whose state counts.
pub(super) const MAX_DAMAGED: u32 = 3;

/// What is kept of a state that did not come whole, for the next quorum at the same step.
#[derive(Debug, Default)]
pub(super) struct PartialState {
    pub(super) step: i64,
    pub(super) length: u64,
    /// The pieces from the first one on.
    state: Vec<u8>,
    /// Others, behind one that is missing.
    parked: BTreeMap<u64, Vec<u8>>,
    /// Of all that is kept, and perhaps of more.
    digests: Vec<Digest>,
}

impl PartialState {
    /// How many digests say whether it is of another state.
    pub(super) fn digests(&self) -> u64 {
        self.digests.len() as u64
    }
}

/// A state that comes.
#[derive(Debug)]
pub(super) struct Assembly {
    length: u64,
    pieces: u64,
    /// The pieces from the first one on. It grows as they come, and is never as long as somebody
    /// says that it will be.
    state: Vec<u8>,
    parked: BTreeMap<u64, Vec<u8>>,
    digests: Vec<Digest>,
    /// The first piece that nobody was asked for.
    next: u64,
    /// Who was asked for a piece that has not come, and when.
    asked: BTreeMap<u64, (usize, Instant)>,
    /// What is to be asked for anew.
    again: BTreeSet<u64>,
    /// From whom a piece was not right.
    refused: BTreeMap<u64, BTreeSet<usize>>,
    /// How often a piece came damaged from the first source.
    damaged: BTreeMap<u64, u32>,
    /// Bytes that were kept.
    kept: u64,
    /// Memory of pieces that are in the state.
    spare: Vec<Vec<u8>>,
}

impl Assembly {
    /// Of a state of `length` bytes. What is `kept` counts as far as its digests are the `digests`
    /// that the source has now.
    pub(super) fn new(length: u64, kept: Option<PartialState>, digests: Vec<Digest>) -> Assembly {
        let PartialState { mut state, mut parked, digests: before, .. } = kept.unwrap_or_default();
        let is_same = |number: u64| {
            let of = |all: &[Digest]| all.get(number as usize).copied();
            of(&digests).is_some() && of(&digests) == of(&before)
        };
        let right = (0..pieces_of(state.len() as u64)).take_while(|number| is_same(*number));
        state.truncate((right.count() * PIECE).min(state.len()));
        parked.retain(|number, _| is_same(*number));
        let parked_bytes: usize = parked.values().map(Vec::len).sum();
        let kept = (state.len() + parked_bytes) as u64;
        let next = pieces_of(state.len() as u64);
        Assembly {
            length,
            pieces: pieces_of(length),
            state,
            parked,
            digests,
            next,
            asked: BTreeMap::new(),
            again: BTreeSet::new(),
            refused: BTreeMap::new(),
            damaged: BTreeMap::new(),
            kept,
            spare: Vec::new(),
        }
    }

    /// The first piece that is missing.
    fn first_missing(&self) -> u64 {
        pieces_of(self.state.len() as u64)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.state.len() as u64 == self.length
    }

    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that are here.
    pub(super) fn bytes(&self) -> u64 {
        (self.state.len() + self.parked.values().map(Vec::len).sum::<usize>()) as u64
    }

    /// Bytes that were here before.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// Which piece `source` is asked for next.
    pub(super) fn pick(&mut self, source: usize, now: Instant) -> Option<u64> {
        let may = |number: &u64| !self.refused.get(number).is_some_and(|by| by.contains(&source));
        let again = self.again.iter().copied().find(may);
        let number = again.or_else(|| self.pick_new()).or_else(|| {
            let late = self.asked.iter().find(|(number, (asked, since))| {
                *asked != source && now.duration_since(*since) >= PATIENCE && may(number)
            });
            late.map(|(number, _)| *number)
        })?;
        self.again.remove(&number);
        self.next = self.next.max(number + 1);
        self.asked.insert(number, (source, now));
        Some(number)
    }

    fn pick_new(&self) -> Option<u64> {
        let end = self.pieces.min(self.first_missing().saturating_add(WINDOW));
        (self.next..end).find(|number| !self.parked.contains_key(number))
    }

    /// The piece will not come from `source`.
    pub(super) fn give_back(&mut self, source: usize, number: u64) {
        if self.asked.get(&number).is_some_and(|(asked, _)| *asked == source) {
            self.asked.remove(&number);
            self.again.insert(number);
        }
    }

    /// The piece that came from `source` is not right, and must come from another one.
    pub(super) fn refuse(&mut self, source: usize, number: u64) {
        if !self.has(number) {
            self.refused.entry(number).or_default().insert(source);
            self.asked.remove(&number);
            self.again.insert(number);
        }
    }

    /// As [`Assembly::refuse`], from the first source, which may be asked again; how often that was
    /// so.
    pub(super) fn damage(&mut self, number: u64) -> u32 {
        self.asked.remove(&number);
        self.again.insert(number);
        let times = self.damaged.entry(number).or_default();
        *times += 1;
        *times
    }

    fn has(&self, number: u64) -> bool {
        number < self.first_missing() || self.parked.contains_key(&number)
    }

    /// A piece that is right is here; whether it was not before.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn put(&mut self, number: u64, bytes: Vec<u8>) -> Result<bool, TransportError> {
        if self.has(number) {
            self.spare.push(bytes);
            return Ok(false);
        }
        self.asked.remove(&number);
        self.again.remove(&number);
        self.refused.remove(&number);
        if number > self.first_missing() {
            self.parked.insert(number, bytes);
            return Ok(true);
        }
        let has_room = self.append(bytes).is_some() && self.append_parked();
        if has_room { Ok(true) } else { Err(TransportError::Memory(self.length())) }
    }

    /// False if there is no memory for it.
    fn append_parked(&mut self) -> bool {
        while !self.is_whole()
            && let Some(bytes) = self.parked.remove(&self.first_missing())
        {
            if self.append(bytes).is_none() {
                return false;
            }
        }
        true
    }

    fn append(&mut self, bytes: Vec<u8>) -> Option<()> {
        self.state.try_reserve(bytes.len()).ok()?;
        self.state.extend_from_slice(&bytes);
        self.spare.push(bytes);
        Some(())
    }

    /// Memory for a piece; none if there is no such piece, or no such memory.
    pub(super) fn memory(&mut self, number: u64) -> Option<Vec<u8>> {
        let length = piece_length(self.length, number)?;
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.try_reserve_exact(length.saturating_sub(memory.len())).ok()?;
        memory.resize(length, 0);
        Some(memory)
    }

    /// Digests of the first source, which come in their order.
    pub(super) fn add_digests(&mut self, digests: impl IntoIterator<Item = Digest>) {
        self.digests.extend(digests);
    }

    pub(super) fn digest(&self, number: u64) -> Option<Digest> {
        self.digests.get(number as usize).copied()
    }

    /// How many digests are needed by now, from the first one on, and how many soon.
    pub(super) fn digests_needed(&self) -> (u64, u64) {
        let soon = self.next.saturating_add(WINDOW);
        (self.pieces.min(self.next), self.pieces.min(soon))
    }

    /// How many there are.
    pub(super) fn digests(&self) -> u64 {
        self.digests.len() as u64
    }

    /// The whole state.
    pub(super) fn into_state(self) -> Vec<u8> {
        self.state
    }

    /// What is here of it.
    pub(super) fn keep(self, step: i64) -> PartialState {
        let Assembly { length, state, parked, digests, .. } = self;
        PartialState { step, length, state, parked, digests }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn piece(number: u64) -> Vec<u8> {
        vec![number as u8; PIECE]
    }

    fn digest(number: u64) -> Digest {
        [number as u8; 32]
    }

    #[test]
    fn pieces_in_any_order_are_put_in_theirs_and_an_announced_length_takes_no_memory() {
        let now = Instant::now();
        let mut huge = Assembly::new(i64::MAX as u64, None, Vec::new());
        let asked: Vec<u64> = std::iter::from_fn(|| huge.pick(0, now)).collect();
        assert_eq!(asked, (0..WINDOW).collect::<Vec<_>>());
        assert_eq!(huge.state.capacity(), 0);
        huge.put(0, piece(0)).unwrap();
        assert!(huge.state.capacity() <= 2 * PIECE);
        let mut made = Assembly::new((4 * PIECE) as u64 - 1, None, Vec::new());
        for number in [2, 0, 3, 1] {
            assert!(!made.is_whole());
            let length = made.memory(number).unwrap().len();
            assert!(made.put(number, vec![number as u8; length]).unwrap());
            assert!(!made.put(number, piece(9)).unwrap(), "it is here");
        }
        assert!(made.is_whole() && made.memory(4).is_none());
        let whole = [piece(0), piece(1), piece(2), vec![3; PIECE - 1]].concat();
        assert!(made.into_state() == whole);
    }

    #[test]
    fn a_piece_that_is_not_right_or_late_comes_from_another_source() {
        let now = Instant::now();
        let mut made = Assembly::new((2 * PIECE) as u64, None, Vec::new());
        assert_eq!((made.pick(1, now), made.pick(2, now)), (Some(0), Some(1)));
        assert_eq!(made.pick(0, now), None, "both are on their way");
        made.refuse(1, 0);
        assert_eq!((made.pick(1, now), made.pick(0, now)), (None, Some(0)));
        made.give_back(2, 1);
        assert_eq!(made.pick(1, now), Some(1));
        assert_eq!(made.pick(2, now + PATIENCE), Some(0), "the source is silent");
        assert_eq!((made.damage(1), made.damage(1)), (1, 2));
    }

    #[test]
    fn what_is_kept_counts_as_far_as_it_is_of_the_same_state() {
        let length = (5 * PIECE) as u64;
        let kept = || {
            let mut made = Assembly::new(length, None, (0..5).map(digest).collect());
            [0, 1, 3].into_iter().for_each(|number| {
                made.put(number, piece(number)).unwrap();
            });
            Some(made.keep(7))
        };
        let now = Instant::now();
        let rest = |mut made: Assembly| -> (u64, Vec<u64>) {
            (made.kept() / PIECE as u64, std::iter::from_fn(|| made.pick(0, now)).collect())
        };
        let same = Assembly::new(length, kept(), (0..5).map(digest).collect());
        assert_eq!(rest(same), (3, vec![2, 4]));
        let other = [0, 9, 2, 3, 4].map(digest).to_vec();
        assert_eq!(rest(Assembly::new(length, kept(), other)), (2, vec![1, 2, 4]));
        assert_eq!(rest(Assembly::new(length, kept(), Vec::new())), (0, vec![0, 1, 2, 3, 4]));
    }
}
