//! Operations that were done when their call returned: a ring of lines, each of a cache line, that
//! is written without a lock. Knows nothing of other operations but that they have numbers, too.
//!
//! A line is written as a sequence lock: its stamp is 0 while it changes, and the operation's
//! number and one afterwards; who reads takes a line only if the stamp is the same before and
//! after. All is atomic, so that a race costs a line at most. (Hans Boehm, "Can seqlocks get along
//! with programming language memory models?", 2012.)

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use super::note::{OperationKind, OperationNote, TensorNote};
use super::statistics::{ALL_TIMED, BriefCounts, Counts, TimedCall, is_timed};
use super::ticks::{instant_of, nanoseconds, ticks};
use super::{REMEMBERED, RecordedEnd, RecordedOperation};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// In place of a rank, where there is none.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// Names of methods that a group remembers: more than have a fast path.
const NAMES: usize = 32;

/// Where there is no operator.
const NO_OPERATOR: u8 = u8::MAX;

/// An operation that is done.
#[derive(Clone, Copy)]
pub(crate) struct DoneOperation {
    pub(crate) name: &'static str,
    pub(crate) kind: OperationKind,
    pub(crate) dtype: DType,
    pub(crate) reduce_op: Option<ReduceOp>,
    /// The root or the peer, or [`NO_RANK`].
    pub(crate) peer: u32,
    pub(crate) tag: u32,
    pub(crate) sequence: u64,
    /// Bytes that were read, of one tensor.
    pub(crate) given: usize,
    /// Bytes that were written, of one tensor.
    pub(crate) taken: usize,
}

/// When an operation was called, in ticks, the last bit of which says whether it stands for others;
/// 0 if it is not timed.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallTime(u64);

/// An operation that was begun to be noted.
#[must_use = "it is noted by its end only"]
pub(crate) struct BegunNote {
    number: u64,
    /// The place of its name.
    method: u8,
    /// What counts as its size.
    bytes: u64,
}

/// The ring.
#[derive(Default)]
pub(super) struct BriefOperations {
    /// The number of the next operation, of whatever kind.
    next: AtomicU64,
    /// Earlier ones are forgotten.
    first: AtomicU64,
    /// None before the first operation.
    ring: OnceLock<Box<Ring>>,
    names: [OnceLock<&'static str>; NAMES],
}

/// What was noted last, and what was counted of all.
struct Ring {
    counts: BriefCounts<{ NAMES + 1 }>,
    lines: Box<[Line]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Line {
    /// 0 while the line is written; else the number of the operation, and one.
    stamp: AtomicU64,
    /// Name, kind, dtype and operator in a byte each, and the peer in four.
    what: AtomicU64,
    sequence: AtomicU64,
    given: AtomicU64,
    taken: AtomicU64,
    tag: AtomicU64,
    /// When it was done, in ticks.
    done: AtomicU64,
}

impl BriefOperations {
    /// The number of an operation that is noted elsewhere.
    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The time, if what is called now is timed.
    #[inline]
    pub(super) fn called(&self) -> CallTime {
        let number = self.next.load(Ordering::Relaxed);
        if !is_timed(number) {
            return CallTime(0);
        }
        let is_sample = number >= ALL_TIMED;
        CallTime((ticks() & !1).max(2) | u64::from(is_sample))
    }

    /// Begins to note an operation that may be done soon. Nobody reads of it before its end is
    /// noted.
    #[inline]
    pub(super) fn begin(&self, operation: &DoneOperation) -> BegunNote {
        let DoneOperation { name, kind, dtype, reduce_op, peer, tag, sequence, given, taken } =
            *operation;
        let operator = reduce_op.map_or(NO_OPERATOR, ReduceOp::code);
        let method = self.index_of(name);
        let number = self.next_number();
        let note = BegunNote { number, method, bytes: given.max(taken) as u64 };
        let ring = self.ring.get_or_init(Box::default);
        let Some(line) = ring.line(number) else { return note };
        let bytes = [method, kind as u8, dtype as u8, operator];
        let what = u64::from(u32::from_le_bytes(bytes)) | u64::from(peer) << 32;
        line.stamp.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        line.what.store(what, Ordering::Relaxed);
        line.sequence.store(sequence, Ordering::Relaxed);
        line.given.store(given as u64, Ordering::Relaxed);
        line.taken.store(taken as u64, Ordering::Relaxed);
        line.tag.store(u64::from(tag), Ordering::Relaxed);
        note
    }

