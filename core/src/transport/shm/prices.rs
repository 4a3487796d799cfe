//! What it costs to bring long payloads to a peer that waits for them, in each way, measured while
//! they travel, and which way costs less. Reads no clock; knows nothing of frames' contents.
//!
//! How fast lines move between two cores, how fast the system copies and what its calls cost
//! differ between processors, and on one machine with where two ranks run and what else runs
//! there: on a virtual machine, slots took three to five times as long for some seconds as for the
//! next ones, while the system's copies did not change. So nothing is assumed: the writer of a lane
//! measures what it writes to slots, the reader what it takes out of slots and what the system
//! reads for it, and puts its prices where the writer sees them. Now and then the dearer way is
//! taken, so that its price stays known.
//!
//! Both begin with what an earlier group on this machine has measured, if that is known.
//!
//! The prices say nothing of what follows: that a payload in the writer's memory is not done with
//! before the reader has said so, which matters to short ones. Where all ranks write and read at
//! once, and where what was read is reduced, slots are taken without a measurement.

use super::ring::SharedMemory;
use crate::price::{KnownPrices, Price, TRIED_AFTER, TRIED_USES, Trials, size_name};

/// Messages of fewer bytes go through slots: they are not measured.
pub(super) const PRICED_BYTES: usize = 256 << 10;

/// Classes of lengths: messages of up to twice [`PRICED_BYTES`], four times, …, and longer ones.
const CLASSES: usize = 8;
/// Bytes of the prices of a lane.
pub(super) const PRICES_BYTES: usize = CLASSES * size_of::<u64>();

/// The dearer way is tried after so many payloads of messages of a MiB and more, times how many
/// times dearer it is; of shorter ones, after as many messages as of that length. A payload of the
/// other kind amid many costs more than itself: neither side has the next one ready.
const MAX_TRIED_AFTER: u32 = 4 * TRIED_AFTER;

/// A price is told again when it has changed by this part.
const TOLD_PART: u32 = 8;
/// The system reads what costs at most three quarters of what slots cost: what it does for one rank
/// takes a lock of the other's.
const MARGIN: (u32, u32) = (3, 4);

/// How a payload reaches the reader's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFrom {
    /// The reader takes it out of a slot.
    Slot = 0,
    /// The system reads it out of the writer's memory.
    Attached = 1,
}

/// Messages of like lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LengthClass(usize);

/// What pieces of a payload took until now. A payload counts once: what disturbs one of its pieces
/// disturbs the others, and of many samples of one moment, a price would be of that moment. (Of a
/// message of 256 KiB, which took 21 us through slots and 29 otherwise, 8 pieces took four times
/// as long as usual after a pause, and the dearer way was the choice for hundreds of messages.)
#[derive(Clone, Copy, Default)]
struct Pieces {
    class: usize,
    bytes: usize,
    nanoseconds: u64,
}

/// What messages of a class cost, by class: what the writer writes to slots, what the reader takes
/// out of slots, and what the system reads for it. None unless all were measured.
#[derive(Clone, Copy, Default)]
pub(super) struct LanePrices([Option<[Price; 3]>; CLASSES]);

/// What the reader of a lane has measured.
#[derive(Default)]
pub(super) struct ReadPrices {
    known: [[Price; 2]; CLASSES],
    /// As far as the writer was told.
    told: [[Price; 2]; CLASSES],
    /// What was taken out of slots and is not in a price yet.
    pieces: Pieces,
}

/// What the writer of a lane has measured, and the choices that it has made.
#[derive(Default)]
pub(super) struct WritePrices {
    written: [Price; CLASSES],
    /// What was written and is not in a price yet.
    pieces: Pieces,
    /// How many payloads went each way, as far as that matters.
    uses: [[u32; 2]; CLASSES],
    /// When the dearer way is tried.
    trials: [Trials; CLASSES],
    /// Which way was last said to be the choice.
    told: [Option<ReadFrom>; CLASSES],
}

