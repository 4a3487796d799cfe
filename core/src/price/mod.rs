//! What something costs that is measured again and again on a busy machine, and which of two ways
//! is chosen by that. Reads no clock; knows nothing of what is measured.
//!
//! What a group has measured is where a later one begins (`known`): the cheaper way is taken from
//! the first use on. Such a price is somebody else's word, so the dearer way is tried soon.

#[cfg(feature = "tcp")]
mod known;
#[cfg(not(feature = "tcp"))]
#[path = "known_nowhere.rs"]
mod known;

pub use self::known::KnownPrices;
pub(crate) use self::known::size_name;
#[cfg(feature = "tcp")]
pub(crate) use self::known::{MAX_TEXT_BYTES, checksum};

/// Where the text of kept prices begins that follows something else: all ranks have to know where
/// that ends, also one that keeps none.
pub(crate) fn kept_text_in(text: &str) -> Option<usize> {
    text.find("\npolyrank prices ").map(|before| before + 1)
}

/// A sample above the price counts for this part; one below it for half, since nothing makes a copy
/// faster than it is.
const WEIGHT: u32 = 8;
/// A sample counts as at most so many times the price: a thread may have lost its core meanwhile.
const MAX_TIMES: u32 = 4;
/// The dearer way is tried after so many uses, times how many times dearer it is, …
pub(crate) const TRIED_AFTER: u32 = 256;
/// … so many times, one after the other: of the first, nothing is in the caches.
pub(crate) const TRIED_USES: u32 = 12;
/// In the beginning, uses that move this many bytes together are enough to know a way: …
const TRIED_BYTES: usize = 16 << 20;
/// … what disturbs a long use for a moment changes little of its price. So many they are at least.
const MIN_TRIED_USES: u32 = UNCOUNTED + 3;
/// A second way that costs so many times as much after as many uses is not tried further.
const CLEAR_TIMES: u32 = 2;
/// Where the prices are those of an earlier group, it is first tried after so many.
const CONFIRMED_AFTER: u32 = 64;
/// Another way than before counts as the cheaper one, where that is told, if the price of the other
/// is higher by this part.
const CLEAR_PART: u32 = 16;

/// The first uses of a way do not count: they open connections, and nothing is in the caches.
const UNCOUNTED: u32 = 2;
/// Every so manyth use is measured.
const MEASURED_EVERY: u32 = 8;

/// Picoseconds for a byte; 0 if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price(pub u32);

/// When the dearer of two ways is tried, so that its price stays known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trials {
    /// Uses since it was tried.
    since: u32,
    /// Whether the prices are those of an earlier group.
    is_unconfirmed: bool,
}

/// One of two ways to do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The one that is taken until either is measured.
    First = 0,
    /// The other.
    Second = 1,
}

/// What is chosen for one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) way: Way,
    /// Whether to measure how long it takes.
    pub(crate) is_measured: bool,
}

/// A choice between two ways by what they cost, both of which are tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PricedChoice {
    prices: [Price; 2],
    /// How often each way has been measured, as far as that matters.
    samples: [u32; 2],
    trials: Trials,
    /// Uses since one was measured.
    unmeasured: u32,
    /// Which way was last said to cost less.
    told: Option<Way>,
}

/// How often each of two ways is tried in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TriedUses {
    pub(crate) first: u32,
    pub(crate) second: u32,
}

impl TriedUses {
    /// Of two ways to move `bytes` bytes.
    pub(crate) fn of(bytes: usize) -> TriedUses {
        let uses = TRIED_BYTES / bytes.max(1);
        let uses = u32::try_from(uses).unwrap_or(u32::MAX).clamp(MIN_TRIED_USES, TRIED_USES);
        TriedUses { first: uses, second: uses }
    }
}

impl PricedChoice {
    /// A choice between ways that had these prices in an earlier group.
    pub(crate) fn of_known(prices: [Price; 2]) -> PricedChoice {
        let trials = Trials::of_known();
        PricedChoice { prices, samples: [u32::MAX; 2], trials, ..PricedChoice::default() }
    }

    /// What both ways cost; none until both were measured.
    pub(crate) fn prices(&self) -> Option<[Price; 2]> {
        self.prices.iter().all(|price| price.is_known()).then_some(self.prices)
    }

    /// Which way costs less, when that is news: when both ways were `tried` so often, and when it
    /// has clearly changed.
    pub(crate) fn news(&mut self, tried: TriedUses) -> Option<Way> {
        let [first, second] = self.prices.map(|price| price.0);
        if self.samples[0] < tried.first || !self.is_second_tried(tried) {
            return None;
        }
        let cheaper = if first <= second { Way::First } else { Way::Second };
        let is_clear = first.abs_diff(second) > first.min(second) / CLEAR_PART;
        if self.told == Some(cheaper) || (self.told.is_some() && !is_clear) {
            return None;
        }
        self.told = Some(cheaper);
        self.told
    }

