//! The protocols of ring and sleep in a model checker, which runs every order in which two threads
//! may see each other's memory. Knows nothing of frames.

#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};

use super::super::ring::{CELL_BYTES, Reader, Ring, SharedMemory, Writer};
use super::super::sleep;

/// Cells of the ring of the model.
const CELLS: usize = 6;
/// Offsets of the words after the cells.
const CONSUMED: usize = CELLS * CELL_BYTES;
const ASLEEP: usize = CONSUMED + 8;
const WAITS: usize = CONSUMED + 16;

const RING: Ring = Ring { start: 0, cells: CELLS as u64, consumed: CONSUMED };

/// Memory of words that are atomic, and of words of bodies that have one owner at a time. An offset
/// names one of each kind: a real ring's stamps lie where bodies lay before.
struct Memory {
    words: Vec<AtomicU64>,
    bodies: Vec<UnsafeCell<u64>>,
    flaw: Option<Flaw>,
}

/// What memory may lack, so that a check which needs it must fail: this shows that the checker
/// looks where it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// A store is not behind what was written before.
    Store,
    /// What was written before a store cannot be read after its load.
    Load,
    /// Two sides that store and load may both miss each other.
    Fence,
}

// SAFETY: the checker is told of each access to a body, and fails if two threads have one at once.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new(flaw: Option<Flaw>) -> Memory {
        let words = 0..(WAITS + 8) / 8;
        Memory {
            words: words.clone().map(|_| AtomicU64::new(0)).collect(),
            bodies: words.map(|_| UnsafeCell::new(0)).collect(),
            flaw,
        }
    }

    /// `sound`, unless that is what this memory lacks.
    fn ordering(&self, sound: Ordering, flaw: Flaw) -> Ordering {
        if self.flaw == Some(flaw) { Ordering::Relaxed } else { sound }
    }
}

impl SharedMemory for Memory {
    fn load(&self, at: usize) -> u64 {
        self.words[at / 8].load(self.ordering(Ordering::Acquire, Flaw::Load))
    }

    fn store(&self, at: usize, value: u64) {
        self.words[at / 8].store(value, self.ordering(Ordering::Release, Flaw::Store));
    }

