//! The board in shared memory: one file for each rank, which that rank alone writes and all others
//! read. Others open the file through the descriptors of the rank's process in `/proc`, which they
//! may if it belongs to the same user; if not, there is no board. Knows nothing of operations.
//!
//! A file is a head and [`BOARD_PLACES`] places. In the head, one cache line says whether the rank
//! sleeps, and another how far it is: up to which operation it has read the places of others, has
//! read their memory, and has computed its part of the result. A place is a line with the sequence
//! number, the fingerprint and the first bytes, followed by lines with the rest, so that an
//! operation of four bytes needs one line only. The sequence number is stored last, and a place is
//! overwritten only when all ranks have passed it, so what a rank reads under a number is complete.
//!
//! Nothing that is read is trusted: a length is checked, and bytes are copied before they are used.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::attach::{LendableMemory, PeerMemory};
use super::memory::{File, Mapping};
use super::ring::SharedMemory;
use crate::transport::Rank;
use crate::transport::board::{Attention, BOARD_BYTES, BOARD_PLACES, Board, REASON_BYTES, Slot};
use crate::wire::card::{BoardKey, Card};
use crate::wire::frame::Fingerprint;

/// Bytes of a cache line; two ranks that write the same line wait for each other.
const LINE_BYTES: usize = 64;
/// The first word: the kind of the file, and the version of its layout.
const MARK: u64 = u64::from_le_bytes(*b"plrboard") ^ 5;
const NONCE_AT: usize = 8;
/// Where the file lies in the memory of its owner.
const OWN_ADDRESS_AT: usize = 16;
pub(super) const ATTENTION_AT: usize = 2 * LINE_BYTES;
pub(super) const PASSED_AT: usize = 4 * LINE_BYTES;
/// The last operation of whose result the rank has computed its part.
const RESULT_AT: usize = PASSED_AT + 8;
/// The last operation for which the rank has read the memory of others.
const READ_AT: usize = PASSED_AT + 16;
const PLACES_AT: usize = 6 * LINE_BYTES;

/// The states of a rank; zero if it is awake.
const ASLEEP: u64 = 1;
const WITHDRAWN: u64 = 2;
const LEFT: u64 = 3;

/// In a place: sequence number, length and what the rank has passed, fingerprint, bytes.
const LENGTH_AT: usize = 8;
const PASSED_THEN_AT: usize = 16;
const FINGERPRINT_AT: usize = 24;
pub(super) const BYTES_AT: usize = FINGERPRINT_AT + Fingerprint::BYTES;
const PLACE: usize = (BYTES_AT + BOARD_BYTES).next_multiple_of(LINE_BYTES);

/// Behind the places: the length of the reason for which the rank failed, and the reason.
const REASON_AT: usize = PLACES_AT + BOARD_PLACES as usize * PLACE;
const REASON_LENGTH_BYTES: usize = 8;

/// Bytes of a rank's file.
const FILE_BYTES: usize = REASON_AT + REASON_LENGTH_BYTES + REASON_BYTES;

/// Most ranks of a board, since each reads all others.
const MAX_RANKS: usize = 16;

/// This rank's part of a board that the others may join, for as long as it lives.
#[derive(Debug)]
pub struct Offer {
    file: File,
    /// None once a board has it.
    own: Option<Mapping>,
    nonce: u64,
}

impl Offer {
    /// Memory with `nonce` in it, which no other memory has.
    ///
    /// # Errors
    /// The system's error, in words.
    pub fn new(nonce: u64) -> Result<Offer, String> {
        let words = |error| format!("cannot allocate shared memory: {error}");
        let file = File::new(FILE_BYTES).map_err(words)?;
        let own = file.map().map_err(words)?;
        own.store(NONCE_AT, nonce);
        own.store(OWN_ADDRESS_AT, own.start() as u64);
        own.store(0, MARK);
        Ok(Offer { file, own: Some(own), nonce })
    }

    /// What the others need to find it.
    pub fn key(&self) -> BoardKey {
        let descriptor = self.file.as_fd().as_raw_fd().unsigned_abs();
        BoardKey { descriptor, nonce: self.nonce }
    }

