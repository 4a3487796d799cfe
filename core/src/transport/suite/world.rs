//! A group of transports in one thread, with a record of everything that they told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::kernels::Stores;
use crate::tensor::Region;
use crate::transport::{
    ArrivedPayload, Destination, LossReason, Payload, Rank, Sink, Transport, inproc as in_process,
    sim as simulator,
};
use crate::wire::frame::{Header, Kind};

/// When a case is given up; far beyond what any takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Turns without any movement after which only an event from outside could move something.
const QUIET_TURNS: u32 = 200;

/// The transports of a group, by rank; `None` is dead.
pub(in crate::transport) struct World {
    pub(in crate::transport) transports: Vec<Option<Box<dyn Transport>>>,
    /// Whether every third rank or so is connected to before anybody asks for it.
    pub(in crate::transport) connects_early: bool,
    /// Whether what is sent lies where ranks of this host can read it.
    pub(in crate::transport) lends: bool,
    /// Lets time pass when nobody moves.
    idle: Box<dyn FnMut()>,
    /// What was told, in order.
    pub(in crate::transport) events: Vec<Event>,
    recorders: Vec<Recorder>,
    /// Frames that were given to a transport: from, to, header.
    given: Vec<(Rank, Rank, Header)>,
}

/// Something that a transport told its sink.
#[derive(Debug)]
pub(in crate::transport) enum Event {
    /// A frame came; its bytes unless it was discarded.
    Arrived { rank: Rank, peer: Rank, header: Header, bytes: Option<Vec<u8>> },
    /// A frame left.
    Sent { rank: Rank, peer: Rank, header: Header },
    /// A peer is gone.
    Lost { rank: Rank, peer: Rank, why: LossReason },
}

/// Takes payloads of messages 0, 3, 6… in a borrowed buffer, 1, 4, 7… in memory, and discards the
/// others.
#[derive(Default)]
struct Recorder {
    rank: Rank,
    /// By peer: the frame that was announced and has not arrived.
    announced: Vec<Option<(Header, Destination)>>,
    events: Vec<Event>,
}

pub(in crate::transport) fn inproc(size: u32) -> World {
    let transports = in_process::connect(size);
    World::new(transports, Box::new(|| {}))
}

pub(in crate::transport) fn sim(size: u32, seed: u64) -> World {
    let options = simulator::Options { seed, ..simulator::Options::default() };
    let (simulation, transports) = simulator::Simulation::new(size, &options);
    World::new(
        transports,
        Box::new(move || {
            simulation.step();
        }),
    )
}

#[cfg(feature = "tcp")]
pub(in crate::transport) fn tcp(size: u32) -> World {
    let options = crate::transport::Timeouts {
        refused_timeout: Duration::from_millis(100),
        ..Default::default()
    };
    // The kernel moves bytes between sockets of this thread while it yields.
    World::new(crate::transport::tcp::tests::group(size, options), Box::new(std::thread::yield_now))
}

#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(in crate::transport) fn shm(size: u32) -> World {
    let transports = crate::transport::shm::tests::group(size, Default::default());
    World::new(transports, Box::new(std::thread::yield_now))
}

/// Ranks that read large payloads where they lie.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(in crate::transport) fn lending(size: u32) -> World {
    World { lends: true, ..shm(size) }
}

/// Ranks that read large payloads by cross-memory attach.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(in crate::transport) fn attaching(size: u32) -> World {
    use crate::env::CopyChoice;
    use crate::transport::shm::tests::group_that_copies;
    let transports = group_that_copies(size, Default::default(), CopyChoice::Attach);
    World::new(transports, Box::new(std::thread::yield_now))
}

/// Ranks with TCP sockets and ranks with WebSockets alone, in turn; rank `first` is of the latter.
#[cfg(feature = "websocket")]
pub(in crate::transport) fn mixed(size: u32, first: u32) -> World {
    of_both(crate::transport::websocket::tests::groups::mixed(size, first))
}

