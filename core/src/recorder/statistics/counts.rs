//! How often each method was called, and how long that took: of operations that were done when
//! their call returned, and of others. Knows nothing of groups, and no text.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::histogram::{Histogram, SharedHistogram};

/// Of operations that are done at once, about one in so many is timed: asking the processor for the
/// time takes as long as all else that is noted of one.
pub(crate) const TIMED_SHARE: u64 = 1 << TIMED_BITS;
const TIMED_BITS: u32 = 6;
/// So many operations of a group are all timed: of few, a share would say little.
pub(crate) const ALL_TIMED: u64 = 1 << 10;

/// What was counted of a method.
#[derive(Clone, Debug, Default)]
pub(in crate::recorder) struct MethodCounts {
    /// Operations that have ended, well or not.
    pub(in crate::recorder) ended: u64,
    /// Those of them that have failed.
    pub(in crate::recorder) failed: u64,
    /// Operations that have not ended.
    pub(in crate::recorder) open: u64,
    /// Bytes of those that have ended well.
    pub(in crate::recorder) bytes: u64,
    /// Bytes of those that were timed.
    pub(in crate::recorder) timed_bytes: u64,
    /// How long those took that were timed.
    pub(super) times: Histogram,
}

/// What was counted, by the name of the method, and what the user calls its operations.
pub(in crate::recorder) type Counts = BTreeMap<CountedName, MethodCounts>;
pub(in crate::recorder) type CountedName = (&'static str, Option<Arc<str>>);

/// So many kinds of operations of a group are told apart; names of the user beyond that are not.
const MAX_KINDS: usize = 256;

/// What is counted of the operations of this method that the user calls so.
pub(in crate::recorder) fn counts_of(
    counts: &mut Counts,
    (method, name): CountedName,
) -> &mut MethodCounts {
    let is_told = counts.len() < MAX_KINDS || counts.contains_key(&(method, name.clone()));
    counts.entry((method, name.filter(|_| is_told))).or_default()
}

impl MethodCounts {
    /// Counts an operation that has ended well after so long.
    pub(in crate::recorder) fn add(&mut self, bytes: u64, nanoseconds: u64) {
        self.ended += 1;
        self.bytes += bytes;
        self.timed_bytes = self.timed_bytes.saturating_add(bytes);
        self.times.add(nanoseconds);
    }

    /// Counts an operation that has failed.
    pub(in crate::recorder) fn add_failed(&mut self) {
        self.ended += 1;
        self.failed += 1;
    }
}

/// Whether operation `number` of a group is timed. Not every 64th: a program that repeats four
/// calls would have one of them timed only. Multiples of the golden ratio are spread evenly, and
/// along every such pattern, too.
#[inline]
pub(in crate::recorder) fn is_timed(number: u64) -> bool {
    number < ALL_TIMED || is_sample(number)
}

#[inline]
fn is_sample(number: u64) -> bool {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - TIMED_BITS) == 0
}

/// Counts of operations that were done when their call returned, by the place of the method's name.
///
/// The thread that is the first to count, usually the only one, does so without locked
/// instructions, each of which would take as long as all else that is noted of an operation.
#[derive(Debug)]
pub(in crate::recorder) struct BriefCounts<const METHODS: usize> {
    /// What stands for that thread; 0 before there is one.
    owner: AtomicUsize,
    /// Written by the owner alone.
    own: [Tally; METHODS],
    /// Of all other threads.
    others: [Tally; METHODS],
    timed: [OnceLock<Box<TimedCalls>>; METHODS],
}

#[derive(Debug, Default)]
struct TimedCalls {
    /// Of the first ones.
    all: Timed,
    /// Of those that stand for others.
    some: Timed,
}

#[derive(Debug, Default)]
struct Timed {
    bytes: AtomicU64,
    times: SharedHistogram,
}

/// How long an operation took that is done.
#[derive(Clone, Copy, Debug)]
pub(in crate::recorder) struct TimedCall {
    pub(in crate::recorder) nanoseconds: u64,
    /// Whether it stands for others.
    pub(in crate::recorder) is_sample: bool,
}