    /// Whether the ranks of `cards` can have a board.
    pub fn suits(cards: &[Card]) -> bool {
        let host = cards.first().map(|card| &card.host);
        let is_here = |card: &Card| Some(&card.host) == host && card.board.is_some();
        cards.len() <= MAX_RANKS && cards.iter().all(is_here)
    }

    /// The board of `rank` in the group whose ranks published `cards`, if all their parts can be
    /// found. It is used only if every rank finds all parts, and this offer must be kept until all
    /// have looked. An offer is joined once.
    ///
    /// # Errors
    /// What cannot be found, in words.
    pub fn join(&mut self, rank: Rank, cards: &[Card]) -> Result<Box<dyn Board>, String> {
        let mut memories = Vec::with_capacity(cards.len());
        let mut peers = Vec::with_capacity(cards.len());
        for (other, card) in (0..).zip(cards) {
            memories.push(match self.own.take_if(|_| other == rank) {
                Some(own) => own,
                None => find(card).map_err(|why| format!("rank {other}: {why}"))?,
            });
            peers.push(memories.last().and_then(|memory| own_memory(card, memory)));
        }
        Ok(Box::new(SharedBoard::new(rank, memories, peers)))
    }
}

/// The part of the board of the rank of `card`, which is on this host.
fn find(card: &Card) -> Result<Mapping, String> {
    let key = card.board.ok_or("it offers no board")?;
    let path = format!("/proc/{}/fd/{}", card.process_id, key.descriptor);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd = open(&path, flags, Mode::empty()).map_err(|error| format!("{path}: {error}"))?;
    let memory = File::from_peer(fd, FILE_BYTES)?.map().map_err(|error| error.to_string())?;
    if (memory.load(0), memory.load(NONCE_AT)) != (MARK, key.nonce) {
        return Err(format!("{path} is another process's memory"));
    }
    Ok(memory)
}

/// What the process of `card`, whose part of the board is `part`, has as its own memory, if this
/// process may read that.
fn own_memory(card: &Card, part: &Mapping) -> Option<PeerMemory> {
    let address = usize::try_from(part.load(OWN_ADDRESS_AT)).ok()?;
    let process = i32::try_from(card.process_id).ok()?;
    PeerMemory::with_nonce(process, address.checked_add(NONCE_AT)?, part.load(NONCE_AT))
}

/// A board over the memories of all ranks.
pub(super) struct SharedBoard<M> {
    rank: Rank,
    /// By rank; this rank writes its own only.
    memories: Vec<M>,
    /// By rank: what its process has as its own memory, if this process may read that.
    peers: Vec<Option<PeerMemory>>,
    /// Whether every rank may read every other's.
    reads_memory: bool,
    /// By rank: the operation that it is known to have passed.
    passed: Vec<u64>,
    lendable: LendableMemory,
}

impl<M: SharedMemory> SharedBoard<M> {
    /// A board of `rank` over the memories of all ranks, whose places have only zeros, and what can
    /// be read of their processes.
    pub(super) fn new(
        rank: Rank,
        memories: Vec<M>,
        peers: Vec<Option<PeerMemory>>,
    ) -> SharedBoard<M> {
        let passed = vec![0; memories.len()];
        let is_readable = |(other, peer): (Rank, &Option<_>)| other == rank || peer.is_some();
        let reads_memory = !peers.is_empty() && (0..).zip(&peers).all(is_readable);
        SharedBoard {
            rank,
            memories,
            peers,
            reads_memory,
            passed,
            lendable: LendableMemory::default(),
        }
    }

    fn own(&self) -> &M {
        &self.memories[self.rank as usize]
    }

    /// Whether all ranks have passed `sequence`.
    fn have_passed(&mut self, sequence: u64) -> bool {
        let ranks = self.memories.iter().zip(&mut self.passed);
        ranks.into_iter().all(|(memory, known)| {
            if sequence > *known {
                *known = memory.load(PASSED_AT);
            }
            sequence <= *known
        })
    }
}

