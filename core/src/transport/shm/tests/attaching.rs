//! Payloads that the system reads out of the peer's memory: only where it allows that, only the
//! peer's, and only as long as the peer lives.

use std::io::Read;
use std::process::{Command, Stdio};

use super::super::ring::SharedMemory;
use super::*;
use crate::tensor::Region;
use crate::transport::suite::world::message;

const BYTES: usize = 100_000;

fn pair() -> Vec<ShmTransport> {
    group_that_copies(2, Timeouts::default(), CopyChoice::Attach)
}

fn in_world(transports: Vec<ShmTransport>) -> World {
    World::new(transports, Box::new(std::thread::yield_now))
}

/// Where rank 1 says that it can read rank 0's memory.
fn says_attached(transports: &[ShmTransport]) -> (Mapping, usize) {
    (
        transports[0].file.as_ref().unwrap().map().unwrap(),
        transports[0].table.peers[1].route.lane.attached,
    )
}

#[test]
fn what_is_read_from_the_peer_takes_no_memory_of_the_lane() {
    let transports = pair();
    let (segment, attached) = says_attached(&transports);
    let area = transports[0].table.peers[1].route.lane.area;
    let mut world = in_world(transports);
    // The sender learns only now that the peer can read its memory.
    world.send(0, 1, 0, 10);
    world.drive_until_all_arrived();
    assert_eq!(segment.load(attached), 1);
    // Memory of operations, which is odd messages': in memory, in a buffer, and discarded.
    for number in [1, 3, 5] {
        world.send(0, 1, number, BYTES);
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
    assert!(segment.show(area.start, BYTES).iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_cannot_be_read_is_copied_through_the_lane() {
    for address in [0, 4096, u64::MAX - 7] {
        let transports = pair();
        let (segment, attached) = says_attached(&transports);
        // As in a container, where the system finds another process or none.
        segment.store(layout::OWN_ADDRESS, address);
        let mut world = in_world(transports);
        for number in 0..9 {
            world.send(0, 1, number, BYTES);
            world.send(1, 0, number, BYTES);
        }
        world.drive_until_all_arrived();
        world.check_order_and_contents();
        assert_eq!(segment.load(attached), 0, "{address:#x}");
    }
}

#[test]
fn another_process_is_not_taken_for_the_peer() {
    let transports = pair();
    let (segment, attached) = says_attached(&transports);
    // The address is right, and what lies there is not what the segment says.
    let other = File::new(4096).unwrap().map().unwrap();
    attach::sign(&other).unwrap();
    segment.store(layout::OWN_ADDRESS, other.start() as u64);
    let mut world = in_world(transports);
    world.send(0, 1, 1, BYTES);
    world.drive_until_all_arrived();
    assert_eq!(segment.load(attached), 0);
}

#[test]
fn a_peer_that_becomes_another_program_ends_the_connection() {
    let transports = pair();
    let (segment, _) = says_attached(&transports);
    let mut world = in_world(transports);
    world.send(0, 1, 1, BYTES);
    world.drive_until_all_arrived();
    // What lies at the address has changed since the peer was examined.
    segment.store(layout::NONCE, segment.load(layout::NONCE) ^ 1);
    world.send(0, 1, 7, BYTES);
    let why = loss_of_the_sender(&mut world);
    assert!(matches!(&why, LossReason::Died(why) if why.contains("memory")), "{why:?}");
    assert_eq!(world.arrived(1, 0).len(), 1, "nothing of it is believed");
}

#[test]
fn memory_that_is_gone_ends_the_connection() {
    let mut world = in_world(pair());
    world.send(0, 1, 1, BYTES);
    world.drive_until_all_arrived();
    let mapping = File::new(1 << 20).unwrap().map().unwrap();
    // SAFETY: not followed here: the transport only tells the address, and the system refuses it.
    #[allow(unsafe_code)]
    let region = unsafe { Region::from_raw_parts(mapping.start(), BYTES, None) };
    world.send_payload(0, 1, message(1, BYTES), Payload::Region(region));
    // The message is under way.
    drop(mapping);
    let why = loss_of_the_sender(&mut world);
    assert!(matches!(&why, LossReason::Died(why) if why.contains("address")), "{why:?}");
}

#[test]
fn a_process_that_has_ended_has_no_memory() {
    let segment = File::new(4096).unwrap().map().unwrap();
    attach::sign(&segment).unwrap();
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat is part of every system");
    let peer = attach::PeerMemory::of_process(child.id() as i32, &segment);
    assert!(peer.is_none(), "it has no such number there");
    drop(child.stdin.take());
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    child.wait().unwrap();
    assert!(attach::PeerMemory::of_process(child.id() as i32, &segment).is_none());
}

/// Why rank 1 has lost rank 0.
fn loss_of_the_sender(world: &mut World) -> LossReason {
    world.drive_until("loss", |world| !world.lost(1, 0).is_empty());
    world.lost(1, 0).remove(0)
}