/// As [`mixed`], with ranks that do not wait long for each other.
#[cfg(feature = "websocket")]
pub(in crate::transport) fn impatient(size: u32, first: u32) -> World {
    of_both(crate::transport::websocket::tests::groups::impatient(size, first))
}

/// As [`mixed`], with stores that are reached by encrypted connections.
#[cfg(feature = "websocket")]
pub(in crate::transport) fn encrypted(size: u32) -> World {
    let transports = crate::transport::websocket::tests::groups::encrypted(size);
    World::new(transports, Box::new(std::thread::yield_now))
}

#[cfg(feature = "websocket")]
fn of_both(transports: Vec<Box<dyn Transport>>) -> World {
    let mut world = World::new(transports, Box::new(std::thread::yield_now));
    world.connects_early = true;
    world
}

#[cfg(feature = "websocket")]
pub(in crate::transport) fn relayed(size: u32) -> World {
    crate::transport::websocket::tests::relayed::world(size)
}

pub(in crate::transport) fn pipes(size: u32) -> World {
    crate::transport::websocket::tests::memory::world(size)
}

/// A transport, in a box or not.
pub(in crate::transport) trait IntoBox {
    fn into_box(self) -> Box<dyn Transport>;
}

impl<T: Transport + 'static> IntoBox for T {
    fn into_box(self) -> Box<dyn Transport> {
        Box::new(self)
    }
}

impl IntoBox for Box<dyn Transport> {
    fn into_box(self) -> Box<dyn Transport> {
        self
    }
}

/// The bytes of a message: different for each pair, number and place.
pub(in crate::transport) fn payload(from: Rank, to: Rank, number: u32, bytes: usize) -> Vec<u8> {
    let seed = from.wrapping_mul(31).wrapping_add(to.wrapping_mul(17)).wrapping_add(number * 7);
    (0..bytes).map(|index| (seed as usize + index * 13 + (index >> 8) * 5) as u8).collect()
}

/// A header of a message of one frame.
pub(in crate::transport) fn message(number: u32, bytes: usize) -> Header {
    let mut header = Header::new(Kind::Data, 5);
    header.message = number;
    header.sequence = u64::from(number) << 33;
    header.message_bytes = bytes as u64;
    header.payload_bytes = bytes.min(u32::MAX as usize) as u32;
    header
}

