//! A network that is only imagined: any number of ranks in one thread, under a virtual clock and a
//! seed. Knows nothing of sockets, threads or real time.
//!
//! Frames between two ranks keep their order; frames of different pairs overtake one another.
//! Payloads are read when they depart, not when they are queued, and memory that a payload is
//! announced for is spoiled until it is complete: whoever writes too early or reads too early ends
//! with wrong data.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Arrived, Destination, Interest, Lost, Payload, Rank, Sink, Transport};
use crate::tensor::Region;
use crate::wire::frame::Header;

/// Bytes of payload that one link carries undelivered, unless a single frame has more.
const LINK_BYTES: usize = 1 << 20;
/// Stands in memory that a payload is announced for.
const SPOILED: u8 = 0xa5;

/// What the network is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything that is left open here.
    pub seed: u64,
    /// How long a byte travels; drawn anew for each frame.
    pub latency_ns: RangeInclusive<u64>,
    /// How long a link needs for 1024 bytes.
    pub kibibyte_ns: u64,
    /// In so many of 100 links everything takes ten times as long.
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

/// The clock and the fate of a network.
pub struct Simulation {
    network: Arc<Mutex<Network>>,
}

/// One rank's end of the network.
pub struct SimTransport {
    rank: Rank,
    network: Arc<Mutex<Network>>,
    /// By sender: the frame whose header has come and whose payload has not.
    announced: Vec<Option<Destination>>,
}

struct Network {
    now_ns: u64,
    /// When something may happen.
    events: BinaryHeap<Reverse<u64>>,
    size: usize,
    /// From sender `i` to receiver `j` at `i * size + j`.
    links: Vec<Link>,
    /// By rank: whether it can act.
    alive: Vec<bool>,
    notices: Vec<Vec<Notice>>,
    death: Option<(Rank, u64)>,
}

enum Notice {
    Sent(Rank, Header),
    Lost(Rank, Lost),
}

struct Link {
    random: Random,
    latency_ns: RangeInclusive<u64>,
    kibibyte_ns: u64,
    /// Whether the receiver hears of the sender's end.
    linked: bool,
    /// The receiver has heard, or will never hear anything more.
    ended: bool,
    queued: VecDeque<(Header, Payload)>,
    /// When the first of `queued` has left.
    departs_at_ns: Option<u64>,
    travelling: VecDeque<Travelling>,
    travelling_bytes: usize,
    last_arrival_ns: u64,
}

struct Travelling {
    head_at_ns: u64,
    tail_at_ns: u64,
    content: Content,
}

enum Content {
    Frame(Header, Vec<u8>),
    End(Lost),
}

impl Simulation {
    /// A network of `size` ranks, and its ends by rank.
    pub fn new(size: u32, options: &Options) -> (Simulation, Vec<SimTransport>) {
        let ranks = size as usize;
        let mut events = BinaryHeap::new();
        events.extend(options.death.map(|(_, at_ns)| Reverse(at_ns)));
        let network = Network {
            now_ns: 0,
            events,
            size: ranks,
            links: (0..ranks * ranks).map(|index| Link::new(index, options)).collect(),
            alive: vec![true; ranks],
            notices: (0..ranks).map(|_| Vec::new()).collect(),
            death: options.death,
        };
        let network = Arc::new(Mutex::new(network));
        let transport = |rank| SimTransport {
            rank,
            network: network.clone(),
            announced: (0..ranks).map(|_| None).collect(),
        };
        let transports = (0..size).map(transport).collect();
        (Simulation { network }, transports)
    }

    /// The time, ns since the beginning.
    pub fn now_ns(&self) -> u64 {
        lock(&self.network).now_ns
    }

    /// Lets the time go on to the next event; false if there is none. Call it when no rank moves.
    pub fn step(&self) -> bool {
        lock(&self.network).step()
    }

    /// Makes [`Simulation::step`] stop at `at_ns`, where a deadline of the caller passes.
    pub fn wake_at(&self, at_ns: u64) {
        lock(&self.network).events.push(Reverse(at_ns));
    }

    /// Whether `rank` has not died. A dead rank is not to be driven any more.
    pub fn is_alive(&self, rank: Rank) -> bool {
        lock(&self.network).alive[rank as usize]
    }

    /// Lets `rank` die now: what it queued never leaves, and what travels may be cut off.
    pub fn kill(&self, rank: Rank) {
        lock(&self.network).end(rank as usize, Ending::Death);
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        // `Simulation::new` made one place for each of its `u32` ranks.
        self.announced.len() as u32
    }

