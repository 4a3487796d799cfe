//! A network in memory: frames wait at the sender, on the way and half-read at the receiver for as
//! long as the seed wants. Knows nothing of executors.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use crate::kernels;
use crate::transport::{
    ArrivedPayload, Destination, EAGER_BYTES, Interest, LossReason, Payload, Rank, Sink, Transport,
};
use crate::wire::frame::{Header, Kind};

/// A small generator of pseudo-random numbers (xorshift).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`, which is at least 1.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// What is under way between all ranks.
#[derive(Default)]
pub(super) struct Network {
    links: HashMap<(Rank, Rank), VecDeque<Packet>>,
    /// Pairs (from, to) between which nothing moves.
    pub(super) cut: HashSet<(Rank, Rank)>,
    /// Frames that were delivered, by kind.
    pub(super) delivered: HashMap<Kind, usize>,
    /// The bytes after them, by kind.
    pub(super) delivered_bytes: HashMap<Kind, usize>,
    /// What [`Transport::unasked_bytes`] says.
    pub(super) unasked_bytes: usize,
    /// What [`Transport::eager_bytes`] says, if it is more than usual.
    pub(super) eager_bytes: usize,
    /// Most bytes of payload that were ever under way between two ranks.
    pub(super) most_bytes_on_the_way: usize,
    /// Most frames that ever waited to leave for one rank.
    pub(super) most_frames_queued: usize,
    /// What ranks are told of the process of a rank that they lost.
    pub(super) process_check: ProcessCheck,
    /// Whether ranks read all that has come in one turn.
    pub(super) in_bursts: bool,
}

/// What a rank knows of the process of one that it lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProcessCheck {
    /// Nothing.
    #[default]
    Unknown,
    /// It has ended, and all that it had sent has arrived.
    AllArrived,
    /// It has ended, and some of what it had sent may be lost.
    SomeLost,
    /// Nothing, but all that it had sent has arrived.
    Silence,
}

enum Packet {
    Frame(Header, Vec<u8>),
    End { orderly: bool },
}

pub(super) type Shared = Arc<Mutex<Network>>;

impl Network {
    /// Delivers a frame to `to` as if `from` had sent it.
    pub(super) fn forge(&mut self, from: Rank, to: Rank, header: Header, payload: Vec<u8>) {
        self.links.entry((from, to)).or_default().push_back(Packet::Frame(header, payload));
    }
}

pub(super) struct Loopback {
    rank: Rank,
    size: u32,
    network: Shared,
    random: Random,
    outbox: Vec<VecDeque<(Header, Payload)>>,
    /// The frame from each peer that was announced and is not complete.
    reading: Vec<Option<(Header, Vec<u8>, Destination)>>,
    ended: Vec<bool>,
    closed: bool,
}

impl Loopback {
    pub(super) fn new(rank: Rank, size: u32, network: &Shared, seed: u64) -> Loopback {
        Loopback {
            rank,
            size,
            network: network.clone(),
            random: Random::new(seed * 1000 + u64::from(rank)),
            outbox: (0..size).map(|_| VecDeque::new()).collect(),
            reading: (0..size).map(|_| None).collect(),
            ended: vec![false; size as usize],
            closed: false,
        }
    }

    fn push(&self, peer: Rank, packet: Packet) {
        let mut network = self.network.lock().unwrap();
        let link = network.links.entry((self.rank, peer)).or_default();
        link.push_back(packet);
        let bytes = link.iter().map(|packet| match packet {
            Packet::Frame(_, payload) => payload.len(),
            Packet::End { .. } => 0,
        });
        let bytes = bytes.sum();
        network.most_bytes_on_the_way = network.most_bytes_on_the_way.max(bytes);
    }

    /// Lets some queued frames leave. Their bytes are read only now: memory that was overwritten
    /// too early shows.
    fn leave(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        while self.random.below(3) > 0 {
            let Some((header, payload)) = self.outbox[peer as usize].pop_front() else { break };
            let bytes = match &payload {
                Payload::Empty => Vec::new(),
                Payload::Region(region) => region.read(<[u8]>::to_vec),
                Payload::Owned(bytes) => bytes.clone(),
            };
            assert_eq!(bytes.len(), header.payload_bytes as usize);
            drop(payload);
            self.push(peer, Packet::Frame(header, bytes));
            sink.sent(peer, &header);
            moved = true;
        }
        moved
    }