impl LengthClass {
    /// The class of a message of so many bytes; none if it is short.
    pub(super) fn of(message_bytes: u64) -> Option<LengthClass> {
        let times = usize::try_from(message_bytes / PRICED_BYTES as u64).ok()?;
        let class = times.checked_ilog2()? as usize;
        Some(LengthClass(class.min(CLASSES - 1)))
    }

    /// After how many payloads the dearer way is tried.
    fn tried_after(self) -> u32 {
        MAX_TRIED_AFTER.min(TRIED_AFTER << self.0)
    }

    /// The name of its prices.
    fn name(self) -> String {
        format!("message/{}", size_name(PRICED_BYTES << self.0))
    }

    /// Where the reader tells the prices of this class, of those that begin at `start`.
    fn place(self, start: usize) -> usize {
        start + self.0 * size_of::<u64>()
    }
}

/// Whether a price differs from what was told by so much that it should be told again.
fn differs(price: Price, told: Price) -> bool {
    price.0.abs_diff(told.0) > told.0 / TOLD_PART
}

impl Pieces {
    /// Adds a piece of a message of `class`; what a payload's worth of them took, if it is one.
    fn add(&mut self, class: LengthClass, bytes: usize, nanoseconds: u64) -> Option<(usize, u64)> {
        if self.class != class.0 {
            *self = Pieces { class: class.0, ..Pieces::default() };
        }
        self.bytes += bytes;
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
        if self.bytes < PRICED_BYTES {
            return None;
        }
        let whole = (self.bytes, self.nanoseconds);
        *self = Pieces { class: class.0, ..Pieces::default() };
        Some(whole)
    }
}

/// The two prices that the reader tells, as one word.
fn as_word([from_slot, attached]: [Price; 2]) -> u64 {
    u64::from(from_slot.0) | u64::from(attached.0) << 32
}

/// The two prices of a word that the reader has written.
fn of_word(word: u64) -> [Price; 2] {
    [word as u32, (word >> 32) as u32].map(Price)
}

impl LanePrices {
    /// Those of an earlier group.
    pub(super) fn of(known: &KnownPrices) -> LanePrices {
        let class = |class| known.get(&LengthClass(class).name());
        LanePrices(std::array::from_fn(class))
    }

    /// Adds to `known` what `lanes` cost: of each class, the lane in the middle.
    pub(super) fn add_to(lanes: &[LanePrices], known: &mut KnownPrices) {
        for class in 0..CLASSES {
            let mut prices: Vec<_> = lanes.iter().filter_map(|lane| lane.0[class]).collect();
            prices.sort_unstable_by_key(|prices| prices.map(|price| price.0));
            if let Some(middle) = prices.get(prices.len() / 2) {
                known.insert(LengthClass(class).name(), middle);
            }
        }
    }
}

impl ReadPrices {
    /// Those of a reader that begins with what is `known`.
    pub(super) fn of_known(known: &LanePrices) -> ReadPrices {
        let of_class = |prices: Option<[Price; 3]>| {
            prices.map_or_else(Default::default, |[_, from_slot, attached]| [from_slot, attached])
        };
        let known = known.0.map(of_class);
        ReadPrices { known, told: known, pieces: Pieces::default() }
    }

    /// Notes that taking `bytes` bytes took `nanoseconds`, and tells the writer if that is news, by
    /// the prices that begin at `start` of `memory`.
    pub(super) fn note(
        &mut self,
        start: usize,
        memory: &impl SharedMemory,
        (class, from): (LengthClass, ReadFrom),
        (bytes, nanoseconds): (usize, u64),
    ) {
        let whole = match from {
            ReadFrom::Slot => self.pieces.add(class, bytes, nanoseconds),
            ReadFrom::Attached => Some((bytes, nanoseconds)),
        };
        let Some((bytes, nanoseconds)) = whole else { return };
        let (known, told) = (&mut self.known[class.0], &mut self.told[class.0]);
        known[from as usize].note(bytes, nanoseconds);
        if differs(known[from as usize], told[from as usize]) {
            *told = *known;
            memory.store(class.place(start), as_word(*told));
        }
    }
}

