//! The board: shared memory over which ranks of one host run small operations, without frames.
//! Knows nothing of schedules or groups, and not where the memory lies.
//!
//! Every rank has a few slots of its own, one for each of the last sequence numbers. It writes its
//! part of an operation into its slot, and reads the others' slots. No rank sends a request to
//! another, and a rank that is killed leaves no lock behind.

use std::ops::Range;

use super::Rank;
use crate::wire::frame::Fingerprint;

/// Most bytes that a rank shows for one operation, in groups of few ranks.
pub const BOARD_BYTES: usize = 16 << 10;

/// As [`BOARD_BYTES`], in larger groups, where each rank reads what many others show.
const BOARD_BYTES_OF_MANY: usize = 4 << 10;

/// Groups of up to so many ranks are small: with two to four ranks, operations of 16 KiB take 0.4
/// to 0.9 times as long over the board as by messages (Intel Xeon, family 6 model 167, two cores).
const FEW_RANKS: u32 = 4;

/// Most bytes of the reason for which a rank failed.
pub const REASON_BYTES: usize = 2048;

/// Most bytes that each of `ranks` ranks shows for one operation.
pub fn board_bytes(ranks: u32) -> usize {
    if ranks <= FEW_RANKS { BOARD_BYTES } else { BOARD_BYTES_OF_MANY }
}

/// How many operations a rank may be ahead of the slowest.
pub const BOARD_PLACES: u64 = 8;

/// What a rank's slot holds for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing yet.
    Empty,
    /// This many bytes, from a rank that runs the operation of this fingerprint.
    Bytes(usize, Fingerprint),
    /// Something that no rank of this version writes.
    Corrupt,
}

/// The state that a rank shows to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// It polls the board.
    Awake,
    /// It has to be woken when something is shown.
    Asleep,
    /// It failed: what it shows does not count any more. An abort that says why will follow.
    Withdrawn,
    /// It left cleanly, with nothing in flight: what it shows counts, and it shows nothing more.
    Left,
}

/// The board of a group whose ranks are all on one host. Nothing in it blocks.
pub trait Board: Send {
    /// The number of ranks.
    fn size(&self) -> u32;
    /// Shows `payload`, at most [`BOARD_BYTES`], for operation `sequence`; false if a rank may
    /// still have to read what is in the slot. Sequence numbers rise.
    fn show(&mut self, sequence: u64, fingerprint: &Fingerprint, payload: &[u8]) -> bool {
        let is_written = self.write(sequence, fingerprint, payload);
        if is_written {
            self.fence();
        }
        is_written
    }
    /// As [`Board::show`], but a [`Board::fence`] has to follow before this rank looks whether
    /// others sleep. Until the others see it, which takes its time, there is time for other things.
    fn write(&mut self, sequence: u64, fingerprint: &Fingerprint, payload: &[u8]) -> bool;
    /// Changes what this rank shows for operation `sequence` to `payload`, as many words as before,
    /// each of which others see as it was or as it is now. Visible to them before what is written
    /// after it.
    fn change(&mut self, sequence: u64, payload: &[u8]);
    /// Whether `rank` shows something for operation `sequence`.
    fn shows(&self, rank: Rank, sequence: u64) -> bool;
    /// The fingerprint that `rank` shows for operation `sequence`, if it shows any.
    fn fingerprint(&self, rank: Rank, sequence: u64) -> Option<Fingerprint>;
    /// What `rank` shows for operation `sequence`, of which the bytes in `wanted`, as far as there
    /// are any, are copied to the same place in `into`, which is as long as anybody may show. This
    /// rank's own place can be read, too.
    fn read(&mut self, rank: Rank, sequence: u64, wanted: Range<usize>, into: &mut [u8]) -> Slot;
    /// Publishes that this rank will not read the others' slots for operations up to `sequence` any
    /// more.
    fn pass(&mut self, sequence: u64);
    /// The last operation whose slots `rank` will not read any more, as far as it has said.
    fn passed(&self, rank: Rank) -> u64;
    /// Publishes that this rank's part of the result of operation `sequence`, which it had to
    /// compute first, can be read where it lies. Sequence numbers rise.
    fn show_result(&mut self, sequence: u64);
    /// Whether `rank` has published that of operation `sequence`, or a later one.
    fn shows_result(&self, rank: Rank, sequence: u64) -> bool;
    /// Publishes that this rank will not read the others' memory for operations up to `sequence`
    /// any more.
    fn end_reading(&mut self, sequence: u64);
    /// Whether `rank` has published that of operation `sequence`, or of a later one.
    fn has_read(&self, rank: Rank, sequence: u64) -> bool;
    /// Publishes whether this rank has to be woken when they show something. After a true,
    /// it must look once more before it sleeps.
    fn set_asleep(&mut self, asleep: bool);
    /// Publishes that this rank failed, and why, at most [`REASON_BYTES`]; a longer reason is left
    /// out. This is final, and stays when the process ends.
    fn withdraw(&mut self, reason: &[u8]);
    /// Why `rank` failed or left, if it has published that.
    fn reason(&self, rank: Rank) -> Option<Vec<u8>>;
    /// Publishes that this rank leaves cleanly, and why, as [`Board::withdraw`] does; empty:
    /// without a reason. This is final.
    fn leave(&mut self, reason: &[u8]);
    /// The state of `rank`. Read it after showing something.
    fn attention(&self, rank: Rank) -> Attention;
    /// Makes what was written and passed visible to the others before what is read next.
    fn fence(&self);
    /// Whether every rank can read the memory of every other where it lies.
    fn reads_memory(&self) -> bool;
    /// Notes that some rank cannot.
    fn forbid_reading(&mut self);
    /// Whether others can read this rank's memory from `address` on: not all memory of a process is
    /// for others (memfd_secret(2), that of devices).
    fn can_lend(&mut self, address: u64, bytes: u64) -> bool;
    /// Copies what lies at `address` of the memory of `rank`, another one, to `into`; false if its
    /// process, or the main thread of that, has ended.
    ///
    /// # Errors
    /// Why it cannot be read, in words: the process has no memory there, or runs another program.
    fn read_memory(&self, rank: Rank, address: u64, into: &mut [u8]) -> Result<bool, String>;
}

