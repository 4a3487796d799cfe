//! Payloads that the peer reads where they lie: until it has, they have not left; what is taken
//! back is not believed; pools come and go.

use super::super::lending::POOLED_BYTES;
use super::*;
use crate::kernels::Stores;
use crate::tensor::Region;
use crate::transport::suite::world::{World, message};
use crate::transport::{ArrivedPayload, Destination};
use crate::wire::frame::Kind;

const BYTES: usize = POOLED_BYTES + 1_000;

/// Memory that peers can read, full of `value`.
fn lent(value: u8) -> Region {
    let region = Region::for_elements(BYTES).unwrap();
    region.write(|bytes| bytes.fill(value));
    region
}

/// A group of two that has connected.
fn connected() -> World {
    let mut world = world(2);
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    world
}

#[test]
fn frames_leave_in_order_when_they_were_read() {
    let mut world = connected();
    let before = world.sent(0, 1).len();
    world.send_payload(0, 1, message(3, BYTES), Payload::Region(lent(1)));
    world.send(0, 1, 6, 10);
    world.drive_only(0);
    assert_eq!(world.sent(0, 1).len(), before, "nobody has read them");
    world.drive_until_all_arrived();
    let numbers: Vec<_> = world.sent(0, 1).iter().map(|header| header.message).collect();
    assert_eq!(numbers, [1, 3, 6]);
    assert!(world.arrived(1, 0)[1].1.as_ref().unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn a_short_frame_after_a_lent_one_that_was_read_leaves_too() {
    let mut world = connected();
    world.send_payload(0, 1, message(3, BYTES), Payload::Region(lent(1)));
    world.drive_only(0);
    world.drive_only(1);
    // The writer has not looked since. The reader need not tell that it has read what comes now.
    world.send(0, 1, 6, 10);
    world.drive_until_all_arrived();
    world.drive_only(0);
    let numbers: Vec<_> = world.sent(0, 1).iter().map(|header| header.message).collect();
    assert_eq!(numbers, [1, 3, 6]);
}

#[test]
fn more_pools_than_a_peer_keeps_come_and_go() {
    let mut world = connected();
    for number in 1..400 {
        // Each has a pool of its own, which goes when it was read.
        let region = Region::for_elements((16 << 20) + 4096).unwrap();
        let part = region.slice(number as usize * 4096..number as usize * 4096 + BYTES);
        part.write(|bytes| bytes.fill(number as u8));
        world.send_payload(0, 1, message(number * 3, BYTES), Payload::Region(part));
        world.drive_until_all_arrived();
        let arrived = world.arrived(1, 0).pop().unwrap().1.unwrap();
        assert!(arrived.iter().all(|byte| *byte == number as u8), "{number}");
    }
}

#[test]
fn so_many_pools_that_not_all_are_told_of() {
    let mut world = connected();
    let regions: Vec<Region> =
        (0..300).map(|_| Region::for_elements((16 << 20) + 4096).unwrap()).collect();
    for (number, region) in (1..).zip(&regions) {
        let part = region.slice(0..BYTES);
        world.send_payload(0, 1, message(number * 3, BYTES), Payload::Region(part));
        world.drive_until_all_arrived();
    }
    assert!(world.lost(1, 0).is_empty() && world.lost(0, 1).is_empty());
}

/// Takes frames in its own way, while the sender does something.
struct Reader<F> {
    during: F,
    into: Option<Region>,
    believed: Vec<bool>,
    /// What came that is not data.
    others: Vec<Kind>,
    lost: Vec<LossReason>,
}

impl<F: FnMut()> Reader<F> {
    fn new(during: F, into: Option<Region>) -> Reader<F> {
        Reader { during, into, believed: Vec::new(), others: Vec::new(), lost: Vec::new() }
    }
}

impl<F: FnMut()> Sink for Reader<F> {
    fn announced(&mut self, _: Rank, _: &Header) -> Destination {
        match &self.into {
            Some(region) => Destination::Into(region.clone(), Stores::Cached),
            None => Destination::Borrowed,
        }
    }
    fn arrived(&mut self, _: Rank, header: &Header, payload: ArrivedPayload<'_>) {
        if header.kind == Kind::Data {
            (self.during)();
            self.believed.push(payload.holds());
        } else {
            self.others.push(header.kind);
        }
    }
    fn sent(&mut self, _: Rank, _: &Header) {}
    fn lost(&mut self, _: Rank, why: LossReason) {
        self.lost.push(why);
    }
}

/// Two transports that have connected.
fn pair() -> [ShmTransport; 2] {
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    while !transports.iter().all(|it| it.table.active.len() == 1) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    let [one, other] = [transports.remove(0), transports.remove(0)];
    [one, other]
}

/// The end of a connection is learned of within so many turns.
const TURNS: u32 = 2 * EVENT_TURNS;

#[test]
fn what_is_taken_back_while_it_is_read_is_not_believed() {
    let [mut one, mut other] = pair();
    one.send(1, message(3, BYTES), Payload::Region(lent(1)));
    let mut reader = Reader::new(|| one.abandon(), None);
    other.advance(&mut reader);
    other.advance(&mut reader);
    assert_eq!((&reader.believed[..], &reader.lost[..]), (&[false][..], &[][..]));
    drop(one);
    let mut reader = Reader::new(|| {}, None);
    for _ in 0..TURNS {
        other.advance(&mut reader);
    }
    assert!(matches!(&reader.lost[..], [LossReason::Died(why)] if why.contains("took back")));
}

#[test]
fn what_was_taken_back_is_not_read() {
    for into in [None, Some(Region::zeroed(BYTES))] {
        let [mut one, mut other] = pair();
        let region = lent(1);
        one.send(1, message(3, BYTES), Payload::Region(region.clone()));
        one.abandon();
        region.write(|bytes| bytes.fill(2));
        assert!(region.is_unique(), "the sender has released it");
        drop(one);
        let mut reader = Reader::new(|| {}, into);
        for _ in 0..TURNS {
            other.advance(&mut reader);
        }
        assert!(reader.believed.is_empty());
        assert!(matches!(&reader.lost[..], [LossReason::Died(why)] if why.contains("took back")));
    }
}

#[test]
fn the_reason_behind_what_was_taken_back_is_heard() {
    for behind in [0, 10, 50_000, 4 << 20] {
        let [mut one, mut other] = pair();
        one.send(1, message(3, BYTES), Payload::Region(lent(1)));
        // It makes no sense without the one before; of the longest a part has left.
        one.send(1, message(6, behind), Payload::Owned(vec![7; behind]));
        one.send(1, message(9, BYTES), Payload::Region(lent(1)));
        one.abandon();
        one.send(1, Header::new(Kind::Abort, GENERATION), Payload::Owned(vec![7; 50]));
        let mut reader = Reader::new(|| {}, None);
        for _ in 0..TURNS {
            one.advance(&mut Nobody);
            other.advance(&mut reader);
        }
        assert!(reader.believed.is_empty() && reader.lost.is_empty(), "{behind}");
        assert_eq!(reader.others, [Kind::Abort], "{behind}");
    }
}

#[test]
fn what_a_parent_has_lent_is_not_taken_back_by_its_child() {
    let [mut one, mut other] = pair();
    let region = lent(1);
    one.send(1, message(3, BYTES), Payload::Region(region.clone()));
    // What a forked child has is the transport of another process.
    one.table.process_id = one.table.process_id.wrapping_add(1);
    drop(one);
    let mut reader = Reader::new(|| {}, None);
    other.advance(&mut reader);
    assert_eq!(reader.believed, [true]);
}

#[test]
fn what_was_read_before_stays_read_and_what_follows_arrives() {
    let [mut one, mut other] = pair();
    let mut reader = Reader::new(|| {}, None);
    one.send(1, message(3, BYTES), Payload::Region(lent(1)));
    other.advance(&mut reader);
    // Taken back too late, or not at all; the next frame is not lent.
    one.abandon();
    one.send(1, Header::new(Kind::Abort, GENERATION), Payload::Owned(vec![7; 50]));
    other.advance(&mut reader);
    assert_eq!((&reader.believed[..], &reader.lost[..]), (&[true][..], &[][..]));
}

#[test]
fn places_outside_of_pools_are_refused() {
    let transports = group(2, Timeouts::default());
    let ours = transports[0].file.as_ref().unwrap().map().unwrap();
    let lane = transports[0].table.peers[1].route.lane;
    let mut world = World::new(transports, Box::new(std::thread::yield_now));
    world.send_payload(0, 1, message(3, BYTES), Payload::Region(lent(1)));
    world.drive_until_all_arrived();
    world.send_payload(0, 1, message(3, BYTES), Payload::Region(lent(1)));
    // The second entry begins after two cells of the first.
    let piece =
        lane.ring.start + 2 * ring::CELL_BYTES + ring::ENTRY_HEAD_BYTES + entry::NUMBER_BYTES;
    ring::SharedMemory::write(&ours, piece, &(u64::MAX - 10).to_le_bytes());
    world.drive_until("loss", |world| !world.lost(1, 0).is_empty());
    assert!(matches!(&world.lost(1, 0)[..], [LossReason::Protocol(_)]));
}
