//! How long operations took, by magnitude: fixed memory, and quantiles to some percent. Knows no
//! clock.
//!
//! Buckets are those of HdrHistogram: each power of two is cut into [`PARTS`] equal parts, so that
//! no bucket is wider than an eighth of what it holds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of each power of two.
const PARTS: u64 = 1 << PART_BITS;
const PART_BITS: u32 = 3;
/// All that is longer is in the last bucket: 2^42 nanoseconds are over an hour.
const MAX_BITS: u32 = 42;
const BUCKETS: usize = ((MAX_BITS - PART_BITS + 1) as u64 * PARTS) as usize;

/// The bounds of the buckets that are published, as powers of two in nanoseconds: from 256 ns to 69
/// s, each four times the one before.
pub(crate) const PUBLISHED_BITS: [u32; 15] =
    [8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36];

/// Lengths of time, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// None as long as nothing was counted.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

/// A histogram to which threads add without a lock.
#[derive(Debug)]
pub(super) struct SharedHistogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// Counts operations that took so long.
    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.buckets.resize(BUCKETS, 0);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(nanoseconds)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Adds those of `other`, each of which stands for `weight`.
    pub(super) fn merge(&mut self, other: &Histogram, weight: u64) {
        if other.count == 0 {
            return;
        }
        self.buckets.resize(BUCKETS, 0);
        let both = self.buckets.iter_mut().zip(&other.buckets);
        both.for_each(|(own, other)| *own += other * weight);
        self.count += other.count * weight;
        self.sum = self.sum.saturating_add(other.sum.saturating_mul(weight));
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// All together.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// The longest.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The time that this share of them did not exceed, from 0 to 1; none of nothing.
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut before = 0;
        for (index, &held) in self.buckets.iter().enumerate() {
            if before + held >= rank {
                // The middle of what the bucket may hold.
                let (low, high) = (bound(index), bound(index + 1));
                return Some((low + (high - low) / 2).min(self.max));
            }
            before += held;
        }
        Some(self.max)
    }

    /// How many are below each bound of [`PUBLISHED_BITS`].
    pub(super) fn published(&self) -> Vec<u64> {
        let below = |bits: &u32| {
            let bound = 1u64 << bits;
            self.buckets.iter().take(bucket_of(bound)).sum()
        };
        PUBLISHED_BITS.iter().map(below).collect()
    }
}

impl SharedHistogram {
    /// Counts an operation that took so long.
    pub(super) fn add(&self, nanoseconds: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(nanoseconds)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
        self.max.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// What it holds now.
    pub(super) fn load(&self) -> Histogram {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(load).collect();
        let count = buckets.iter().sum();
        Histogram { buckets, count, sum: load(&self.sum), max: load(&self.max) }
    }
}

impl Default for SharedHistogram {
    fn default() -> SharedHistogram {
        let buckets = std::iter::repeat_with(AtomicU64::default).take(BUCKETS).collect();
        SharedHistogram { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

/// The bucket of a length of time.
fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < PARTS {
        return nanoseconds as usize;
    }
    let magnitude = nanoseconds.ilog2();
    let part = (nanoseconds >> (magnitude - PART_BITS)) - PARTS;
    let bucket = u64::from(magnitude - PART_BITS + 1) * PARTS + part;
    (bucket as usize).min(BUCKETS - 1)
}

/// The least length of time in a bucket.
fn bound(bucket: usize) -> u64 {
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    match octave {
        0 => part,
        _ => (PARTS + part) << (octave - 1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Lengths of time of all magnitudes.
    fn lengths() -> impl Strategy<Value = Vec<u64>> {
        let length = (0..MAX_BITS, any::<u64>()).prop_map(|(bits, any)| any % (1 << bits));
        proptest::collection::vec(length, 1..400)
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values_to_some_percent(
            values in lengths(), share in 0.0..=1.0f64
        ) {
            let (mut histogram, shared) = (Histogram::default(), SharedHistogram::default());
            for &value in &values {
                histogram.add(value);
                shared.add(value);
            }
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            for histogram in [&histogram, &shared.load()] {
                let found = histogram.quantile(share).unwrap();
                prop_assert!(found.abs_diff(exact) <= exact / 8 + 1, "{found}, not {exact}");
                prop_assert_eq!(histogram.count(), values.len() as u64);
                prop_assert_eq!(histogram.sum(), values.iter().sum::<u64>());
                prop_assert_eq!(Some(&histogram.max()), sorted.last());
                for (bits, below) in PUBLISHED_BITS.iter().zip(histogram.published()) {
                    let exact = values.iter().filter(|value| **value < 1 << bits).count();
                    prop_assert_eq!(below, exact as u64);
                }
            }
        }

        #[test]
        fn what_is_merged_counts_as_often_as_it_is_told(
            few in lengths(), many in lengths(), weight in 1..40u64
        ) {
            let (mut one, mut other, mut all) =
                (Histogram::default(), Histogram::default(), Histogram::default());
            many.iter().for_each(|value| one.add(*value));
            few.iter().for_each(|value| other.add(*value));
            one.merge(&other, weight);
            let repeated = few.iter().flat_map(|value| (0..weight).map(move |_| value));
            many.iter().chain(repeated).for_each(|value| all.add(*value));
            prop_assert_eq!(one.buckets, all.buckets);
            prop_assert_eq!((one.count, one.sum, one.max), (all.count, all.sum, all.max));
        }
    }

    #[test]
    fn what_is_too_long_is_in_the_last_bucket() {
        let mut histogram = Histogram::default();
        histogram.add(u64::MAX);
        assert_eq!(histogram.quantile(0.5), Some(bound(BUCKETS - 1) + (1 << 37)));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