    fn send(&mut self, peer: Rank, mut header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank, "a frame for rank {peer}");
        self.connect(peer);
        header.payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut network = lock(&self.network);
        let (from, to) = (self.rank as usize, peer as usize);
        if network.alive[from] && network.alive[to] && !network.link(to, from).ended {
            network.link(from, to).queued.push_back((header, payload));
            network.load(from, to);
        }
    }

    fn connect(&mut self, peer: Rank) {
        let mut network = lock(&self.network);
        let (from, to) = (self.rank as usize, peer as usize);
        if from == to || !network.alive[from] || network.link(to, from).linked {
            return;
        }
        network.link(to, from).linked = true;
        network.link(from, to).linked = true;
        if !network.alive[to] {
            network.link(to, from).ended = true;
            let why = Lost::Unreachable("it has left already".to_owned());
            network.notices[from].push(Notice::Lost(peer, why));
        }
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        for peer in 0..self.size() {
            while let Some(news) = self.next_from(peer) {
                moved = true;
                match news {
                    News::Head(header) => self.announce(peer, &header, sink),
                    News::Tail(header, bytes) => self.complete(peer, &header, &bytes, sink),
                    News::End(why) => {
                        self.announced[peer as usize] = None;
                        sink.lost(peer, why);
                    }
                }
            }
        }
        let notices = {
            let mut network = lock(&self.network);
            let rank = self.rank as usize;
            if network.alive[rank] { std::mem::take(&mut network.notices[rank]) } else { vec![] }
        };
        for notice in notices {
            moved = true;
            match notice {
                Notice::Sent(peer, header) => sink.sent(peer, &header),
                Notice::Lost(peer, why) => sink.lost(peer, why),
            }
        }
        moved
    }

    fn interests(&self, _: &mut Vec<Interest>) {}

    fn abandon(&mut self) {
        for into in self.announced.iter_mut().flatten() {
            *into = Destination::Discard;
        }
        let mut network = lock(&self.network);
        let from = self.rank as usize;
        for to in 0..network.size {
            let link = network.link(from, to);
            link.queued.clear();
            link.departs_at_ns = None;
        }
    }

    fn close(&mut self, orderly: bool) {
        let ending = if orderly { Ending::Goodbye } else { Ending::Close };
        self.announced.fill(None);
        lock(&self.network).end(self.rank as usize, ending);
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}

/// What a receiver learns.
enum News {
    Head(Header),
    Tail(Header, Vec<u8>),
    End(Lost),
}

impl SimTransport {
    /// The next thing that has come from `peer` by now.
    fn next_from(&mut self, peer: Rank) -> Option<News> {
        let mut network = lock(&self.network);
        let (from, to) = (peer as usize, self.rank as usize);
        let now_ns = network.now_ns;
        if !network.alive[to] || network.link(from, to).ended {
            return None;
        }
        let first = network.link(from, to).travelling.front()?;
        if let Content::Frame(header, _) = &first.content
            && now_ns >= first.head_at_ns
            && self.announced[from].is_none()
        {
            return Some(News::Head(*header));
        }
        if now_ns < first.tail_at_ns {
            return None;
        }
        match network.link(from, to).travelling.pop_front()?.content {
            Content::Frame(header, bytes) => {
                network.link(from, to).travelling_bytes -= bytes.len();
                network.load(from, to);
                Some(News::Tail(header, bytes))
            }
            Content::End(why) => {
                network.link(from, to).ended = true;
                network.link(to, from).clear();
                Some(News::End(why))
            }
        }
    }

    fn announce(&mut self, peer: Rank, header: &Header, sink: &mut dyn Sink) {
        let destination = sink.announced(peer, header);
        if let Destination::Into(region, _) = &destination {
            assert_eq!(region.len(), header.payload_bytes as usize, "memory for the payload");
            region.write(|memory| memory.fill(SPOILED));
        }
        self.announced[peer as usize] = Some(destination);
    }

    fn complete(&mut self, peer: Rank, header: &Header, bytes: &[u8], sink: &mut dyn Sink) {
        match self.announced[peer as usize].take() {
            Some(Destination::Into(region, _)) => {
                fill(region, bytes);
                sink.arrived(peer, header, Arrived::InPlace);
            }
            Some(Destination::Borrowed) => sink.arrived(peer, header, Arrived::Borrowed(bytes)),
            Some(Destination::Discard) | None => sink.arrived(peer, header, Arrived::Discarded),
        }
    }
}

/// How a rank ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Goodbye,
    Close,
    Death,
}

