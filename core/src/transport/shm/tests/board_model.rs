//! The protocol of the board in a model checker, as `model` does it for the rings. One place and
//! one word of payload are enough: places do not know of each other. Each ordering that the board
//! asks for is taken away once, and the check that needs it must fail.

#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};

use super::super::board::{ATTENTION_AT, BYTES_AT, PASSED_AT, SharedBoard, place};
use super::super::ring::SharedMemory;
use crate::transport::board::{Attention, BOARD_PLACES, Board, Slot};
use crate::wire::frame::Fingerprint;

/// The words of a rank's memory that the operations of the model use: what the head says, then the
/// place without its payload.
struct Words {
    asleep: AtomicU64,
    passed: AtomicU64,
    place: Vec<AtomicU64>,
    payload: UnsafeCell<u64>,
    flaw: Option<Flaw>,
}

/// What the memories lack, so that a check which needs it must fail: this shows that the checker
/// looks where it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// The store of this word is not behind what was written or read before.
    Store(Word),
    /// What was written before the store of this word cannot be read after its load.
    Load(Word),
    /// The memory of this rank has no fences, so that it and another may both miss each other.
    Fence(usize),
}

/// The words on which others rely.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The sequence number of the place.
    Number,
    /// Up to which operation a rank has read.
    Passed,
}

impl Word {
    fn at(at: usize) -> Option<Word> {
        match at {
            PASSED_AT => Some(Word::Passed),
            _ if at == place(1) => Some(Word::Number),
            _ => None,
        }
    }
}

#[derive(Clone)]
struct Memory(Arc<Words>);

// SAFETY: the checker is told of each access to the payload, and fails if two threads have it.
unsafe impl Sync for Words {}
// SAFETY: as above.
unsafe impl Send for Words {}

impl Memory {
    fn new(flaw: Option<Flaw>) -> Memory {
        Memory(Arc::new(Words {
            flaw,
            asleep: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            place: (0..BYTES_AT / 8).map(|_| AtomicU64::new(0)).collect(),
            payload: UnsafeCell::new(0),
        }))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        match at {
            ATTENTION_AT => &self.0.asleep,
            PASSED_AT => &self.0.passed,
            _ => &self.0.place[(at - place(1)) / 8],
        }
    }

    /// `sound`, unless that is what the memories lack at this word.
    fn ordering(&self, sound: Ordering, at: usize, flaw: fn(Word) -> Flaw) -> Ordering {
        let lacks = Word::at(at).is_some_and(|word| self.0.flaw == Some(flaw(word)));
        if lacks { Ordering::Relaxed } else { sound }
    }
}

impl SharedMemory for Memory {
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(self.ordering(Ordering::Acquire, at, Flaw::Load))
    }

    fn store(&self, at: usize, value: u64) {
        self.word(at).store(value, self.ordering(Ordering::Release, at, Flaw::Store));
    }

    fn swap(&self, at: usize, value: u64) -> u64 {
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        if !matches!(self.0.flaw, Some(Flaw::Fence(_))) {
            fence(Ordering::SeqCst);
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert_eq!(at, place(1) + BYTES_AT);
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        // SAFETY: the checker fails if another thread has it.
        self.0.payload.with_mut(|place| unsafe { *place = value });
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        assert_eq!(at, place(1) + BYTES_AT);
        // SAFETY: the checker fails if another thread writes it.
        let value = self.0.payload.with(|place| unsafe { *place });
        into.copy_from_slice(&value.to_le_bytes());
    }
}

/// The boards of two ranks, whose memories have a flaw or none.
fn boards(flaw: Option<Flaw>) -> [SharedBoard<Memory>; 2] {
    let of = |rank| flaw.filter(|flaw| !matches!(flaw, Flaw::Fence(other) if *other != rank));
    let memories: Vec<Memory> = (0..2).map(|rank| Memory::new(of(rank))).collect();
    [SharedBoard::new(0, memories.clone(), vec![]), SharedBoard::new(1, memories, vec![])]
}

/// Two operations that have the same place.
const FIRST: u64 = 1;
const SECOND: u64 = FIRST + BOARD_PLACES;

fn fingerprint(sequence: u64) -> Fingerprint {
    Fingerprint { elements: sequence, detail: !sequence, ..Fingerprint::default() }
}

fn show(board: &mut SharedBoard<Memory>, sequence: u64) -> bool {
    board.show(sequence, &fingerprint(sequence), &(sequence * 1000).to_le_bytes())
}

/// Whether the other rank shows something for `sequence`, which must be whole.
fn read(board: &mut SharedBoard<Memory>, other: u32, sequence: u64) -> bool {
    let mut into = [0; 64];
    match board.read(other, sequence, 0..64, &mut into) {
        Slot::Empty => false,
        shown => {
            assert_eq!(shown, Slot::Bytes(8, fingerprint(sequence)));
            assert_eq!(into[..8], (sequence * 1000).to_le_bytes());
            true
        }
    }
}

fn explore(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn a_place_is_whole_whenever_it_is_read() {
    places_are_whole(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_place_needs_its_number_after_its_bytes() {
    places_are_whole(Some(Flaw::Store(Word::Number)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_place_needs_its_bytes_looked_at_after_its_number() {
    places_are_whole(Some(Flaw::Load(Word::Number)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_place_is_passed_only_after_what_was_read_of_it() {
    places_are_whole(Some(Flaw::Store(Word::Passed)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_place_is_written_again_only_after_a_look_at_who_passed() {
    places_are_whole(Some(Flaw::Load(Word::Passed)));
}

#[test]
fn a_thread_that_sleeps_is_woken_by_what_is_shown() {
    sleeper_is_woken(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_sleeps_needs_the_fence_of_the_sleeper() {
    sleeper_is_woken(Some(Flaw::Fence(0)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_sleeps_needs_the_fence_of_who_shows() {
    sleeper_is_woken(Some(Flaw::Fence(1)));
}

fn places_are_whole(flaw: Option<Flaw>) {
    explore(move || {
        let [mut ours, mut theirs] = boards(flaw);
        let thread = loom::thread::spawn(move || {
            assert!(show(&mut theirs, FIRST));
            theirs.pass(FIRST);
            while !show(&mut theirs, SECOND) {
                loom::thread::yield_now();
            }
        });
        for sequence in [FIRST, SECOND] {
            while !read(&mut ours, 1, sequence) {
                loom::thread::yield_now();
            }
            ours.pass(sequence);
        }
        thread.join().unwrap();
    });
}

fn sleeper_is_woken(flaw: Option<Flaw>) {
    explore(move || {
        let [mut ours, mut theirs] = boards(flaw);
        let bell = Arc::new(Notify::new());
        let ring = bell.clone();
        let thread = loom::thread::spawn(move || {
            assert!(show(&mut theirs, FIRST));
            if theirs.attention(0) == Attention::Asleep {
                ring.notify();
            }
        });
        while !read(&mut ours, 1, FIRST) {
            ours.set_asleep(true);
            if !ours.shows(1, FIRST) {
                // The checker finds a thread that nobody wakes any more.
                bell.wait();
            }
            ours.set_asleep(false);
        }
        thread.join().unwrap();
    });
}