/// A fingerprint as words, in the order of its encoding.
fn words(fingerprint: &Fingerprint) -> [u64; 3] {
    let Fingerprint { collective, dtype, reduce_op, algorithm, root, elements, detail } =
        *fingerprint;
    let small = u32::from_le_bytes([collective, dtype, reduce_op, algorithm]);
    [u64::from(small) | u64::from(root) << 32, elements, detail]
}

#[inline]
fn of_words([small, elements, detail]: [u64; 3]) -> Fingerprint {
    let [collective, dtype, reduce_op, algorithm] = (small as u32).to_le_bytes();
    let root = (small >> 32) as u32;
    Fingerprint { collective, dtype, reduce_op, algorithm, root, elements, detail }
}

/// Writes why this rank failed or leaves, unless that is too long.
fn give_reason(own: &impl SharedMemory, reason: &[u8]) {
    if reason.len() <= REASON_BYTES {
        own.write(REASON_AT + REASON_LENGTH_BYTES, reason);
        own.store(REASON_AT, reason.len() as u64);
    }
}

/// The fingerprint at `place`.
#[inline]
fn printed(memory: &impl SharedMemory, place: usize) -> Fingerprint {
    let word = |index: usize| memory.load(place + FINGERPRINT_AT + 8 * index);
    of_words([word(0), word(1), word(2)])
}

/// Where in a file the place of an operation is.
pub(super) fn place(sequence: u64) -> usize {
    PLACES_AT + (sequence % BOARD_PLACES) as usize * PLACE
}

impl<M: SharedMemory + Send> Board for SharedBoard<M> {
    fn size(&self) -> u32 {
        self.memories.len() as u32
    }

    fn write(&mut self, sequence: u64, fingerprint: &Fingerprint, payload: &[u8]) -> bool {
        if !self.have_passed(sequence.saturating_sub(BOARD_PLACES)) {
            return false;
        }
        debug_assert!(payload.len() <= BOARD_BYTES, "{} bytes", payload.len());
        let (own, place) = (self.own(), place(sequence));
        own.store(place + LENGTH_AT, payload.len() as u64);
        own.store(place + PASSED_THEN_AT, self.passed[self.rank as usize]);
        for (index, word) in words(fingerprint).into_iter().enumerate() {
            own.store(place + FINGERPRINT_AT + 8 * index, word);
        }
        own.write(place + BYTES_AT, payload);
        own.store(place, sequence);
        true
    }

    fn change(&mut self, sequence: u64, payload: &[u8]) {
        let (own, place) = (self.own(), place(sequence));
        debug_assert_eq!(own.load(place), sequence, "shows another operation");
        debug_assert_eq!(own.load(place + LENGTH_AT), payload.len() as u64);
        for (index, word) in payload.as_chunks().0.iter().enumerate() {
            own.store(place + BYTES_AT + 8 * index, u64::from_ne_bytes(*word));
        }
        own.fence();
    }

    fn shows(&self, rank: Rank, sequence: u64) -> bool {
        self.memories[rank as usize].load(place(sequence)) == sequence
    }

    fn fingerprint(&self, rank: Rank, sequence: u64) -> Option<Fingerprint> {
        self.shows(rank, sequence).then(|| printed(&self.memories[rank as usize], place(sequence)))
    }