    /// The way of the next use. `may_measure` says whether it could be measured. In the beginning,
    /// both ways are `tried` so often.
    pub(crate) fn choose(&mut self, may_measure: bool, tried: TriedUses) -> Chosen {
        let measured = |way| Chosen { way, is_measured: may_measure };
        if self.samples[0] < tried.first {
            return measured(Way::First);
        }
        if !self.is_second_tried(tried) {
            // Until it is measured, nothing says that it is better.
            return measured(if may_measure { Way::Second } else { Way::First });
        }
        let is_first_cheaper = self.prices[0].0 <= self.prices[1].0;
        let is_unconfirmed = self.trials.is_unconfirmed;
        let is_trial = may_measure && self.trials.is_due(self.prices, TRIED_AFTER);
        let way = if is_first_cheaper != is_trial { Way::First } else { Way::Second };
        self.unmeasured = (self.unmeasured + 1) % MEASURED_EVERY;
        let is_due = is_trial || is_unconfirmed || self.unmeasured == 0;
        Chosen { way, is_measured: may_measure && is_due }
    }

    /// Notes that a use of `way` for `bytes` bytes took `nanoseconds`.
    pub(crate) fn note(&mut self, way: Way, bytes: usize, nanoseconds: u64) {
        let samples = &mut self.samples[way as usize];
        *samples = samples.saturating_add(1);
        if *samples > UNCOUNTED {
            self.prices[way as usize].note(bytes, nanoseconds);
        }
    }

    /// Whether the second way was tried so often, or is clearly the dearer one.
    fn is_second_tried(&self, tried: TriedUses) -> bool {
        let samples = self.samples[Way::Second as usize];
        let [first, second] = self.prices.map(|price| price.0);
        let is_clear = first > 0 && second / CLEAR_TIMES > first;
        samples >= tried.second || (samples >= MIN_TRIED_USES && is_clear)
    }
}

impl Price {
    /// Whether it was measured.
    pub(crate) fn is_known(self) -> bool {
        self.0 > 0
    }

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
    /// Those of ways whose prices are an earlier group's.
    pub(crate) fn of_known() -> Trials {
        Trials { since: 0, is_unconfirmed: true }
    }