    fn swap(&self, at: usize, value: u64) -> u64 {
        self.words[at / 8].swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        if self.flaw != Some(Flaw::Fence) {
            fence(Ordering::SeqCst);
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (word, bytes) in bytes.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(bytes.try_into().unwrap());
            // SAFETY: the checker fails if another thread has it.
            self.bodies[at / 8 + word].with_mut(|place| unsafe { *place = value });
            if (at + word * 8).is_multiple_of(CELL_BYTES) {
                // What a body leaves where a stamp is looked for in a later round.
                self.words[at / 8 + word].store(value, Ordering::Relaxed);
            }
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        for (word, bytes) in into.chunks_exact_mut(8).enumerate() {
            // SAFETY: the checker fails if another thread writes it.
            let value = self.bodies[at / 8 + word].with(|place| unsafe { *place });
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Writes an entry that is full of `value`, in words; false if there is no room.
fn write(writer: &mut Writer, memory: &Memory, value: u64, words: usize) -> bool {
    let body = vec![value.to_le_bytes(); words].concat();
    let Some(at) = writer.reserve(&RING, memory, body.len()).unwrap() else { return false };
    memory.write(at, &body);
    writer.publish(&RING, memory, value as u32, body.len());
    true
}

/// Reads an entry and checks that it is full of its tag; false if there is none.
fn read(reader: &mut Reader, memory: &Memory, expected: u64, words: usize) -> bool {
    let Some(entry) = reader.next(&RING, memory).unwrap() else { return false };
    let mut body = vec![0; words * 8];
    memory.read(entry.body, &mut body);
    assert_eq!(u64::from(entry.tag), expected);
    assert_eq!(body, vec![expected.to_le_bytes(); words].concat());
    reader.pass(entry);
    true
}

/// Runs `check` in all orders with at most so many switches between the threads where both could go
/// on; three find all that more find, in a time that a test may take.
fn explore(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn entries_arrive_whole_and_in_order_around_the_end() {
    entries_arrive(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn entries_need_stores_that_release() {
    entries_arrive(Some(Flaw::Store));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn entries_need_loads_that_acquire() {
    entries_arrive(Some(Flaw::Load));
}

#[test]
fn a_thread_that_sleeps_is_woken_by_an_entry() {
    sleeper_is_woken(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_sleeps_needs_fences() {
    sleeper_is_woken(Some(Flaw::Fence));
}

#[test]
fn a_thread_that_waits_for_room_is_woken_when_there_is_some() {
    writer_is_woken(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_waits_for_room_needs_fences() {
    writer_is_woken(Some(Flaw::Fence));
}

fn entries_arrive(flaw: Option<Flaw>) {
    // What and how many words: cells 0, 1 and 2, 3 and 4, then 0 and 1, as there is no room at the
    // end. The second leaves in cell 2 what would be the stamp of an entry after the last.
    const ENTRIES: [(u64, usize); 4] = [(5, 1), (9, 7), (2, 7), (4, 7)];
    explore(move || {
        let memory = Arc::new(Memory::new(flaw));
        let other = memory.clone();
        let thread = loom::thread::spawn(move || {
            let mut writer = Writer::default();
            for (value, words) in ENTRIES {
                while !write(&mut writer, &other, value, words) {
                    loom::thread::yield_now();
                }
            }
        });
        let mut reader = Reader::default();
        for (value, words) in ENTRIES {
            while !read(&mut reader, &memory, value, words) {
                loom::thread::yield_now();
            }
            reader.tell(&RING, &*memory);
        }
        thread.join().unwrap();
        assert!(!reader.is_ready(&RING, &*memory), "nothing else is there");
    });
}

fn sleeper_is_woken(flaw: Option<Flaw>) {
    explore(move || {
        let memory = Arc::new(Memory::new(flaw));
        let bell = Arc::new(Notify::new());
        let (other, ring) = (memory.clone(), bell.clone());
        let thread = loom::thread::spawn(move || {
            let mut writer = Writer::default();
            for value in 1..=2 {
                assert!(write(&mut writer, &other, value, 1));
                if sleep::must_be_woken(&*other, ASLEEP) {
                    ring.notify();
                }
            }
        });
        let mut reader = Reader::default();
        for value in 1..=2 {
            while !read(&mut reader, &memory, value, 1) {
                sleep::fall_asleep(&*memory, ASLEEP);
                if !reader.is_ready(&RING, &*memory) {
                    // The checker finds a thread that nobody wakes any more.
                    bell.wait();
                }
            }
        }
        thread.join().unwrap();
    });
}

fn writer_is_woken(flaw: Option<Flaw>) {
    explore(move || {
        let memory = Arc::new(Memory::new(flaw));
        let bell = Arc::new(Notify::new());
        let mut writer = Writer::default();
        for value in 1..=5 {
            assert!(write(&mut writer, &memory, value, 1));
        }
        let (other, ring) = (memory.clone(), bell.clone());
        let thread = loom::thread::spawn(move || {
            let mut reader = Reader::default();
            for value in 1..=5 {
                assert!(read(&mut reader, &other, value, 1));
            }
            reader.tell(&RING, &*other);
            other.fence();
            if other.load(WAITS) != 0 && sleep::must_be_woken(&*other, ASLEEP) {
                ring.notify();
            }
        });
        memory.store(WAITS, 1);
        memory.fence();
        while !write(&mut writer, &memory, 6, 1) {
            let seen = memory.load(CONSUMED);
            if write(&mut writer, &memory, 6, 1) {
                break;
            }
            sleep::fall_asleep(&*memory, ASLEEP);
            if memory.load(CONSUMED) == seen {
                bell.wait();
            }
        }
        thread.join().unwrap();
    });
}