#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl<const METHODS: usize> BriefCounts<METHODS> {
    /// Counts an operation of this method, which took so long if that is known.
    #[inline]
    pub(in crate::recorder) fn add(&self, method: usize, bytes: u64, took: Option<TimedCall>) {
        let (Some(own), Some(others)) = (self.own.get(method), self.others.get(method)) else {
            return;
        };
        if self.is_owner() {
            let Tally { count, bytes: all } = own;
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            all.store(all.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        } else {
            others.count.fetch_add(1, Ordering::Relaxed);
            others.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(call) = took {
            self.add_time(method, bytes, call);
        }
    }

    #[cold]
    fn add_time(&self, method: usize, bytes: u64, call: TimedCall) {
        if let Some(timed) = self.timed.get(method) {
            let TimedCalls { all, some } = &**timed.get_or_init(Box::default);
            let timed = if call.is_sample { some } else { all };
            timed.bytes.fetch_add(bytes, Ordering::Relaxed);
            timed.times.add(call.nanoseconds);
        }
    }

    /// Adds what was counted to `counts`; `name_of` says what method is at a place.
    pub(in crate::recorder) fn add_to(
        &self,
        counts: &mut Counts,
        name_of: impl Fn(usize) -> Option<&'static str>,
    ) {
        let tallies = self.own.iter().zip(&self.others).zip(&self.timed);
        for (place, ((own, others), timed)) in tallies.enumerate() {
            let sum = |of: fn(&Tally) -> &AtomicU64| {
                let load = |tally| of(tally).load(Ordering::Relaxed);
                load(own).wrapping_add(load(others))
            };
            let count = sum(|tally| &tally.count);
            if count == 0 {
                continue;
            }
            let counted = counts.entry((name_of(place).unwrap_or("?"), None)).or_default();
            counted.ended += count;
            counted.bytes = counted.bytes.wrapping_add(sum(|tally| &tally.bytes));
            let Some(timed) = timed.get() else { continue };
            for (timed, weight) in [(&timed.all, 1), (&timed.some, TIMED_SHARE)] {
                let bytes = timed.bytes.load(Ordering::Relaxed).saturating_mul(weight);
                counted.timed_bytes = counted.timed_bytes.saturating_add(bytes);
                counted.times.merge(&timed.times.load(), weight);
            }
        }
    }

    #[inline]
    fn is_owner(&self) -> bool {
        let me = this_thread();
        match self.owner.load(Ordering::Relaxed) {
            0 => self.owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
            owner => owner == me,
        }
    }
}

impl<const METHODS: usize> Default for BriefCounts<METHODS> {
    fn default() -> BriefCounts<METHODS> {
        let tallies = || std::array::from_fn(|_| Tally::default());
        BriefCounts {
            owner: AtomicUsize::new(0),
            own: tallies(),
            others: tallies(),
            timed: std::array::from_fn(|_| OnceLock::new()),
        }
    }
}

/// What stands for this thread as long as it lives: an address that is its own. A later thread that
/// has the same goes on with what an earlier one counted.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lose_no_count() {
        let counts = BriefCounts::<3>::default();
        std::thread::scope(|scope| {
            for method in [0, 1, 1, 2] {
                let counts = &counts;
                scope.spawn(move || (0..10_000).for_each(|_| counts.add(method, 3, None)));
            }
        });
        // One more is no method, and counts nothing.
        counts.add(3, 1, None);
        let mut all = Counts::new();
        counts.add_to(&mut all, |place| ["a", "b", "c"].get(place).copied());
        let found: Vec<_> = all.iter().map(|((name, _), it)| (*name, it.ended, it.bytes)).collect();
        assert_eq!(found, [("a", 10_000, 30_000), ("b", 20_000, 60_000), ("c", 10_000, 30_000)]);
    }

    #[test]
    fn one_in_so_many_is_timed_of_every_call_of_a_program_that_repeats_some() {
        for period in 1..=64u64 {
            for first in 0..period {
                let calls = (0..1000 * TIMED_SHARE).map(|round| first + round * period);
                let timed = calls.filter(|number| is_sample(*number)).count();
                assert!((800..=1200).contains(&timed), "{timed} of call {first} of {period}");
            }
        }
    }
}