/// The board of a group, where ranks of one host can have one.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub type AnyBoard = Box<dyn Board>;

/// On other systems there is none, and the compiler leaves out the code that would use it.
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
pub type AnyBoard = NoBoard;

/// No board.
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
pub enum NoBoard {}

#[cfg(not(all(feature = "tcp", target_os = "linux")))]
impl Board for NoBoard {
    fn size(&self) -> u32 {
        match *self {}
    }
    fn write(&mut self, _: u64, _: &Fingerprint, _: &[u8]) -> bool {
        match *self {}
    }
    fn change(&mut self, _: u64, _: &[u8]) {
        match *self {}
    }
    fn shows(&self, _: Rank, _: u64) -> bool {
        match *self {}
    }
    fn fingerprint(&self, _: Rank, _: u64) -> Option<Fingerprint> {
        match *self {}
    }
    fn read(&mut self, _: Rank, _: u64, _: Range<usize>, _: &mut [u8]) -> Slot {
        match *self {}
    }
    fn pass(&mut self, _: u64) {
        match *self {}
    }
    fn passed(&self, _: Rank) -> u64 {
        match *self {}
    }
    fn end_reading(&mut self, _: u64) {
        match *self {}
    }
    fn has_read(&self, _: Rank, _: u64) -> bool {
        match *self {}
    }
    fn show_result(&mut self, _: u64) {
        match *self {}
    }
    fn shows_result(&self, _: Rank, _: u64) -> bool {
        match *self {}
    }
    fn set_asleep(&mut self, _: bool) {
        match *self {}
    }
    fn withdraw(&mut self, _: &[u8]) {
        match *self {}
    }
    fn reason(&self, _: Rank) -> Option<Vec<u8>> {
        match *self {}
    }
    fn leave(&mut self, _: &[u8]) {
        match *self {}
    }
    fn attention(&self, _: Rank) -> Attention {
        match *self {}
    }
    fn fence(&self) {
        match *self {}
    }
    fn reads_memory(&self) -> bool {
        match *self {}
    }
    fn forbid_reading(&mut self) {
        match *self {}
    }
    fn can_lend(&mut self, _: u64, _: u64) -> bool {
        match *self {}
    }
    fn read_memory(&self, _: Rank, _: u64, _: &mut [u8]) -> Result<bool, String> {
        match *self {}
    }
}