impl Network {
    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.size + to]
    }

    fn step(&mut self) -> bool {
        let Some(Reverse(at_ns)) = self.events.pop() else {
            return false;
        };
        self.now_ns = self.now_ns.max(at_ns);
        while self.events.peek().is_some_and(|Reverse(at_ns)| *at_ns <= self.now_ns) {
            self.events.pop();
        }
        if let Some((rank, _)) = self.death.take_if(|(_, at_ns)| *at_ns <= self.now_ns) {
            self.end(rank as usize, Ending::Death);
        }
        for from in 0..self.size {
            for to in 0..self.size {
                self.depart(from, to);
            }
        }
        true
    }

    /// Begins to send the first queued frame, if the link is free and has room.
    fn load(&mut self, from: usize, to: usize) {
        let now_ns = self.now_ns;
        let link = self.link(from, to);
        let Some((_, payload)) = link.queued.front() else {
            return;
        };
        let full = link.travelling_bytes > 0 && link.travelling_bytes + payload.len() > LINK_BYTES;
        if link.departs_at_ns.is_some() || full {
            return;
        }
        let bytes = (Header::BYTES + payload.len()) as u64;
        let departs_at_ns = now_ns + (bytes * link.kibibyte_ns).div_ceil(1024).max(1);
        link.departs_at_ns = Some(departs_at_ns);
        self.events.push(Reverse(departs_at_ns));
    }

    /// Lets the first queued frame leave, if its time has come.
    fn depart(&mut self, from: usize, to: usize) {
        let now_ns = self.now_ns;
        let link = self.link(from, to);
        if link.departs_at_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        link.departs_at_ns = None;
        let Some((header, payload)) = link.queued.pop_front() else {
            return;
        };
        let bytes = payload.read(<[u8]>::to_vec);
        drop(payload);
        link.travelling_bytes += bytes.len();
        let (head_at_ns, tail_at_ns) = link.travel(now_ns, Content::Frame(header, bytes));
        self.events.extend([Reverse(head_at_ns), Reverse(tail_at_ns)]);
        // A rank's number came as a `u32`.
        self.notices[from].push(Notice::Sent(to as Rank, header));
        self.load(from, to);
    }

    /// Ends `rank`, and sends word of it to those who have a connection to it.
    fn end(&mut self, rank: usize, ending: Ending) {
        if !std::mem::replace(&mut self.alive[rank], false) {
            return;
        }
        let now_ns = self.now_ns;
        self.notices[rank].clear();
        for peer in (0..self.size).filter(|peer| *peer != rank) {
            self.link(peer, rank).clear();
            let link = self.link(rank, peer);
            link.queued.clear();
            link.departs_at_ns = None;
            if !link.linked || link.ended {
                continue;
            }
            if ending == Ending::Death {
                link.cut(now_ns);
            }
            let why = match ending {
                Ending::Goodbye => Lost::Goodbye,
                Ending::Close => Lost::Died("its connection ended without a goodbye".to_owned()),
                Ending::Death => Lost::Died("its connection was reset".to_owned()),
            };
            let (head_at_ns, tail_at_ns) = link.travel(now_ns, Content::End(why));
            self.events.extend([Reverse(head_at_ns), Reverse(tail_at_ns)]);
        }
    }
}