    /// Notes that the operation is done.
    #[inline]
    pub(super) fn end(&self, note: BegunNote, CallTime(called): CallTime) {
        let BegunNote { number, method, bytes } = note;
        let Some(ring) = self.ring.get() else { return };
        let Some(line) = ring.line(number) else { return };
        let done = ticks();
        line.done.store(done, Ordering::Relaxed);
        line.stamp.store(number + 1, Ordering::Release);
        let took = (called != 0).then(|| TimedCall {
            nanoseconds: nanoseconds(done.saturating_sub(called)),
            is_sample: called & 1 == 1,
        });
        ring.counts.add(method.into(), bytes, took);
    }

    /// Forgets what was begun: the operation goes on, and is noted elsewhere, under the same number
    /// if no other has been given meanwhile.
    pub(super) fn take_back(&self, note: BegunNote) {
        let BegunNote { number, .. } = note;
        let (order, given) = (Ordering::Relaxed, number + 1);
        // Otherwise one number is nobody's.
        let _ = self.next.compare_exchange(given, number, order, order);
    }

    /// Adds what was counted to `counts`.
    pub(super) fn add_to(&self, counts: &mut Counts) {
        let name_of = |place: usize| self.names.get(place)?.get().copied();
        if let Some(ring) = self.ring.get() {
            ring.counts.add_to(counts, name_of);
        }
    }

    /// Forgets all that was noted so far.
    pub(super) fn forget(&self) {
        self.first.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Those that are there, in no order.
    pub(super) fn operations(&self) -> Vec<RecordedOperation> {
        let lines = self.ring.get().map(|ring| &*ring.lines).unwrap_or_default();
        lines.iter().filter_map(|line| self.read(line)).collect()
    }

    fn read(&self, line: &Line) -> Option<RecordedOperation> {
        let stamp = line.stamp.load(Ordering::Acquire);
        let what = line.what.load(Ordering::Relaxed);
        let sequence = line.sequence.load(Ordering::Relaxed);
        let given = line.given.load(Ordering::Relaxed);
        let taken = line.taken.load(Ordering::Relaxed);
        let tag = line.tag.load(Ordering::Relaxed);
        let done = line.done.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if stamp <= self.first.load(Ordering::Relaxed)
            || line.stamp.load(Ordering::Relaxed) != stamp
        {
            return None;
        }
        let [name, kind, dtype, operator] = (what as u32).to_le_bytes();
        let (dtype, kind) = (DType::from_code(dtype)?, OperationKind::from_code(kind)?);
        let side = |bytes: u64| match bytes {
            0 => Box::default(),
            bytes => Box::new([TensorNote::of_bytes(dtype, bytes as usize)]) as Box<[TensorNote]>,
        };
        let is_message = kind != OperationKind::Collective;
        let note = OperationNote {
            kind,
            reduce_op: (operator != NO_OPERATOR).then(|| ReduceOp::name_of_code(operator)),
            peer: Some((what >> 32) as u32).filter(|&peer| peer != NO_RANK),
            tag: is_message.then_some(tag as u32),
            inputs: side(given),
            outputs: side(taken),
        };
        Some(RecordedOperation {
            number: stamp - 1,
            name: self.names.get(name as usize).and_then(OnceLock::get).copied().unwrap_or("?"),
            comm_name: None,
            sequence,
            parts: 1,
            note,
            issued: None,
            end: Some(RecordedEnd { at: instant_of(done), error: None }),
            is_awaited: false,
            frames: Arc::default(),
        })
    }

    /// The place of a name. The few that a program calls stand first.
    fn index_of(&self, name: &'static str) -> u8 {
        let is_known = |known: &OnceLock<&'static str>| {
            let known = known.get_or_init(|| name);
            std::ptr::eq(*known, name) || *known == name
        };
        self.names.iter().position(is_known).unwrap_or(NAMES) as u8
    }
}

impl Ring {
    /// The line of an operation of this number.
    #[inline]
    fn line(&self, number: u64) -> Option<&Line> {
        self.lines.get(number as usize % REMEMBERED)
    }
}

impl Default for Ring {
    fn default() -> Ring {
        let lines = std::iter::repeat_with(Line::default).take(REMEMBERED).collect();
        Ring { counts: BriefCounts::default(), lines }
    }
}

impl OperationKind {
    fn from_code(code: u8) -> Option<OperationKind> {
        use OperationKind::{Collective, Other, Receive, Send};
        [Collective, Send, Receive, Other].into_iter().find(|kind| *kind as u8 == code)
    }
}
