//! Which way an exchange of data that does not fit the board takes: every rank reads the memory of
//! the others where it lies, or runs its schedule. Knows lengths and durations; no memory, and no
//! clock.
//!
//! Which is faster depends on the processor, on the length and on what else the machine does. So
//! rank 0 chooses for all, by what it has measured of either way in this group, and shows what it
//! chose on the board. Whoever measures waits until all ranks are there, so that it does not
//! measure how late they come.

use super::limits::SEGMENT_BYTES;
use crate::generated::collective::Collective;
use crate::price::{Chosen, KnownPrices, PricedChoice, TRIED_USES, TriedUses, Way, size_name};

/// Classes of lengths: a rank gives less than twice, four times, … as much as [`MIN_CLASS_BYTES`].
const CLASSES: usize = 16;
const MIN_CLASS_BYTES: usize = 8 << 10;
/// The collectives that have a choice.
const COLLECTIVES: [Collective; 5] = [
    Collective::Allgather,
    Collective::Alltoall,
    Collective::Allreduce,
    Collective::ReduceScatter,
    Collective::Broadcast,
];

/// Bytes that a schedule sends to a peer before it costs what it will cost: the lanes that its
/// messages take have to try their own two ways, in segments.
const LANES_TRIED_BYTES: usize = 2 * TRIED_USES as usize * SEGMENT_BYTES;

/// The way that the ranks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeWay {
    /// They read one another's memory.
    Direct,
    /// They run the schedule.
    Schedule,
}

/// Operations that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExchangeClass {
    /// Its place among [`COLLECTIVES`].
    collective: usize,
    length: usize,
}

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
    /// By collective, and then by length.
    classes: [[PricedChoice; CLASSES]; COLLECTIVES.len()],
}

impl ExchangeClass {
    /// The class of an operation to which a rank gives so many bytes.
    pub(super) fn of(collective: Collective, bytes: usize) -> ExchangeClass {
        let times = (bytes / MIN_CLASS_BYTES).max(1).ilog2() as usize;
        // Others are never on the board without being read.
        let collective = COLLECTIVES.iter().position(|known| *known == collective).unwrap_or(0);
        ExchangeClass { collective, length: times.min(CLASSES - 1) }
    }

    fn all() -> impl Iterator<Item = ExchangeClass> {
        let of_collective =
            |collective| (0..CLASSES).map(move |length| ExchangeClass { collective, length });
        (0..COLLECTIVES.len()).flat_map(of_collective)
    }

    /// The least that a rank gives, but for the shortest.
    fn bytes(self) -> usize {
        MIN_CLASS_BYTES << self.length
    }

    /// How often either way is tried in the beginning: a schedule also while its lanes try theirs.
    fn tried(self) -> TriedUses {
        let TriedUses { first, second } = TriedUses::of(self.bytes());
        // A message is a segment or more.
        let of_lanes = LANES_TRIED_BYTES.div_ceil(self.bytes().max(SEGMENT_BYTES));
        TriedUses { first, second: second + of_lanes as u32 }
    }

    /// The name of its prices.
    fn name(self) -> String {
        let collective = COLLECTIVES[self.collective].facts().name;
        format!("exchange/{collective}/{}", size_name(self.bytes()))
    }
}

impl ExchangeChoice {
    /// A choice that begins with what an earlier group has measured.
    pub(super) fn of_known(known: &KnownPrices) -> ExchangeChoice {
        let mut choice = ExchangeChoice::default();
        for class in ExchangeClass::all() {
            if let Some(prices) = known.get(&class.name()) {
                *choice.of(class) = PricedChoice::of_known(prices);
            }
        }
        choice
    }

    /// Adds what is known of either way.
    pub(super) fn add_prices(&self, known: &mut KnownPrices) {
        for class in ExchangeClass::all() {
            if let Some(prices) = self.classes[class.collective][class.length].prices() {
                known.insert(class.name(), &prices);
            }
        }
    }

    /// The way of the next operation of `class`. `may_measure` says whether it runs alone.
    pub(super) fn choose(&mut self, class: ExchangeClass, may_measure: bool) -> ChosenWay {
        let Chosen { way, is_measured } = self.of(class).choose(may_measure, class.tried());
        let way = match way {
            Way::First => ExchangeWay::Direct,
            Way::Second => ExchangeWay::Schedule,
        };
        ChosenWay { way, is_measured }
    }