impl Link {
    fn new(index: usize, options: &Options) -> Link {
        let mut random = Random(options.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9));
        let slow = random.below(100) < options.slow_links_percent;
        let factor = if slow { 10 } else { 1 };
        let (least, most) = (*options.latency_ns.start(), *options.latency_ns.end());
        Link {
            random,
            latency_ns: least * factor..=most * factor,
            kibibyte_ns: options.kibibyte_ns * factor,
            linked: false,
            ended: false,
            queued: VecDeque::new(),
            departs_at_ns: None,
            travelling: VecDeque::new(),
            travelling_bytes: 0,
            last_arrival_ns: 0,
        }
    }

    /// Puts `content` on its way: when its first and its last byte arrive.
    fn travel(&mut self, now_ns: u64, content: Content) -> (u64, u64) {
        let (least, most) = (*self.latency_ns.start(), *self.latency_ns.end());
        let latency_ns = least + self.random.below(most.saturating_sub(least) + 1);
        let head_at_ns = (now_ns + latency_ns).max(self.last_arrival_ns + 1);
        let tail_at_ns = match &content {
            Content::Frame(_, bytes) => {
                head_at_ns + (bytes.len() as u64 * self.kibibyte_ns).div_ceil(1024)
            }
            Content::End(_) => head_at_ns,
        };
        self.last_arrival_ns = tail_at_ns;
        self.travelling.push_back(Travelling { head_at_ns, tail_at_ns, content });
        (head_at_ns, tail_at_ns)
    }

    /// Loses the last of what travels: as much of it as the seed says.
    fn cut(&mut self, now_ns: u64) {
        let kept = self.random.below(self.travelling.len() as u64 + 1) as usize;
        self.travelling.truncate(kept);
        // The end comes after what is kept, and may come before what is lost would have come.
        let last = self.travelling.back().map(|last| last.tail_at_ns);
        self.last_arrival_ns = last.unwrap_or(now_ns);
    }

    fn clear(&mut self) {
        self.queued.clear();
        self.departs_at_ns = None;
        self.travelling.clear();
        self.travelling_bytes = 0;
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn fill(region: Region, bytes: &[u8]) {
    region.write(|memory| memory.copy_from_slice(bytes));
}

fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::transport::suite::world::{Event, World, memory, message, sim};

    /// All events of a group in which everybody sends to everybody, and rank 2 may die.
    fn run(seed: u64, death: Option<(Rank, u64)>) -> Vec<String> {
        let options = Options { seed, death, ..Options::default() };
        let (simulation, transports) = Simulation::new(4, &options);
        let simulation = Arc::new(simulation);
        let clock = simulation.clone();
        let idle = move || {
            clock.step();
        };
        let mut world = World::new(transports, Box::new(idle));
        for number in 0..10 {
            for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
                if from != to {
                    world.send(from, to, number, (number * 1000) as usize);
                }
            }
        }
        world.drive_a_while();
        if death.is_none() {
            world.check_order_and_contents();
        }
        world.events.iter().map(|event| format!("{event:?}")).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        for seed in 0..5 {
            assert_eq!(run(seed, None), run(seed, None), "seed {seed}");
            let death = Some((2, 50_000));
            assert_eq!(run(seed, death), run(seed, death), "seed {seed}");
        }
        assert_ne!(run(0, None), run(1, None));
    }

    #[test]
    fn everybody_hears_of_a_death_once_and_after_what_came_before() {
        for seed in 0..20 {
            let mut world = dying(seed);
            world.drive_a_while();
            for rank in [0, 1, 3] {
                let lost = world.lost(rank, 2);
                assert!(matches!(&lost[..], [Lost::Died(_)]), "seed {seed}: {lost:?}");
                let end =
                    |event: &Event| matches!(event, Event::Lost { rank: at, .. } if *at == rank);
                let place = world.events.iter().position(end).unwrap();
                let late = world.events[place..].iter().filter(|event| {
                    matches!(event, Event::Arrived { rank: at, peer: 2, .. } if *at == rank)
                });
                assert_eq!(late.count(), 0, "seed {seed}");
                let numbers = world.arrived(rank, 2).into_iter().map(|it| it.0.message);
                assert!(numbers.eq(0..world.arrived(rank, 2).len() as u32), "seed {seed}");
            }
        }
    }

    /// A group in which rank 2 sends to all others and dies after a while.
    fn dying(seed: u64) -> World {
        let options =
            Options { seed, death: Some((2, 60_000 + seed * 3_000)), ..Options::default() };
        let (simulation, transports) = Simulation::new(4, &options);
        let idle = move || {
            simulation.step();
        };
        let mut world = World::new(transports, Box::new(idle));
        for number in 0..50 {
            for to in [0, 1, 3] {
                world.send(2, to, number, 5_000);
            }
        }
        world
    }

    #[test]
    fn payloads_are_read_when_they_depart() {
        let mut world = sim(2, 3);
        let (region, _) = memory(10);
        world.send_payload(0, 1, message(0, 10), Payload::Region(region.clone()));
        region.write(|memory| memory.fill(8));
        world.drive_until_all_arrived();
        assert_eq!(world.arrived(1, 0)[0].1.as_deref(), Some(&[8; 10][..]));
    }

    #[test]
    fn frames_of_different_pairs_overtake_one_another() {
        let overtakes = (0..20).filter(|seed| {
            let mut world = sim(3, *seed);
            world.send(0, 2, 0, 1);
            world.send(1, 2, 0, 1);
            world.drive_until_all_arrived();
            let first = world.events.iter().find_map(|event| match event {
                Event::Arrived { peer, .. } => Some(*peer),
                _ => None,
            });
            first == Some(1)
        });
        let overtakes = overtakes.count();
        assert!((1..20).contains(&overtakes), "{overtakes} of 20");
    }
}