impl WritePrices {
    /// Begins with what is `known`, for a reader that does the same and whose prices begin at
    /// `start` of `memory`. The reader has told nothing yet.
    pub(super) fn begin_with(
        &mut self,
        known: &LanePrices,
        start: usize,
        memory: &impl SharedMemory,
    ) {
        for (class, prices) in known.0.iter().enumerate() {
            let Some([written, from_slot, attached]) = *prices else { continue };
            memory.store(LengthClass(class).place(start), as_word([from_slot, attached]));
            self.written[class] = written;
            self.uses[class] = [TRIED_USES; 2];
            self.trials[class] = Trials::of_known();
        }
    }

    /// What is known now, if the reader's prices begin at `start` of `memory`.
    pub(super) fn known(&self, start: usize, memory: &impl SharedMemory) -> LanePrices {
        let of_class = |class: usize| {
            let [from_slot, attached] = of_word(memory.load(LengthClass(class).place(start)));
            let prices = [self.written[class], from_slot, attached];
            prices.iter().all(|price| price.is_known()).then_some(prices)
        };
        LanePrices(std::array::from_fn(of_class))
    }

    /// Notes that writing `bytes` bytes to a slot took `nanoseconds`.
    pub(super) fn note(&mut self, class: LengthClass, bytes: usize, nanoseconds: u64) {
        if let Some((bytes, nanoseconds)) = self.pieces.add(class, bytes, nanoseconds) {
            self.written[class.0].note(bytes, nanoseconds);
            let uses = &mut self.uses[class.0][ReadFrom::Slot as usize];
            *uses = uses.saturating_add(1);
        }
    }

    /// Whether the reader should have the next payload of a message of `class` read out of the
    /// writer's memory, which it can. It takes one piece out of a slot while the writer writes the
    /// next, so that slots cost what the slower side takes. The reader's prices begin at `start` of
    /// `memory`.
    pub(super) fn prefers_attached(
        &mut self,
        start: usize,
        memory: &impl SharedMemory,
        class: LengthClass,
    ) -> bool {
        // Each is tried in the beginning; of the first payloads, nothing is in the caches. What
        // goes through slots counts when it was written there.
        let [slots, attached] = &mut self.uses[class.0];
        if *slots < TRIED_USES {
            return false;
        }
        if *attached < TRIED_USES {
            *attached += 1;
            return true;
        }
        let [from_slot, attached] = of_word(memory.load(class.place(start))).map(|it| it.0);
        let written = self.written[class.0].0;
        if written == 0 || from_slot == 0 {
            return false;
        }
        if attached == 0 {
            return true;
        }
        let slots = written.max(from_slot);
        let is_cheaper = attached < slots / MARGIN.1 * MARGIN.0;
        let prices = [slots, attached].map(Price);
        let choice = if is_cheaper { ReadFrom::Attached } else { ReadFrom::Slot };
        if self.told[class.0] != Some(choice) {
            self.tell(class, choice, prices);
        }
        is_cheaper != self.trials[class.0].is_due(prices, class.tried_after())
    }