    fn read(&mut self, rank: Rank, sequence: u64, wanted: Range<usize>, into: &mut [u8]) -> Slot {
        let (memory, place) = (&self.memories[rank as usize], place(sequence));
        if memory.load(place) != sequence {
            return Slot::Empty;
        }
        let length = memory.load(place + LENGTH_AT);
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= into.len())
        else {
            return Slot::Corrupt;
        };
        // Remembers that, which may save the next read of what it has passed.
        let passed = &mut self.passed[rank as usize];
        *passed = (*passed).max(memory.load(place + PASSED_THEN_AT));
        let fingerprint = printed(memory, place);
        let end = wanted.end.min(length);
        let start = wanted.start.min(end);
        memory.read(place + BYTES_AT + start, &mut into[start..end]);
        Slot::Bytes(length, fingerprint)
    }

    fn pass(&mut self, sequence: u64) {
        self.passed[self.rank as usize] = sequence;
        self.own().store(PASSED_AT, sequence);
        // What this rank shows next; the others still have the line of an earlier operation.
        self.own().expect_write(place(sequence + 1));
    }

    fn passed(&self, rank: Rank) -> u64 {
        self.memories[rank as usize].load(PASSED_AT)
    }

    fn show_result(&mut self, sequence: u64) {
        let own = self.own();
        own.store(RESULT_AT, sequence);
        // The check whether the others sleep comes after that is visible to them.
        own.fence();
    }

    fn shows_result(&self, rank: Rank, sequence: u64) -> bool {
        self.memories[rank as usize].load(RESULT_AT) >= sequence
    }

    fn end_reading(&mut self, sequence: u64) {
        let own = self.own();
        own.store(READ_AT, sequence);
        own.fence();
    }

    fn has_read(&self, rank: Rank, sequence: u64) -> bool {
        self.memories[rank as usize].load(READ_AT) >= sequence
    }

    fn set_asleep(&mut self, asleep: bool) {
        let own = self.own();
        if own.load(ATTENTION_AT) <= ASLEEP {
            own.store(ATTENTION_AT, if asleep { ASLEEP } else { 0 });
            own.fence();
        }
    }

    fn withdraw(&mut self, reason: &[u8]) {
        let own = self.own();
        if own.load(ATTENTION_AT) > ASLEEP {
            return;
        }
        give_reason(own, reason);
        own.store(ATTENTION_AT, WITHDRAWN);
        // A rank that sees the end of the connection then sees this, too, and so does one that has
        // read memory which the caller got back.
        own.fence();
    }

    fn reason(&self, rank: Rank) -> Option<Vec<u8>> {
        let memory = &self.memories[rank as usize];
        if !matches!(memory.load(ATTENTION_AT), WITHDRAWN | LEFT) {
            return None;
        }
        let bytes = usize::try_from(memory.load(REASON_AT)).ok();
        let mut reason = vec![0; bytes.filter(|bytes| (1..=REASON_BYTES).contains(bytes))?];
        memory.read(REASON_AT + REASON_LENGTH_BYTES, &mut reason);
        Some(reason)
    }

    fn leave(&mut self, reason: &[u8]) {
        give_reason(self.own(), reason);
        self.own().store(ATTENTION_AT, LEFT);
        // A rank that sees the end of the connection then sees this, too.
        self.own().fence();
    }

    fn attention(&self, rank: Rank) -> Attention {
        match self.memories[rank as usize].load(ATTENTION_AT) {
            0 => Attention::Awake,
            WITHDRAWN => Attention::Withdrawn,
            LEFT => Attention::Left,
            _ => Attention::Asleep,
        }
    }

    fn fence(&self) {
        self.own().fence();
    }

    fn reads_memory(&self) -> bool {
        self.reads_memory
    }

    fn forbid_reading(&mut self) {
        self.reads_memory = false;
    }

    fn can_lend(&mut self, address: u64, bytes: u64) -> bool {
        let place = usize::try_from(address).ok().zip(usize::try_from(bytes).ok());
        place.is_some_and(|(address, bytes)| self.lendable.contains(address, bytes))
    }

    fn read_memory(&self, rank: Rank, address: u64, into: &mut [u8]) -> Result<bool, String> {
        let peer = self.peers.get(rank as usize).and_then(Option::as_ref);
        let (Some(peer), Ok(address)) = (peer, usize::try_from(address)) else {
            return Err("nothing may be read there".to_owned());
        };
        match peer.read(address, into) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The boards of a group whose ranks are all in this process.
#[cfg(test)]
pub(crate) fn in_one_process(size: u32) -> Vec<Box<dyn Board>> {
    #![allow(clippy::unwrap_used)]
    let offers: Vec<Offer> =
        (1..).map(|nonce| Offer::new(nonce).unwrap()).take(size as usize).collect();
    let card = |offer: &Offer| {
        let card = Card::new("here", std::process::id(), Vec::new());
        Card { board: Some(offer.key()), ..card }
    };
    let cards: Vec<Card> = offers.iter().map(card).collect();
    assert!(Offer::suits(&cards));
    let memories = |_| cards.iter().map(|card| find(card).unwrap()).collect::<Vec<_>>();
    let all: Vec<Vec<Mapping>> = (0..size).map(memories).collect();
    let board = |(rank, memories): (Rank, Vec<Mapping>)| {
        let peers = cards.iter().zip(&memories).map(|(card, part)| own_memory(card, part));
        let peers = peers.collect();
        Box::new(SharedBoard::new(rank, memories, peers)) as Box<dyn Board>
    };
    // The mappings of the offers end here.
    for (rank, memories) in all.iter().enumerate() {
        memories[rank].store(OWN_ADDRESS_AT, memories[rank].start() as u64);
    }
    (0..).zip(all).map(board).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PRINT: Fingerprint = Fingerprint::EXAMPLE;
    /// All that is shown.
    const WHOLE: Range<usize> = 0..usize::MAX;

    #[test]
    fn what_one_shows_all_read() {
        let mut boards = in_one_process(3);
        let mut into = [0; BOARD_BYTES];
        for bytes in [0, 1, 24, 4095, BOARD_BYTES] {
            let sequence = bytes as u64 + 1;
            let payload: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
            boards.iter_mut().for_each(|board| board.pass(sequence - 1));
            assert_eq!(boards[2].read(1, sequence, WHOLE, &mut into), Slot::Empty);
            assert!(boards[1].show(sequence, &PRINT, &payload));
            for board in &mut boards {
                assert!(board.shows(1, sequence) && !board.shows(0, sequence));
                assert_eq!(board.fingerprint(1, sequence), Some(PRINT));
                assert_eq!(board.fingerprint(0, sequence), None);
                into.fill(99);
                let slot = board.read(1, sequence, 1..bytes / 2, &mut into);
                assert_eq!(slot, Slot::Bytes(bytes, PRINT));
                let wanted = 1..(bytes / 2).max(1);
                assert_eq!(
                    into[wanted.clone()],
                    payload[wanted.start.min(bytes)..][..wanted.len()]
                );
                assert!(into[wanted.end..].iter().chain(&into[..1]).all(|byte| *byte == 99));
                assert_eq!(board.read(1, sequence, WHOLE, &mut into), Slot::Bytes(bytes, PRINT));
                assert_eq!(into[..bytes], payload);
            }
        }
    }

    #[test]
    fn a_place_is_kept_until_all_have_passed_it() {
        let mut boards = in_one_process(2);
        for sequence in 1..=BOARD_PLACES {
            assert!(boards[0].show(sequence, &PRINT, &[sequence as u8]));
        }
        let next = BOARD_PLACES + 1;
        assert!(!boards[0].show(next, &PRINT, &[]), "nobody has passed the first");
        boards[0].pass(1);
        assert!(!boards[0].show(next, &PRINT, &[]), "the other has not");
        boards[1].pass(1);
        assert!(boards[0].show(next, &PRINT, &[]));
        assert!(!boards[0].show(next + 1, &PRINT, &[]));
    }

    #[test]
    fn how_far_a_rank_is_is_seen_by_all() {
        let mut boards = in_one_process(2);
        let seen = |boards: &[Box<dyn Board>], sequence| {
            let of = |rank: usize| {
                (boards[rank].shows_result(1, sequence), boards[rank].has_read(1, sequence))
            };
            (of(0), of(1), boards[0].has_read(0, sequence))
        };
        assert_eq!(seen(&boards, 1), ((false, false), (false, false), false));
        boards[1].show_result(7);
        assert_eq!(seen(&boards, 7), ((true, false), (true, false), false));
        boards[1].end_reading(6);
        assert_eq!(seen(&boards, 6), ((true, true), (true, true), false));
        assert_eq!(seen(&boards, 8), ((false, false), (false, false), false));
    }

    #[test]
    fn what_is_shown_can_be_changed() {
        let mut boards = in_one_process(2);
        let mut into = [0; BOARD_BYTES];
        assert!(boards[0].show(1, &PRINT, &[1; 32]));
        boards[0].change(1, &[2; 32]);
        for board in &mut boards {
            assert_eq!(board.read(0, 1, WHOLE, &mut into), Slot::Bytes(32, PRINT));
            assert_eq!(into[..32], [2; 32]);
        }
    }

    #[test]
    fn sleepers_are_seen() {
        let mut boards = in_one_process(2);
        assert_eq!(boards[0].attention(1), Attention::Awake);
        boards[1].set_asleep(true);
        assert!(boards[0].attention(1) == Attention::Asleep);
        boards[1].set_asleep(false);
        assert_eq!(boards[0].attention(1), Attention::Awake);
        boards[1].withdraw(b"why");
        boards[1].set_asleep(true);
        assert_eq!(boards[0].attention(1), Attention::Withdrawn, "for good");
        boards[0].leave(&[]);
        boards[0].set_asleep(true);
        assert_eq!(boards[1].attention(0), Attention::Left, "for good");
    }

    #[test]
    fn a_rank_reads_what_another_can_lend() {
        let mut boards = in_one_process(2);
        let lent = vec![7_u8; 5000];
        let address = lent.as_ptr() as u64;
        assert!(boards[1].can_lend(address, 5000) && !boards[1].can_lend(8, 5000));
        let mut into = [0; 5000];
        assert_eq!(boards[0].read_memory(1, address, &mut into), Ok(true));
        assert_eq!(into[..], lent);
    }

    #[test]
    fn why_a_rank_failed_stays_to_be_read() {
        for bytes in [0, 1, 7, REASON_BYTES, REASON_BYTES + 1] {
            let mut boards = in_one_process(2);
            let reason: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
            assert_eq!(boards[0].reason(1), None);
            boards[1].withdraw(&reason);
            boards[1].withdraw(b"another one");
            drop(boards.pop());
            assert_eq!(boards[0].attention(1), Attention::Withdrawn);
            let fits = (1..=REASON_BYTES).contains(&bytes);
            assert_eq!(boards[0].reason(1), fits.then_some(reason));
            assert_eq!(boards[0].reason(0), None);
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_nonsense() {
        let offer = Offer::new(7).unwrap();
        let card = Card::new("here", std::process::id(), Vec::new());
        let card = Card { board: Some(offer.key()), ..card };
        let mad = find(&card).unwrap();
        let mut board =
            SharedBoard::new(0, vec![find(&card).unwrap(), find(&card).unwrap()], vec![]);
        let mut into = [0; BOARD_BYTES];
        for length in [BOARD_BYTES as u64 + 1, u64::MAX] {
            mad.store(place(3) + LENGTH_AT, length);
            mad.store(place(3), 3);
            assert_eq!(board.read(1, 3, WHOLE, &mut into), Slot::Corrupt);
            mad.store(REASON_AT, length);
            mad.store(ATTENTION_AT, WITHDRAWN);
            assert_eq!(board.reason(1), None);
        }
    }

    #[test]
    fn the_memory_of_others_is_not_taken_for_a_board() {
        let offer = Offer::new(7).unwrap();
        let key = offer.key();
        let card = Card::new("here", std::process::id(), Vec::new());
        let with = |board| Card { board: Some(board), ..card.clone() };
        let error = find(&with(BoardKey { nonce: 8, ..key })).err().unwrap();
        assert!(error.contains("another process"), "{error}");
        let error = find(&with(BoardKey { descriptor: 0, ..key })).err().unwrap();
        assert!(!error.is_empty());
        assert!(find(&with(key)).is_ok());
        assert!(!Offer::suits(&[with(key), card.clone()]), "one offers none");
        let elsewhere = Card { host: "there".to_owned(), ..with(key) };
        assert!(!Offer::suits(&[with(key), elsewhere]));
    }
}