/// Memory, and whether all regions of it are gone.
pub(in crate::transport) fn memory(bytes: usize) -> (Region, impl Fn() -> bool) {
    struct Owner(Vec<u8>, Arc<AtomicBool>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let released = Arc::new(AtomicBool::new(false));
    let owner = Owner(vec![7; bytes], released.clone());
    let region = Region::from_owner(owner, |owner| (owner.0.as_mut_ptr(), owner.0.len()));
    (region, move || released.load(Ordering::SeqCst))
}

impl World {
    pub(in crate::transport) fn new<T: IntoBox>(
        transports: Vec<T>,
        idle: Box<dyn FnMut()>,
    ) -> World {
        let ranks = transports.len();
        let recorder = |rank| Recorder {
            rank: rank as Rank,
            announced: (0..ranks).map(|_| None).collect(),
            events: Vec::new(),
        };
        World {
            transports: transports.into_iter().map(|it| Some(it.into_box())).collect(),
            connects_early: false,
            lends: false,
            idle,
            events: Vec::new(),
            recorders: (0..ranks).map(recorder).collect(),
            given: Vec::new(),
        }
    }

    /// A world of which only `rank` is in this thread.
    pub(in crate::transport) fn of_one<T: Transport + 'static>(rank: Rank, own: T) -> World {
        let size = own.size();
        let mut world = World::new(vec![own], Box::new(|| {}));
        let mut recorder = world.recorders.remove(0);
        recorder.rank = rank;
        recorder.announced.resize_with(size as usize, || None);
        world.transports.resize_with(size as usize, || None);
        world.transports.swap(0, rank as usize);
        world.recorders.resize_with(size as usize, Recorder::default);
        world.recorders[rank as usize] = recorder;
        world
    }

    /// Waits in the system until `rank` can move, as a driver does.
    #[cfg(feature = "tcp")]
    pub(in crate::transport) fn wait(&self, rank: Rank) {
        let mut interests = Vec::new();
        if let Some(transport) = &self.transports[rank as usize] {
            transport.interests(&mut interests);
        }
        let due = self.transports[rank as usize].as_ref().and_then(|it| it.deadline());
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let woken = crate::transport::wait::wait(&interests, Some(left.unwrap_or(PATIENCE)));
        assert!(woken || due.is_some(), "rank {rank} waited in vain");
    }

    /// Sends message `number`, whose content follows from its place.
    pub(in crate::transport) fn send(&mut self, from: Rank, to: Rank, number: u32, bytes: usize) {
        let content = payload(from, to, number, bytes);
        let content = match (bytes, number % 2) {
            (0, 0) => Payload::Empty,
            _ if self.lends => {
                let region = Region::for_elements(bytes).expect("there is memory");
                region.write(|memory| memory.copy_from_slice(&content));
                Payload::Region(region)
            }
            (_, 0) => Payload::Owned(content),
            _ => Payload::Region(Region::from_vec(content)),
        };
        self.send_payload(from, to, message(number, bytes), content);
    }

    pub(in crate::transport) fn send_payload(
        &mut self,
        from: Rank,
        to: Rank,
        mut header: Header,
        payload: Payload,
    ) {
        header.payload_bytes = payload.len() as u32;
        self.given.push((from, to, header));
        self.transport(from).send(to, header, payload);
    }

    pub(in crate::transport) fn connect(&mut self, from: Rank, to: Rank) {
        self.transport(from).connect(to);
    }

    pub(in crate::transport) fn close(&mut self, rank: Rank, orderly: bool) {
        self.transport(rank).close(orderly);
    }

    fn transport(&mut self, rank: Rank) -> &mut Box<dyn Transport> {
        self.transports[rank as usize].as_mut().expect("the rank is alive")
    }

    /// Lets `rank` move once.
    pub(in crate::transport) fn turn(&mut self, rank: Rank) -> bool {
        let Some(transport) = &mut self.transports[rank as usize] else {
            return false;
        };
        let recorder = &mut self.recorders[rank as usize];
        let moved = transport.advance(recorder);
        self.events.append(&mut recorder.events);
        moved
    }

    pub(in crate::transport) fn drive_until(&mut self, what: &str, done: impl Fn(&World) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            let mut moved = false;
            for rank in 0..self.transports.len() as u32 {
                moved |= self.turn(rank);
            }
            if !moved {
                (self.idle)();
            }
            let lost = || self.events.iter().filter(|event| matches!(event, Event::Lost { .. }));
            let late = begin.elapsed() >= PATIENCE;
            assert!(!late, "waited in vain: {what}; lost: {:?}", lost().collect::<Vec<_>>());
        }
    }

    pub(in crate::transport) fn drive_until_all_arrived(&mut self) {
        let given = self.given.len();
        self.drive_until("all frames arrive", |world| {
            let arrived = |event: &&Event| matches!(event, Event::Arrived { .. });
            let sent = |event: &&Event| matches!(event, Event::Sent { .. });
            world.events.iter().filter(arrived).count() == given
                && world.events.iter().filter(sent).count() == given
        });
    }

    /// Drives all ranks until nothing moves for long.
    pub(in crate::transport) fn drive_a_while(&mut self) {
        self.drive_quiet(0..self.transports.len() as u32);
    }

    /// Drives one rank until nothing moves for long.
    pub(in crate::transport) fn drive_only(&mut self, rank: Rank) {
        self.drive_quiet(rank..rank + 1);
    }

    fn drive_quiet(&mut self, ranks: std::ops::Range<Rank>) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            let mut moved = false;
            for rank in ranks.clone() {
                moved |= self.turn(rank);
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if !moved {
                (self.idle)();
            }
        }
    }

    /// What `rank` got from `peer`.
    pub(in crate::transport) fn arrived(
        &self,
        at: Rank,
        from: Rank,
    ) -> Vec<(Header, Option<Vec<u8>>)> {
        let of_pair = self.events.iter().filter_map(|event| match event {
            Event::Arrived { rank, peer, header, bytes } if (*rank, *peer) == (at, from) => {
                Some((*header, bytes.clone()))
            }
            _ => None,
        });
        of_pair.collect()
    }

    /// What left `from` for `to`.
    pub(in crate::transport) fn sent(&self, from: Rank, to: Rank) -> Vec<Header> {
        let of_pair = self.events.iter().filter_map(|event| match event {
            Event::Sent { rank, peer, header } if (*rank, *peer) == (from, to) => Some(*header),
            _ => None,
        });
        of_pair.collect()
    }

    /// What `at` learned of the end of `of`.
    pub(in crate::transport) fn lost(&self, at: Rank, of: Rank) -> Vec<LossReason> {
        let of_pair = self.events.iter().filter_map(|event| match event {
            Event::Lost { rank, peer, why } if (*rank, *peer) == (at, of) => Some(why.clone()),
            _ => None,
        });
        of_pair.collect()
    }

    /// Compares what arrived and what was reported as sent with what was given, pair by pair.
    pub(in crate::transport) fn check_order_and_contents(&self) {
        let ranks = self.transports.len() as u32;
        for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
            let given = self.given.iter().filter(|given| (given.0, given.1) == (from, to));
            let given: Vec<_> = given.map(|given| given.2).collect();
            assert_eq!(self.sent(from, to), given, "sent from {from} to {to}");
            let arrived = self.arrived(to, from);
            assert_eq!(arrived.len(), given.len(), "from {from} to {to}");
            for ((header, bytes), given) in arrived.into_iter().zip(given) {
                assert_eq!(header, given, "from {from} to {to}");
                let number = header.message;
                let content = payload(from, to, number, header.payload_bytes as usize);
                let expected = (number % 3 != 2).then_some(content);
                assert!(bytes == expected, "content of message {number} from {from} to {to}");
            }
        }
    }
}

