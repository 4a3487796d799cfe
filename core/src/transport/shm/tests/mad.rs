//! A peer that writes anything into its lane: it is given up with a reason, and nothing else
//! happens.

use proptest::prelude::*;

use super::super::ring::SharedMemory;
use super::*;
use crate::transport::suite::world::{World, message};

/// A group of two that has connected, and rank 0's segment and lane as rank 0 sees them.
fn connected() -> (World, Mapping, Lane) {
    let transports = group(2, Timeouts::default());
    let ours = transports[0].file.as_ref().unwrap().map().unwrap();
    let lane = transports[0].table.peers[1].route.lane;
    let mut world = World::new(transports, Box::new(std::thread::yield_now));
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    (world, ours, lane)
}

/// Makes the next entry of rank 0's lane: `words` in front of what is in `body`.
fn write_entry(ours: &Mapping, lane: &Lane, stamp: u64, cells: u32, tag: u32, body: &[u8]) {
    // The first entry, of 10 bytes, took two cells.
    let at = lane.ring.start + 2 * ring::CELL_BYTES;
    ours.write(at + ring::ENTRY_HEAD_BYTES, body);
    ours.write(at + 8, &(u64::from(cells) | u64::from(tag) << 32).to_le_bytes());
    ours.store(at, stamp);
}

fn header(payload_bytes: u32) -> [u8; Header::BYTES] {
    let mut header = message(2, payload_bytes as usize);
    header.payload_bytes = payload_bytes;
    header.encode()
}

fn piece(position: u64, bytes: u64) -> Vec<u8> {
    entry::Piece { position, bytes }.encode().to_vec()
}

#[test]
fn senseless_entries_end_the_connection() {
    let max = crate::wire::frame::MAX_PAYLOAD_BYTES;
    let staged = |position, bytes, whole| [&piece(position, bytes)[..], &header(whole)].concat();
    let entries: [(u32, u32, Vec<u8>); 14] = [
        (0, entry::WHOLE, Vec::new()),
        (u32::MAX, entry::WHOLE, Vec::new()),
        (1023, entry::WHOLE, Vec::new()),
        (2, 77, Vec::new()),
        (2, entry::WHOLE, vec![0xff; 80]),
        (2, entry::WHOLE, header(4000).to_vec()),
        (2, entry::STAGED, staged(0, u64::MAX, 100)),
        (2, entry::STAGED, staged(u64::MAX - 10, 100, 100)),
        (2, entry::STAGED, staged((1 << 20) - 64, 100, 100)),
        (2, entry::STAGED, staged(0, 1000, 100)),
        (2, entry::STAGED, staged(0, 0, max)),
        (1, entry::MORE, piece(0, 100)),
        (1, entry::ATTACHED, piece(0, 100)),
        (2, entry::ATTACHED, staged(4096, 99, 100)),
    ];
    for (cells, tag, body) in entries {
        let (mut world, ours, lane) = connected();
        write_entry(&ours, &lane, 3, cells, tag, &body);
        world.drive_until("loss", |world| !world.lost(1, 0).is_empty());
        let lost = world.lost(1, 0);
        assert!(matches!(&lost[..], [LossReason::Protocol(_)]), "{cells} {tag}: {lost:?}");
        world.drive_until("the end here", |world| !world.lost(0, 1).is_empty());
    }
}

#[test]
fn a_reader_that_takes_back_what_it_read_is_given_up() {
    for consumed in [u64::MAX, 1 << 40] {
        let (mut world, ours, lane) = connected();
        ours.store(lane.ring.consumed, consumed);
        // More than the ring holds, so that the writer must look.
        for number in 0..200 {
            if world.lost(0, 1).is_empty() {
                world.send(0, 1, number, 4000);
            }
        }
        let losses = losses(&mut world);
        assert!(matches!(&losses[..], [LossReason::Protocol(_)]), "{losses:?}");
    }
    let (mut world, ours, lane) = connected();
    ours.store(lane.area.freed, 1 << 40);
    world.send(0, 1, 2, 100_000);
    assert!(matches!(&losses(&mut world)[..], [LossReason::Protocol(_)]));
}

#[test]
fn files_that_belong_to_nothing_are_not_kept() {
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    while !transports.iter().all(|it| it.table.active.len() == 1) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    let file = File::new(4096).unwrap();
    let Link::Open(open) = &transports[0].table.peers[1].link else { panic!("it is open") };
    for _ in 0..3 {
        // What wakes brings no file.
        socket::send(&open.channels[0].socket, &[0], Some(&file)).unwrap();
    }
    let mut world = World::new(transports, Box::new(std::thread::yield_now));
    world.drive_a_while();
    let lost = world.lost(1, 0);
    assert!(matches!(&lost[..], [LossReason::Protocol(why)] if why.contains("files")), "{lost:?}");
}

#[test]
fn stamps_of_other_rounds_are_nothing() {
    for stamp in [0, 1, 2, 4, 1027, u64::MAX] {
        let (mut world, ours, lane) = connected();
        write_entry(&ours, &lane, stamp, 2, entry::WHOLE, &header(4));
        world.drive_a_while();
        assert!(world.lost(1, 0).is_empty() && world.arrived(1, 0).len() == 1);
        world.send(0, 1, 4, 5);
        world.drive_until_all_arrived();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_entry_is_a_frame_or_an_end(
        cells in prop_oneof![0_u32..80, any::<u32>()],
        tag in 0_u32..6,
        body in proptest::collection::vec(any::<u8>(), 0..120),
        framed in any::<bool>(),
        lengths in any::<(u16, u32, u32)>(),
    ) {
        let (mut world, ours, lane) = connected();
        let mut body = body;
        if framed {
            let piece = piece(u64::from(lengths.1), u64::from(lengths.2 % 5000));
            body = match tag {
                entry::WHOLE => header(u32::from(lengths.0)).to_vec(),
                _ => [&piece[..], &header(u32::from(lengths.0))].concat(),
            };
        }
        write_entry(&ours, &lane, 3, cells, tag, &body);
        world.drive_a_while();
        let lost = world.lost(1, 0);
        let is_named = match &lost[..] {
            [] | [LossReason::Protocol(_) | LossReason::Goodbye] => true,
            // It lends what is not its memory.
            [LossReason::Died(why)] => tag == entry::ATTACHED && why.contains("could not be read"),
            _ => false,
        };
        prop_assert!(is_named, "{lost:?}");
    }
}