    /// Tells which way is the choice, which is news.
    #[cold]
    fn tell(&mut self, class: LengthClass, choice: ReadFrom, prices: [Price; 2]) {
        let [slots, attached] = prices.map(|price| price.0);
        // It may change with every payload if the prices are near the margin.
        let margin = slots / MARGIN.1 * MARGIN.0;
        let told = &mut self.told[class.0];
        if told.is_some() && attached.abs_diff(margin) < margin / TOLD_PART {
            return;
        }
        *told = Some(choice);
        let way = match choice {
            ReadFrom::Slot => "slots",
            ReadFrom::Attached => "the system copies",
        };
        let name = class.name();
        tracing::debug!("{name}: {way}; slots {slots} ps/B, the system's copy {attached} ps/B");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::memory::{File, Mapping};
    use super::*;

    const BYTES: usize = PRICED_BYTES;
    /// Where the prices begin.
    const START: usize = 64;

    /// The two sides, and what a byte costs in each way at the moment, ps.
    struct Sides {
        memory: Mapping,
        writer: WritePrices,
        reader: ReadPrices,
        slot_ps: u64,
        attached_ps: u64,
    }

    impl Sides {
        fn new(slot_ps: u64, attached_ps: u64) -> Sides {
            let memory = File::new(START + PRICES_BYTES).unwrap().map().unwrap();
            let (writer, reader) = (WritePrices::default(), ReadPrices::default());
            Sides { memory, writer, reader, slot_ps, attached_ps }
        }

        /// Brings a payload to the reader; whether the system has read it.
        fn bring(&mut self) -> bool {
            let class = LengthClass::of(BYTES as u64).unwrap();
            let attached = self.writer.prefers_attached(START, &self.memory, class);
            let took = |ps: u64| (BYTES, ps * BYTES as u64 / 1000);
            let (from, ps) = match attached {
                true => (ReadFrom::Attached, self.attached_ps),
                false => {
                    self.writer.note(class, BYTES, took(self.slot_ps).1);
                    (ReadFrom::Slot, self.slot_ps)
                }
            };
            self.reader.note(START, &self.memory, (class, from), took(ps));
            attached
        }

        /// How many of `payloads` the system has read.
        fn attached_of(&mut self, payloads: usize) -> usize {
            (0..payloads).filter(|_| self.bring()).count()
        }
    }

    #[test]
    fn both_ways_are_tried_and_the_cheaper_one_is_taken() {
        let tried = TRIED_USES as usize;
        let mut sides = Sides::new(100, 50);
        assert_eq!([sides.attached_of(tried), sides.attached_of(tried)], [0, tried]);
        assert!(sides.attached_of(1000) > 900);
        let mut sides = Sides::new(30, 50);
        assert_eq!([sides.attached_of(tried), sides.attached_of(tried)], [0, tried]);
        assert!((10..50).contains(&sides.attached_of(1000)), "it is tried now and then");
    }

    #[test]
    fn the_choice_follows_the_prices() {
        let mut sides = Sides::new(30, 100);
        assert!(sides.attached_of(1000) < 100);
        sides.slot_ps = 300;
        sides.attached_of(50);
        assert!(sides.attached_of(1000) > 900);
        sides.slot_ps = 30;
        sides.attached_of(3000);
        assert!(sides.attached_of(1000) < 100);
    }

    #[test]
    fn a_thread_that_loses_its_core_changes_little() {
        let mut sides = Sides::new(100, 50);
        sides.attached_of(40);
        sides.attached_ps = 1_000_000;
        sides.bring();
        sides.attached_ps = 50;
        assert!(sides.attached_of(100) > 90);
    }

    /// Sides that begin with what an earlier group left.
    fn known_sides(known: [u32; 3], slot_ps: u64, attached_ps: u64) -> Sides {
        let mut kept = KnownPrices::default();
        kept.insert(LengthClass(0).name(), &known.map(Price));
        let known = LanePrices::of(&kept);
        let mut sides = Sides::new(slot_ps, attached_ps);
        sides.writer.begin_with(&known, START, &sides.memory);
        sides.reader = ReadPrices::of_known(&known);
        sides
    }

    #[test]
    fn what_an_earlier_group_measured_is_chosen_immediately_and_tried_soon() {
        let mut sides = known_sides([90, 100, 50], 100, 50);
        assert_eq!(sides.attached_of(60), 60);
        assert!((80..100).contains(&sides.attached_of(100)));
        let mut sides = known_sides([30, 20, 50], 30, 50);
        assert_eq!(sides.attached_of(60), 0);
        assert!((1..20).contains(&sides.attached_of(100)));
    }

    #[test]
    fn what_an_earlier_group_got_wrong_is_corrected() {
        for (known, truth) in [
            ([20, 50, 100], [100, 50]),
            ([100, 100, 20], [30, 100]),
            ([1, 1, 100_000], [100, 50]),
            ([100_000, 100_000, 1], [30, 100]),
        ] {
            let mut sides = known_sides(known, truth[0], truth[1]);
            sides.attached_of(500);
            let expected = truth[1] < truth[0];
            let attached = sides.attached_of(1000);
            assert!(if expected { attached > 900 } else { attached < 100 }, "{known:?}");
            let mut corrected = KnownPrices::default();
            let lane = sides.writer.known(START, &sides.memory);
            LanePrices::add_to(&[lane], &mut corrected);
            let prices: [Price; 3] = corrected.get(&LengthClass(0).name()).unwrap();
            let slots = u64::from(prices[0].0.max(prices[1].0));
            assert!(slots.abs_diff(truth[0]) <= truth[0] / 4, "{prices:?}");
            assert!(u64::from(prices[2].0).abs_diff(truth[1]) <= truth[1] / 4, "{prices:?}");
        }
    }

    #[test]
    fn of_several_lanes_the_middle_one_is_kept_and_what_is_not_measured_is_not() {
        let lane = |prices: [u32; 3]| {
            let mut lane = LanePrices::default();
            lane.0[2] = Some(prices.map(Price));
            lane
        };
        let mut known = KnownPrices::default();
        LanePrices::add_to(&[lane([9, 9, 9]), lane([5, 1, 7]), lane([1, 8, 8])], &mut known);
        assert_eq!(known.get("message/1MiB"), Some([5, 1, 7].map(Price)));
        assert_eq!(known.get::<3>("message/256KiB"), None);
        let sides = Sides::new(100, 50);
        let nothing = sides.writer.known(START, &sides.memory);
        let mut known = KnownPrices::default();
        LanePrices::add_to(&[nothing], &mut known);
        assert!(known.is_empty());
    }

    #[test]
    fn one_slow_payload_changes_little_however_many_pieces_it_has() {
        let class = LengthClass(0);
        let mut sides = Sides::new(60, 90);
        sides.attached_of(100);
        for _ in 0..8 {
            let piece = (BYTES / 8, 240 * BYTES as u64 / 8 / 1000);
            sides.reader.note(START, &sides.memory, (class, ReadFrom::Slot), piece);
        }
        assert!(sides.attached_of(100) < 20);
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(class, BYTES / 2, 10), None);
        assert_eq!(pieces.add(LengthClass(1), BYTES / 2, 10), None, "it is of another message");
        assert_eq!(pieces.add(LengthClass(1), BYTES, 5), Some((BYTES / 2 + BYTES, 15)));
    }

    #[test]
    fn whatever_the_reader_says_is_a_choice() {
        let mut sides = Sides::new(100, 50);
        sides.attached_of(2 * TRIED_USES as usize);
        for told in [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32, 1 << 63] {
            let class = LengthClass::of(BYTES as u64).unwrap();
            sides.memory.store(class.place(START), told);
            for _ in 0..300 {
                sides.writer.prefers_attached(START, &sides.memory, class);
            }
        }
    }

    #[test]
    fn only_long_messages_have_a_class() {
        let class = |bytes| LengthClass::of(bytes).map(|class| class.0);
        let least = PRICED_BYTES as u64;
        assert_eq!([0, 1, least - 1].map(class), [None; 3]);
        assert_eq!([least, 2 * least - 1, 2 * least].map(class), [Some(0), Some(0), Some(1)]);
        assert_eq!(class(u64::MAX), Some(CLASSES - 1));
    }
}