    fn come(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let place = peer as usize;
        if let Some((header, bytes, destination)) = self.reading[place].take() {
            self.complete(peer, header, &bytes, destination, sink);
            return true;
        }
        if self.ended[place] || self.network.lock().unwrap().cut.contains(&(peer, self.rank)) {
            return false;
        }
        let packet = {
            let mut network = self.network.lock().unwrap();
            network.links.get_mut(&(peer, self.rank)).and_then(VecDeque::pop_front)
        };
        match packet {
            None => return false,
            Some(Packet::End { orderly }) => {
                self.ended[place] = true;
                self.outbox[place].clear();
                let died = || LossReason::Died("the connection ended".to_owned());
                sink.lost(peer, if orderly { LossReason::Goodbye } else { died() });
                let check = self.network.lock().unwrap().process_check;
                match check {
                    _ if orderly => {}
                    ProcessCheck::Unknown => {}
                    ProcessCheck::Silence => sink.ended_in_silence(peer),
                    _ => sink.process_ended(peer, check == ProcessCheck::AllArrived),
                }
            }
            Some(Packet::Frame(header, bytes)) => {
                let destination = sink.announced(peer, &header);
                if self.random.below(3) == 0 {
                    self.reading[place] = Some((header, bytes, destination));
                } else {
                    self.complete(peer, header, &bytes, destination, sink);
                }
            }
        }
        true
    }

    fn complete(
        &mut self,
        peer: Rank,
        header: Header,
        bytes: &[u8],
        destination: Destination,
        sink: &mut dyn Sink,
    ) {
        {
            let mut network = self.network.lock().unwrap();
            *network.delivered.entry(header.kind).or_default() += 1;
            *network.delivered_bytes.entry(header.kind).or_default() += bytes.len();
        }
        match destination {
            Destination::Into(region, stores) => {
                region.write(|into| kernels::copy(into, bytes, stores));
                drop(region);
                sink.arrived(peer, &header, ArrivedPayload::InPlace);
            }
            Destination::Borrowed => sink.arrived(peer, &header, ArrivedPayload::Borrowed(bytes)),
            Destination::Discard => sink.arrived(peer, &header, ArrivedPayload::Discarded),
        }
    }
}

impl Transport for Loopback {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        assert_ne!(peer, self.rank);
        if !self.ended[peer as usize] && !self.closed {
            let outbox = &mut self.outbox[peer as usize];
            outbox.push_back((header, payload));
            let mut network = self.network.lock().unwrap();
            network.most_frames_queued = network.most_frames_queued.max(outbox.len());
        }
    }

    fn connect(&mut self, _peer: Rank) {}

    fn eager_bytes(&self, _peer: Rank) -> usize {
        self.network.lock().unwrap().eager_bytes.max(EAGER_BYTES)
    }

    fn unasked_bytes(&self, _peer: Rank, _message_bytes: usize) -> usize {
        self.network.lock().unwrap().unasked_bytes
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        let first = self.random.below(self.size as usize) as u32;
        for offset in 0..self.size {
            let peer = (first + offset) % self.size;
            if peer != self.rank && !self.closed {
                moved |= self.leave(peer, sink);
                let in_bursts = self.network.lock().unwrap().in_bursts;
                moved |= self.random.below(2) == 0 && self.come(peer, sink);
                while in_bursts && self.come(peer, sink) {
                    moved = true;
                }
            }
        }
        moved
    }

    fn interests(&self, _interests: &mut Vec<Interest>) {}

    fn abandon(&mut self) {
        self.outbox.iter_mut().for_each(VecDeque::clear);
        for reading in self.reading.iter_mut().flatten() {
            reading.2 = Destination::Discard;
        }
    }

    fn close(&mut self, orderly: bool) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        for peer in (0..self.size).filter(|&peer| peer != self.rank) {
            // Frames of its own that a closing rank has queued may still leave, as they would
            // from the buffers of the system.
            while let Some((header, payload)) = self.outbox[peer as usize].pop_front() {
                if let Payload::Owned(bytes) = payload {
                    self.push(peer, Packet::Frame(header, bytes));
                }
            }
            self.push(peer, Packet::End { orderly });
        }
        self.abandon();
        self.reading.iter_mut().for_each(|reading| *reading = None);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.close(false);
    }
}