    /// Notes that an operation of `class` in which a rank gave `bytes` took `nanoseconds` that way.
    pub(super) fn note(
        &mut self,
        (class, way): (ExchangeClass, ExchangeWay),
        bytes: usize,
        nanoseconds: u64,
    ) {
        let way = match way {
            ExchangeWay::Direct => Way::First,
            ExchangeWay::Schedule => Way::Second,
        };
        let priced = self.of(class);
        priced.note(way, bytes, nanoseconds);
        if let Some(way) = priced.news(class.tried()) {
            let way = if way == Way::First { "direct" } else { "by messages" };
            let [direct, schedule] = priced.prices().unwrap_or_default().map(|price| price.0);
            tracing::debug!(
                "{}: {way}; direct {direct} ps/B, by messages {schedule} ps/B",
                class.name()
            );
        }
    }

    fn of(&mut self, class: ExchangeClass) -> &mut PricedChoice {
        &mut self.classes[class.collective][class.length]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_schedule_is_chosen_where_it_costs_less() {
        let mut choice = ExchangeChoice::default();
        let (gathers, others) = (Collective::Allgather, Collective::Alltoall);
        let [gathers, others] = [gathers, others].map(|it| ExchangeClass::of(it, 1 << 16));
        let mut run = |class: ExchangeClass, nanoseconds: [u64; 2]| {
            let ChosenWay { way, is_measured } = choice.choose(class, true);
            if is_measured {
                choice.note((class, way), 1 << 16, nanoseconds[way as usize]);
            }
            way
        };
        let mut scheduled = [0; 2];
        for _ in 0..200 {
            let ways = [run(gathers, [10_000, 5_000]), run(others, [5_000, 15_000])];
            let is_scheduled = ways.map(|way| usize::from(way == ExchangeWay::Schedule));
            scheduled = [0, 1].map(|index| scheduled[index] + is_scheduled[index]);
        }
        assert_eq!(scheduled, [200 - TRIED_USES as usize, 5], "clearly dearer");
    }

    #[test]
    fn what_an_earlier_group_measured_decides_until_it_is_measured_here() {
        let class = ExchangeClass::of(Collective::Alltoall, 1 << 16);
        assert_eq!(class.name(), "exchange/alltoall/64KiB");
        let mut first = ExchangeChoice::default();
        for _ in 0..100 {
            let ChosenWay { way, is_measured } = first.choose(class, true);
            let nanoseconds = [20_000, 10_000][way as usize];
            is_measured.then(|| first.note((class, way), 1 << 16, nanoseconds));
        }
        let mut known = KnownPrices::default();
        first.add_prices(&mut known);
        let mut second = ExchangeChoice::of_known(&known);
        let mut ways = (0..40).map(|_| second.choose(class, true).way);
        assert!(ways.all(|way| way == ExchangeWay::Schedule));
        let other = ExchangeClass::of(Collective::Allgather, 1 << 16);
        assert_eq!(second.choose(other, true).way, ExchangeWay::Direct, "it is tried first");
    }

    #[test]
    fn long_operations_are_tried_less_often() {
        let tried = |bytes| ExchangeClass::of(Collective::Allgather, bytes).tried();
        let [first, lanes] = [TRIED_USES, 2 * TRIED_USES];
        assert_eq!(tried(1 << 16), TriedUses { first, second: first + lanes });
        assert_eq!(tried(1 << 20), TriedUses { first, second: first + lanes / 4 });
        assert_eq!(tried(4 << 20), TriedUses { first: 5, second: 5 + 2 });
        assert_eq!(tried(1 << 30), TriedUses { first: 5, second: 5 + 1 });
    }

    #[test]
    fn every_length_has_a_class_of_its_collective() {
        let lengths = [0, 1, MIN_CLASS_BYTES, 4 * MIN_CLASS_BYTES - 1, 1 << 30, usize::MAX];
        for (place, collective) in COLLECTIVES.into_iter().enumerate() {
            let classes = lengths.map(|bytes| ExchangeClass::of(collective, bytes));
            assert_eq!(classes.map(|it| it.length), [0, 0, 0, 1, CLASSES - 1, CLASSES - 1]);
            assert!(classes.iter().all(|class| class.collective == place));
        }
        let names: HashSet<_> = ExchangeClass::all().map(ExchangeClass::name).collect();
        assert_eq!(names.len(), CLASSES * COLLECTIVES.len());
    }
}
