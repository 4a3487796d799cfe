//! Whether the result of a collective, or a received message, is stored through the caches or past
//! them. Knows lengths and durations; no memory, and no clock.
//!
//! Stores past the caches save that lines are read before they are overwritten, and that what the
//! caches hold is driven out; they are slower where everything fits. Where that begins depends on
//! the processor, on who else uses its caches, and on how often each rank goes over its memory. So
//! every rank measures its own operations, by kind and length. All ranks of a collective try the
//! other way at the same time, since they count the same operations. Where an earlier group's
//! prices are known, all begin with the same ones.

use std::sync::Arc;
use std::time::Duration;

use crate::generated::collective::Collective;
use crate::kernels::Stores;
use crate::price::{Chosen, KnownPrices, Price, PricedChoice, TriedUses, Way, size_name};

/// Operations whose ranks go through fewer bytes store through the caches.
const MIN_TRIED_BYTES: usize = 1 << 20;

/// What is stored past the caches is read from memory afterwards, which is not measured: it has to
/// take an eighth less.
const READ_AFTERWARDS: (u64, u64) = (9, 8);

/// Operations that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoresClass {
    pub(super) kind: StoresKind,
    /// How many bytes the ranks that share a cache go through.
    pub(super) traffic: usize,
}

/// What stores the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoresKind {
    /// The schedule of the collective with this number.
    Schedule(u8),
    /// The collective with this number, in which ranks read one another's memory.
    Direct(u8),
    /// The receipt of a message.
    Message,
}

/// What is known of either way, by class.
#[derive(Debug, Default)]
pub(super) struct StoresChoice {
    /// At most one for each kind and power of two.
    known: Vec<(StoresClass, PricedChoice)>,
    /// What an earlier group has measured.
    earlier: Arc<KnownPrices>,
}

impl StoresClass {
    /// The class of a message of so many bytes, if `ranks` ranks share a cache.
    pub(super) fn of_message(bytes: usize, ranks: usize) -> StoresClass {
        // A rank sends about as much as it receives.
        let traffic = bytes.saturating_mul(2).saturating_mul(ranks);
        StoresClass { kind: StoresKind::Message, traffic }
    }

    /// The same for all that are chosen alike.
    fn rounded(self) -> StoresClass {
        let StoresClass { traffic, .. } = self;
        StoresClass { traffic: 1 << traffic.max(1).ilog2(), ..self }
    }

    /// The name of its prices, which are those of stores through the caches and past them.
    fn name(self) -> String {
        let of = |code| Collective::from_code(code).map_or("unknown", |it| it.facts().name);
        let size = size_name(self.rounded().traffic);
        match self.kind {
            StoresKind::Schedule(code) => format!("stores/schedule/{}/{size}", of(code)),
            StoresKind::Direct(code) => format!("stores/direct/{}/{size}", of(code)),
            StoresKind::Message => format!("stores/message/{size}"),
        }
    }

    /// How often either way is tried in the beginning.
    fn tried(self) -> TriedUses {
        TriedUses::of(self.rounded().traffic)
    }

    /// What is taken until it is measured.
    fn likely(self) -> Stores {
        Stores::of_traffic(self.rounded().traffic)
    }
}

impl StoresChoice {
    /// A choice that begins with what an earlier group has measured.
    pub(super) fn of_known(known: &Arc<KnownPrices>) -> StoresChoice {
        StoresChoice { earlier: known.clone(), ..StoresChoice::default() }
    }

    /// Adds what is known of either way.
    pub(super) fn add_prices(&self, known: &mut KnownPrices) {
        for (class, priced) in &self.known {
            if let Some(prices) = priced.prices() {
                known.insert(class.name(), &by_stores(*class, prices));
            }
        }
    }

    /// How the next operation of `class` stores its result, and whether it is to be measured.
    /// `may_measure` says whether it runs alone.
    pub(super) fn choose(&mut self, class: StoresClass, may_measure: bool) -> (Stores, bool) {
        if !Stores::CAN_STREAM || class.traffic < MIN_TRIED_BYTES {
            return (Stores::Cached, false);
        }
        // What is likely to be faster is the first way.
        let likely = class.likely();
        let Chosen { way, is_measured } = self.of(class).choose(may_measure, class.tried());
        let stores = if way == Way::First { likely } else { likely.other() };
        (stores, is_measured)
    }

    /// Notes that an operation of `class` that stored its result so took that long.
    pub(super) fn note(&mut self, class: StoresClass, stores: Stores, duration: Duration) {
        if !Stores::CAN_STREAM {
            return;
        }
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let way = if stores == class.likely() { Way::First } else { Way::Second };
        let nanoseconds = match stores {
            Stores::Cached => nanoseconds,
            Stores::Streaming => nanoseconds / READ_AFTERWARDS.1 * READ_AFTERWARDS.0,
        };
        let priced = self.of(class);
        priced.note(way, class.traffic, nanoseconds);
        if priced.news(class.tried()).is_some() {
            let prices = by_stores(class, priced.prices().unwrap_or_default());
            let [cached, streaming] = prices.map(|price| price.0);
            let way = if cached <= streaming { "through the caches" } else { "past the caches" };
            tracing::debug!(
                "{}: {way}; through {cached} ps/B, past {streaming} ps/B",
                class.name()
            );
        }
    }