    /// Notes a use; whether this one is for the dearer of ways with these prices, which is tried
    /// after `tried_after` uses if both cost about as much.
    pub(crate) fn is_due(&mut self, prices: [Price; 2], tried_after: u32) -> bool {
        let [one, other] = prices.map(|price| price.0);
        let times = one.max(other) / one.min(other).max(1);
        let due = match self.is_unconfirmed {
            true => CONFIRMED_AFTER,
            false => tried_after.saturating_mul(times),
        };
        self.since = self.since.saturating_add(1);
        if self.since < due {
            return false;
        }
        if self.since >= due.saturating_add(TRIED_USES) {
            *self = Trials::default();
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

    const BYTES: usize = 1 << 16;
    const TRIED: TriedUses = TriedUses { first: TRIED_USES, second: TRIED_USES };

    /// Runs `uses`, which take `nanoseconds` by way; how many of them went the first way.
    fn run(choice: &mut PricedChoice, uses: usize, nanoseconds: [u64; 2]) -> usize {
        let mut run_one = || {
            let Chosen { way, is_measured } = choice.choose(true, TRIED);
            if is_measured {
                choice.note(way, BYTES, nanoseconds[way as usize]);
            }
            way == Way::First
        };
        (0..uses).filter(|_| run_one()).count()
    }

    #[test]
    fn both_ways_are_tried_and_the_cheaper_one_is_taken() {
        let tried = TRIED_USES as usize;
        for (nanoseconds, first) in [([10_000, 20_000], true), ([20_000, 10_000], false)] {
            let mut choice = PricedChoice::default();
            assert_eq!(run(&mut choice, 2 * tried, nanoseconds), tried);
            let taken = run(&mut choice, 1000, nanoseconds);
            assert!(if first { taken > 950 } else { taken < 50 }, "{nanoseconds:?}: {taken}");
        }
    }

    #[test]
    fn long_uses_are_tried_less_often() {
        let tried = |bytes| TriedUses::of(bytes).first;
        assert_eq!([0, 1 << 10, 1 << 20].map(tried), [TRIED_USES; 3]);
        assert_eq!([2 << 20, 4 << 20, usize::MAX].map(tried), [8, MIN_TRIED_USES, MIN_TRIED_USES]);
        assert_eq!(TriedUses::of(BYTES), TRIED);
    }

    #[test]
    fn a_way_that_is_clearly_dearer_is_not_tried_further() {
        let tried = TriedUses { second: 100, ..TRIED };
        for (second, uses) in [(25_000, MIN_TRIED_USES), (15_000, 100)] {
            let mut choice = PricedChoice::default();
            let mut dearer = 0;
            for _ in 0..120 {
                let Chosen { way, .. } = choice.choose(true, tried);
                choice.note(way, BYTES, [10_000, second][way as usize]);
                dearer += u32::from(way == Way::Second);
            }
            assert_eq!(dearer, uses);
        }
    }

    #[test]
    fn a_slow_beginning_does_not_decide() {
        let mut choice = PricedChoice::default();
        run(&mut choice, 12, [10_000, 0]);
        run(&mut choice, 1, [10_000, 5_000_000]);
        run(&mut choice, 11, [10_000, 8_000]);
        assert!(run(&mut choice, 100, [10_000, 8_000]) < 10);
    }

    #[test]
    fn the_choice_follows_the_machine() {
        let mut choice = PricedChoice::default();
        assert!(run(&mut choice, 1000, [10_000, 20_000]) > 900);
        run(&mut choice, 1000, [40_000, 20_000]);
        assert!(run(&mut choice, 1000, [40_000, 20_000]) < 100);
    }

    #[test]
    fn an_earlier_groups_choice_is_taken_from_the_first_use_on() {
        for (prices, first) in [([150, 300], 60), ([300, 150], 0)] {
            let mut choice = PricedChoice::of_known(prices.map(Price));
            let nanoseconds = prices.map(|ps| (ps as usize * BYTES / 1000) as u64);
            assert_eq!(run(&mut choice, 60, nanoseconds), first);
            let tried = run(&mut choice, 40, nanoseconds).abs_diff(if first > 0 { 40 } else { 0 });
            assert_eq!(tried, TRIED_USES as usize + 1, "the other way is tried soon");
        }
    }

    #[test]
    fn an_earlier_groups_mistake_is_found_out_at_the_first_trial() {
        // However much dearer the other way was said to be.
        for dearer in [200, 1000, 1_000_000] {
            let mut choice = PricedChoice::of_known([Price(100), Price(dearer)]);
            let truth = [BYTES as u64, BYTES as u64 / 10];
            run(&mut choice, CONFIRMED_AFTER as usize + TRIED_USES as usize + 1, truth);
            assert!(run(&mut choice, 100, truth) < 10, "{dearer}");
            assert!(choice.prices().is_some_and(|[first, second]| first.0 > 5 * second.0));
        }
    }

    #[test]
    fn news_is_what_both_trials_say_and_every_clear_change() {
        let mut choice = PricedChoice::default();
        let mut told = Vec::new();
        for (uses, truth) in [
            (500, [10_000, 20_000]),
            (1000, [10_000, 9_900]),
            (1000, [10_000, 5_000]),
            (3000, [2_000, 5_000]),
        ] {
            for _ in 0..uses {
                run(&mut choice, 1, truth);
                told.extend(choice.news(TRIED));
            }
        }
        assert_eq!(told, [Way::First, Way::Second, Way::First]);
        let mut choice = PricedChoice::of_known([Price(2), Price(1)]);
        assert_eq!([choice.news(TRIED), choice.news(TRIED)], [Some(Way::Second), None]);
        assert_eq!(PricedChoice::default().news(TRIED), None);
    }

    #[test]
    fn what_cannot_be_measured_goes_the_way_that_is_known() {
        for (measured, way) in [
            (0, Way::First),
            (12, Way::First),
            (13, Way::First),
            (23, Way::First),
            (24, Way::Second),
        ] {
            let mut choice = PricedChoice::default();
            run(&mut choice, measured, [10_000, 8_000]);
            for _ in 0..1000 {
                let chosen = choice.choose(false, TRIED);
                assert_eq!(chosen, Chosen { way, is_measured: false }, "{measured}");
            }
        }
    }

    #[test]
    fn the_dearer_way_is_tried_the_less_often_the_dearer_it_is() {
        let tried = |prices: [u32; 2], uses: u32| {
            let mut trials = Trials::default();
            (0..uses).filter(|_| trials.is_due(prices.map(Price), TRIED_AFTER)).count() as u32
        };
        assert_eq!(tried([100, 100], TRIED_AFTER - 1), 0);
        let once = TRIED_USES + 1;
        assert_eq!(tried([100, 100], TRIED_AFTER + TRIED_USES), once);
        assert_eq!(tried([100, 399], 2 * (3 * TRIED_AFTER + TRIED_USES)), 2 * once);
        assert!(tried([0, u32::MAX], 10_000) == 0);
    }
}
