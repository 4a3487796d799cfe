//! Which way an exchange of data that does not fit the board takes: every rank reads the memory of
//! the others where it lies, or runs its schedule. Knows lengths and durations; no memory, and no
//! clock.
//!
//! Which is faster depends on the processor, on the length and on what else the machine does. So
//! rank 0 chooses for all, by what it has measured of either way in this group, and shows what it
//! chose on the board. Whoever measures waits until all ranks are there, so that it does not
//! measure how late they come.

use crate::generated::collective::Collective;
use crate::price::{Price, TRIED_USES, Trials};

/// Classes of lengths: a rank gives less than twice, four times, … as much as [`MIN_CLASS_BYTES`].
const CLASSES: usize = 16;
const MIN_CLASS_BYTES: usize = 8 << 10;
/// The collectives that have a choice.
const COLLECTIVES: usize = 2;

/// The first operations of a kind do not count: they open connections, and nothing is in the
/// caches.
const UNCOUNTED: u32 = 2;
/// Every so manyth operation is measured.
const MEASURED_EVERY: u32 = 8;

/// The way that the ranks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeWay {
    /// They read one another's memory.
    Direct = 0,
    /// They run the schedule.
    Schedule = 1,
}

/// Operations that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExchangeClass(usize);

/// What is chosen for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChosenWay {
    pub(super) way: ExchangeWay,
    /// Whether to measure how long it takes.
    pub(super) is_measured: bool,
}

/// What is known of either way.
#[derive(Debug, Default)]
pub(super) struct ExchangeChoice {
    classes: [Knowledge; COLLECTIVES * CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Knowledge {
    prices: [Price; 2],
    /// How often each way has been measured, as far as that matters.
    samples: [u32; 2],
    trials: Trials,
    /// Operations since one was measured.
    unmeasured: u32,
}

impl ExchangeClass {
    /// The class of an operation to which a rank gives so many bytes.
    pub(super) fn of(collective: Collective, bytes: usize) -> ExchangeClass {
        let times = (bytes / MIN_CLASS_BYTES).max(1).ilog2() as usize;
        let first = match collective {
            Collective::Allgather => 0,
            _ => CLASSES,
        };
        ExchangeClass(first + times.min(CLASSES - 1))
    }
}

impl ExchangeChoice {
    /// The way of the next operation of `class`. `may_measure` says whether it runs alone.
    pub(super) fn choose(&mut self, class: ExchangeClass, may_measure: bool) -> ChosenWay {
        let known = &mut self.classes[class.0];
        let [direct, schedule] = known.samples;
        let measured = |way| ChosenWay { way, is_measured: may_measure };
        if direct < TRIED_USES {
            return measured(ExchangeWay::Direct);
        }
        if schedule < TRIED_USES {
            // Until it is measured, nothing says that it is better.
            let way = if may_measure { ExchangeWay::Schedule } else { ExchangeWay::Direct };
            return measured(way);
        }
        let is_direct_cheaper = known.prices[0].0 <= known.prices[1].0;
        let is_trial = may_measure && known.trials.is_due(known.prices);
        let way = match is_direct_cheaper != is_trial {
            true => ExchangeWay::Direct,
            false => ExchangeWay::Schedule,
        };
        known.unmeasured = (known.unmeasured + 1) % MEASURED_EVERY;
        ChosenWay { way, is_measured: may_measure && (is_trial || known.unmeasured == 0) }
    }

    /// Notes that an operation of `class` in which a rank gave `bytes` took `nanoseconds` that way.
    pub(super) fn note(
        &mut self,
        (class, way): (ExchangeClass, ExchangeWay),
        bytes: usize,
        nanoseconds: u64,
    ) {
        let known = &mut self.classes[class.0];
        let samples = &mut known.samples[way as usize];
        *samples = samples.saturating_add(1);
        if *samples > UNCOUNTED {
            known.prices[way as usize].note(bytes, nanoseconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 16;

    /// Runs `operations`, which take `nanoseconds` by way; how many of them were direct.
    fn run(choice: &mut ExchangeChoice, operations: usize, nanoseconds: [u64; 2]) -> usize {
        let class = ExchangeClass::of(Collective::Allgather, BYTES);
        let mut run_one = || {
            let ChosenWay { way, is_measured } = choice.choose(class, true);
            if is_measured {
                choice.note((class, way), BYTES, nanoseconds[way as usize]);
            }
            way == ExchangeWay::Direct
        };
        (0..operations).filter(|_| run_one()).count()
    }

    #[test]
    fn both_ways_are_tried_and_the_faster_one_is_taken() {
        let tried = TRIED_USES as usize;
        for (nanoseconds, direct) in [([10_000, 20_000], true), ([20_000, 10_000], false)] {
            let mut choice = ExchangeChoice::default();
            assert_eq!(run(&mut choice, 2 * tried, nanoseconds), tried);
            let taken = run(&mut choice, 1000, nanoseconds);
            assert!(if direct { taken > 950 } else { taken < 50 }, "{nanoseconds:?}: {taken}");
        }
    }

    #[test]
    fn a_slow_beginning_does_not_decide() {
        let mut choice = ExchangeChoice::default();
        run(&mut choice, 12, [10_000, 0]);
        run(&mut choice, 1, [10_000, 5_000_000]);
        run(&mut choice, 11, [10_000, 8_000]);
        assert!(run(&mut choice, 100, [10_000, 8_000]) < 10);
    }

    #[test]
    fn the_choice_follows_the_machine() {
        let mut choice = ExchangeChoice::default();
        assert!(run(&mut choice, 1000, [10_000, 20_000]) > 900);
        run(&mut choice, 1000, [40_000, 20_000]);
        assert!(run(&mut choice, 1000, [40_000, 20_000]) < 100);
    }

    #[test]
    fn what_runs_beside_others_is_not_measured() {
        let class = ExchangeClass::of(Collective::Allgather, BYTES);
        for (measured, way) in [
            (0, ExchangeWay::Direct),
            (12, ExchangeWay::Direct),
            (13, ExchangeWay::Direct),
            (23, ExchangeWay::Direct),
            (24, ExchangeWay::Schedule),
        ] {
            let mut choice = ExchangeChoice::default();
            run(&mut choice, measured, [10_000, 8_000]);
            for _ in 0..1000 {
                let chosen = choice.choose(class, false);
                assert_eq!(chosen, ChosenWay { way, is_measured: false }, "{measured}");
            }
        }
    }

    #[test]
    fn every_length_has_a_class_of_its_collective() {
        let class = |collective, bytes| ExchangeClass::of(collective, bytes).0;
        let lengths = [0, 1, MIN_CLASS_BYTES, 4 * MIN_CLASS_BYTES - 1, 1 << 30, usize::MAX];
        let gathers = lengths.map(|bytes| class(Collective::Allgather, bytes));
        assert_eq!(gathers, [0, 0, 0, 1, CLASSES - 1, CLASSES - 1]);
        let others = lengths.map(|bytes| class(Collective::Alltoall, bytes));
        assert_eq!(others, gathers.map(|class| class + CLASSES));
    }
}