    fn of(&mut self, class: StoresClass) -> &mut PricedChoice {
        let class = class.rounded();
        let place = self.known.iter().position(|(known, _)| *known == class);
        let place = place.unwrap_or_else(|| {
            let earlier = match self.earlier.is_empty() {
                true => None,
                false => self.earlier.get(&class.name()),
            };
            let begun = earlier.map(|prices| PricedChoice::of_known(by_stores(class, prices)));
            self.known.push((class, begun.unwrap_or_default()));
            self.known.len() - 1
        });
        &mut self.known[place].1
    }
}

/// Prices in the order of the ways, of those in the order of the stores, or the other way round.
fn by_stores(class: StoresClass, [one, other]: [Price; 2]) -> [Price; 2] {
    match class.likely() {
        Stores::Cached => [one, other],
        Stores::Streaming => [other, one],
    }
}

// Elsewhere there is nothing to choose.
#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Runs operations of which a byte takes `picoseconds` through the caches and past them; how
    /// many of them went past.
    fn streamed(
        choice: &mut StoresChoice,
        class: StoresClass,
        operations: usize,
        picoseconds: [u64; 2],
    ) -> usize {
        let mut run_one = || {
            let (stores, is_measured) = choice.choose(class, true);
            if is_measured {
                let ps = picoseconds[stores as usize];
                let duration = Duration::from_nanos(class.traffic as u64 / 1000 * ps);
                choice.note(class, stores, duration);
            }
            stores == Stores::Streaming
        };
        (0..operations).filter(|_| run_one()).count()
    }

    #[test]
    fn what_takes_less_time_is_taken_whatever_the_length() {
        for traffic in [MIN_TRIED_BYTES, 16 << 20, 1 << 30, 1 << 40] {
            for kind in [StoresKind::Schedule(3), StoresKind::Direct(3), StoresKind::Message] {
                let class = StoresClass { kind, traffic };
                let mut choice = StoresChoice::default();
                streamed(&mut choice, class, 24, [100, 50]);
                assert!(streamed(&mut choice, class, 1000, [100, 50]) > 950, "{traffic}");
                let mut choice = StoresChoice::default();
                streamed(&mut choice, class, 24, [100, 95]);
                assert!(streamed(&mut choice, class, 1000, [100, 95]) < 50, "{traffic}");
            }
        }
    }

    #[test]
    fn what_an_earlier_group_measured_decides_until_it_is_measured_here() {
        for traffic in [MIN_TRIED_BYTES, 1 << 40] {
            for picoseconds in [[100, 50], [50, 100]] {
                let class = StoresClass { kind: StoresKind::Schedule(1), traffic };
                let mut first = StoresChoice::default();
                streamed(&mut first, class, 100, picoseconds);
                let mut known = KnownPrices::default();
                first.add_prices(&mut known);
                let [cached, streaming] = known.get(&class.name()).unwrap_or_default();
                assert_eq!(cached.0 > streaming.0, picoseconds[0] > picoseconds[1]);
                let mut second = StoresChoice::of_known(&Arc::new(known));
                let expected = if picoseconds[0] > picoseconds[1] { 40 } else { 0 };
                assert_eq!(streamed(&mut second, class, 40, picoseconds), expected);
            }
        }
    }

    #[test]
    fn classes_have_names_of_their_own() {
        let kinds = [StoresKind::Schedule(1), StoresKind::Direct(1), StoresKind::Message];
        let names = kinds.map(|kind| StoresClass { kind, traffic: 3 << 20 }.name());
        let collective = Collective::from_code(1).map_or("unknown", |it| it.facts().name);
        let [schedule, direct] =
            ["schedule", "direct"].map(|kind| format!("stores/{kind}/{collective}/2MiB"));
        assert_eq!(names, [schedule, direct, "stores/message/2MiB".to_owned()]);
    }

    #[test]
    fn short_results_are_stored_through_the_caches_and_nothing_is_remembered_of_them() {
        let class = StoresClass { kind: StoresKind::Message, traffic: MIN_TRIED_BYTES - 1 };
        let mut choice = StoresChoice::default();
        assert_eq!(streamed(&mut choice, class, 1000, [100, 1]), 0);
        assert!(choice.known.is_empty());
    }

    #[test]
    fn lengths_between_two_powers_of_two_are_one_class() {
        let mut choice = StoresChoice::default();
        for traffic in (2 << 20..4 << 20).step_by(4099) {
            choice.choose(StoresClass { kind: StoresKind::Message, traffic }, true);
        }
        assert_eq!(choice.known.len(), 1);
    }
}
