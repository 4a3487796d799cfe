//! What something costs that is measured again and again on a busy machine, and when the dearer of
//! two ways is tried again. Reads no clock; knows nothing of what is measured.

/// A sample above the price counts for this part; one below it for half, since nothing makes a copy
/// faster than it is.
const WEIGHT: u32 = 8;
/// A sample counts as at most so many times the price: a thread may have lost its core meanwhile.
const MAX_TIMES: u32 = 4;
/// The dearer way is tried after so many uses, times how many times dearer it is, …
const TRIED_AFTER: u32 = 256;
/// … so many times, one after the other: of the first, nothing is in the caches.
pub(crate) const TRIED_USES: u32 = 12;

/// Picoseconds for a byte; 0 if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Price(pub(crate) u32);

/// When the dearer of two ways is tried, so that its price stays known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trials {
    /// Uses since it was tried.
    since: u32,
}

impl Price {
    /// Takes in that `bytes` bytes took `nanoseconds`.
    pub(crate) fn note(&mut self, bytes: usize, nanoseconds: u64) {
        let sample = nanoseconds.saturating_mul(1000) / bytes.max(1) as u64;
        let sample = u32::try_from(sample).unwrap_or(u32::MAX).max(1);
        self.0 = match self.0 {
            0 => sample,
            known if sample <= known => known - (known - sample).div_ceil(2),
            known => {
                let sample = sample.min(known.saturating_mul(MAX_TIMES));
                known + ((sample - known) / WEIGHT).max(1)
            }
        };
    }
}

impl Trials {
    /// Notes a use; whether this one is for the dearer of ways with these prices.
    pub(crate) fn is_due(&mut self, prices: [Price; 2]) -> bool {
        let [one, other] = prices.map(|price| price.0);
        let times = one.max(other) / one.min(other).max(1);
        let due = TRIED_AFTER.saturating_mul(times);
        self.since = self.since.saturating_add(1);
        if self.since < due {
            return false;
        }
        if self.since >= due.saturating_add(TRIED_USES) {
            self.since = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_falls_fast_and_rises_slowly() {
        let mut price = Price::default();
        price.note(1000, 800);
        assert_eq!(price, Price(800));
        price.note(1000, 400);
        assert_eq!(price, Price(600));
        price.note(1000, 1_000_000);
        assert_eq!(price, Price(600 + 3 * 600 / 8), "no more than four times the price");
        (0..100).for_each(|_| price.note(1000, 300));
        assert_eq!(price, Price(300));
        price.note(0, u64::MAX);
        assert!(price.0 > 300);
    }

    #[test]
    fn the_dearer_way_is_tried_the_less_often_the_dearer_it_is() {
        let tried = |prices: [u32; 2], uses: u32| {
            let mut trials = Trials::default();
            (0..uses).filter(|_| trials.is_due(prices.map(Price))).count() as u32
        };
        assert_eq!(tried([100, 100], TRIED_AFTER - 1), 0);
        let once = TRIED_USES + 1;
        assert_eq!(tried([100, 100], TRIED_AFTER + TRIED_USES), once);
        assert_eq!(tried([100, 399], 2 * (3 * TRIED_AFTER + TRIED_USES)), 2 * once);
        assert!(tried([0, u32::MAX], 10_000) == 0);
    }
}