impl Sink for Recorder {
    fn announced(&mut self, peer: Rank, header: &Header) -> Destination {
        let destination = match header.message % 3 {
            0 => Destination::Borrowed,
            1 => {
                Destination::Into(Region::zeroed(header.payload_bytes as usize), Stores::Streaming)
            }
            _ => Destination::Discard,
        };
        let before = self.announced[peer as usize].replace((*header, destination.clone()));
        assert!(before.is_none(), "one frame at a time");
        destination
    }

    fn arrived(&mut self, peer: Rank, header: &Header, payload: ArrivedPayload<'_>) {
        let (announced, destination) =
            self.announced[peer as usize].take().expect("it was announced");
        assert_eq!(announced, *header);
        let bytes = match (destination, payload) {
            (Destination::Into(region, _), ArrivedPayload::InPlace) => {
                Some(region.read(<[u8]>::to_vec))
            }
            (Destination::Borrowed, ArrivedPayload::Borrowed(bytes)) => Some(bytes.to_vec()),
            (Destination::Borrowed, ArrivedPayload::Lent(bytes, holds)) => {
                let bytes = bytes.to_vec();
                assert!(holds(), "nobody took it back");
                Some(bytes)
            }
            (Destination::Discard, ArrivedPayload::Discarded) => None,
            (destination, payload) => panic!("{payload:?} for {destination:?}"),
        };
        self.events.push(Event::Arrived { rank: self.rank, peer, header: *header, bytes });
    }

    fn sent(&mut self, peer: Rank, header: &Header) {
        self.events.push(Event::Sent { rank: self.rank, peer, header: *header });
    }

    fn lost(&mut self, peer: Rank, why: LossReason) {
        self.announced[peer as usize] = None;
        self.events.push(Event::Lost { rank: self.rank, peer, why });
    }
}
