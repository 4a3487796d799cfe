//! A simulated network: any number of ranks in one thread, under a virtual clock and a seed. Knows
//! nothing of sockets, threads or real time.
//!
//! Frames between two ranks keep their order; frames of different pairs overtake one another.
//! Payloads are read when they depart, not when they are queued, and memory that a payload is
//! announced for is spoiled until it is complete: a schedule that writes or reads too early ends
//! with wrong data.

mod link;
mod network;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use network::{Arrival, Network, RankExit};

use super::notice;
use super::{ArrivedPayload, Destination, Interest, Payload, Rank, Sink, Transport};
use crate::tensor::Region;
use crate::wire::frame::Header;

/// Fills the memory that a payload is announced for until the payload is complete.
const SPOILED: u8 = 0xa5;

/// The properties of the network.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything that the other options leave open.
    pub seed: u64,
    /// How long a byte travels; drawn anew for each frame.
    pub latency_ns: RangeInclusive<u64>,
    /// How long a link needs for 1024 bytes.
    pub kibibyte_ns: u64,
    /// The percentage of links on which everything takes ten times as long.
    pub slow_links_percent: u64,
    /// Which rank dies, and when.
    pub death: Option<(Rank, u64)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 0,
            latency_ns: 1_000..=100_000,
            kibibyte_ns: 1_000,
            slow_links_percent: 20,
            death: None,
        }
    }
}

/// Drives a network: its clock, its events and the deaths of its ranks.
pub struct Simulation {
    network: Arc<Mutex<Network>>,
}

/// One rank's end of the network.
pub struct SimTransport {
    rank: Rank,
    size: u32,
    network: Arc<Mutex<Network>>,
    /// By sender: where the frame goes whose header has come and whose payload has not.
    announced: BTreeMap<Rank, Destination>,
}

/// What a rank has sent and received until now, and how many ranks it is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames of any kind that it queued.
    pub frames_sent: u64,
    /// Messages of collectives that it sent.
    pub messages_sent: u64,
    /// Messages of collectives that it received.
    pub messages_received: u64,
    /// Bytes of payload that it sent.
    pub bytes_sent: u64,
    /// Bytes of payload that it received.
    pub bytes_received: u64,
    /// Ranks that it is connected to.
    pub connections: usize,
}

impl Simulation {
    /// A network of `size` ranks, and its ends by rank.
    pub fn new(size: u32, options: &Options) -> (Simulation, Vec<SimTransport>) {
        let network = Arc::new(Mutex::new(Network::new(size, options)));
        let transport = |rank| SimTransport {
            rank,
            size,
            network: network.clone(),
            announced: BTreeMap::new(),
        };
        let transports = (0..size).map(transport).collect();
        (Simulation { network }, transports)
    }

    /// The time, ns since the beginning.
    pub fn now_ns(&self) -> u64 {
        lock(&self.network).now_ns
    }

    /// Advances the time to the next event; false if there is none. Call it when no rank moves.
    pub fn step(&self) -> bool {
        lock(&self.network).step()
    }

    /// Makes [`Simulation::step`] stop at `at_ns`, as for a deadline of the caller.
    pub fn wake_at(&self, at_ns: u64) {
        lock(&self.network).wake_at(at_ns);
    }

    /// Whether `rank` has not died. A dead rank must not be driven any more.
    pub fn is_alive(&self, rank: Rank) -> bool {
        lock(&self.network).is_alive(rank)
    }

    /// Appends the ranks that had an event since the last call, ascending. It suffices to drive
    /// these until none of them moves, and each rank once after it issues an operation.
    pub fn take_awake(&self, awake: &mut Vec<Rank>) {
        lock(&self.network).take_awake(awake);
    }

    /// What `rank` has sent and received.
    pub fn traffic(&self, rank: Rank) -> Traffic {
        lock(&self.network).traffic(rank)
    }

    /// Kills `rank` now: what it queued never leaves, and its frames in transit may be lost.
    pub fn kill(&self, rank: Rank) {
        lock(&self.network).end(rank, RankExit::Death);
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, peer: Rank, mut header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank, "a frame for rank {peer}");
        self.connect(peer);
        header.payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        lock(&self.network).send(self.rank, peer, header, payload);
    }

    fn connect(&mut self, peer: Rank) {
        lock(&self.network).connect(self.rank, peer);
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        let due = lock(&self.network).take_due(self.rank);
        for peer in due {
            while let Some(news) = self.next_from(peer) {
                moved = true;
                match news {
                    Arrival::Head(header) => self.announce(peer, &header, sink),
                    Arrival::Tail(header, bytes) => self.complete(peer, &header, &bytes, sink),
                    Arrival::End(why) => {
                        self.announced.remove(&peer);
                        sink.lost(peer, why);
                    }
                }
            }
        }
        let mut notices = lock(&self.network).take_notices(self.rank);
        moved |= notice::tell(&mut notices, sink);
        moved
    }

    fn interests(&self, _: &mut Vec<Interest>) {}

    fn abandon(&mut self) {
        for into in self.announced.values_mut() {
            *into = Destination::Discard;
        }
        lock(&self.network).abandon(self.rank);
    }

    fn close(&mut self, orderly: bool) {
        let ending = if orderly { RankExit::Goodbye } else { RankExit::Close };
        self.announced.clear();
        lock(&self.network).end(self.rank, ending);
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}

impl SimTransport {
    /// The next thing that has come from `peer` by now.
    fn next_from(&self, peer: Rank) -> Option<Arrival> {
        let announced = self.announced.contains_key(&peer);
        lock(&self.network).next(peer, self.rank, announced)
    }

    fn announce(&mut self, peer: Rank, header: &Header, sink: &mut dyn Sink) {
        let destination = sink.announced(peer, header);
        if let Destination::Into(region, _) = &destination {
            assert_eq!(region.len(), header.payload_bytes as usize, "memory for the payload");
            region.write(|memory| memory.fill(SPOILED));
        }
        self.announced.insert(peer, destination);
    }

    fn complete(&mut self, peer: Rank, header: &Header, bytes: &[u8], sink: &mut dyn Sink) {
        match self.announced.remove(&peer) {
            Some(Destination::Into(region, _)) => {
                fill(region, bytes);
                sink.arrived(peer, header, ArrivedPayload::InPlace);
            }
            Some(Destination::Borrowed) => {
                sink.arrived(peer, header, ArrivedPayload::Borrowed(bytes))
            }
            Some(Destination::Discard) | None => {
                sink.arrived(peer, header, ArrivedPayload::Discarded)
            }
        }
    }
}

fn fill(region: Region, bytes: &[u8]) {
    region.write(|memory| memory.copy_from_slice(bytes));
}

fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}
