//! All ranks and links of an imagined network, and what happens when. Only what is used takes
//! memory: a link is made when two ranks connect, and a step of time looks at no other links than
//! those where something happens. Knows nothing of sinks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::link::{Content, Link};
use super::{Options, Traffic};
use crate::transport::notice::Notice;
use crate::transport::{LossReason, Payload, Rank};
use crate::wire::frame::{Header, Kind};

pub(super) struct Network {
    pub(super) now_ns: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    options: Options,
    /// By sender and receiver.
    links: HashMap<(Rank, Rank), Link>,
    ranks: Vec<End>,
    /// Ranks for which something has happened.
    awake: BTreeSet<Rank>,
}

/// One rank's end of the network.
struct End {
    /// Whether it can act.
    alive: bool,
    /// With whom it has links, to and from.
    peers: BTreeSet<Rank>,
    /// From whom something may have come.
    due: BTreeSet<Rank>,
    notices: Vec<Notice>,
    traffic: Traffic,
}

/// What a receiver learns.
pub(super) enum Arrival {
    Head(Header),
    Tail(Header, Vec<u8>),
    End(LossReason),
}

/// How a rank ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    Goodbye,
    Close,
    Death,
}

/// Why time stops at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Death(Rank),
    /// Somebody outside wants it.
    Wake,
    /// The first queued frame of a link leaves.
    Departure(Rank, Rank),
    /// The first or last byte of a frame of a link arrives.
    Arrival(Rank, Rank),
}

impl Network {
    pub(super) fn new(size: u32, options: &Options) -> Network {
        let end = |_| End {
            alive: true,
            peers: BTreeSet::new(),
            due: BTreeSet::new(),
            notices: Vec::new(),
            traffic: Traffic::default(),
        };
        let death = options.death.map(|(rank, at_ns)| Reverse((at_ns, Event::Death(rank))));
        Network {
            now_ns: 0,
            events: death.into_iter().collect(),
            options: options.clone(),
            links: HashMap::new(),
            ranks: (0..size).map(end).collect(),
            awake: BTreeSet::new(),
        }
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, event))) = self.events.pop() else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        self.happen(event);
        while let Some(Reverse((at_ns, event))) = self.events.peek().copied()
            && at_ns <= self.now_ns
        {
            self.events.pop();
            self.happen(event);
        }
        true
    }

    pub(super) fn wake_at(&mut self, at_ns: u64) {
        self.events.push(Reverse((at_ns, Event::Wake)));
    }

    pub(super) fn is_alive(&self, rank: Rank) -> bool {
        self.ranks[rank as usize].alive
    }

    /// Appends the ranks for which something has happened since the last call.
    pub(super) fn take_awake(&mut self, awake: &mut Vec<Rank>) {
        awake.extend(std::mem::take(&mut self.awake));
    }

    pub(super) fn traffic(&self, rank: Rank) -> Traffic {
        let end = &self.ranks[rank as usize];
        Traffic { connections: end.peers.len(), ..end.traffic }
    }

    /// Links two ranks, both ways.
    pub(super) fn connect(&mut self, from: Rank, to: Rank) {
        if from == to || !self.is_alive(from) || !self.end_of(from).peers.insert(to) {
            return;
        }
        self.end_of(to).peers.insert(from);
        let size = self.ranks.len() as u64;
        for (from, to) in [(from, to), (to, from)] {
            let number = u64::from(from) * size + u64::from(to);
            self.links.insert((from, to), Link::new(number, &self.options));
        }
        if !self.is_alive(to) {
            self.change(to, from, |link| link.ended = true);
            let why = LossReason::Unreachable("it has left already".to_owned());
            self.tell(from, Notice::Lost(to, why));
        }
    }

    /// Queues a frame between two ranks that are connected.
    pub(super) fn send(&mut self, from: Rank, to: Rank, header: Header, payload: Payload) {
        if !self.is_alive(from) || !self.is_alive(to) {
            return;
        }
        let bytes = payload.len() as u64;
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        link.queue(header, payload);
        let traffic = &mut self.end_of(from).traffic;
        traffic.frames_sent += 1;
        traffic.bytes_sent += bytes;
        traffic.messages_sent += u64::from(is_message(&header));
        self.load(from, to);
    }

    /// Forgets what `from` has queued.
    pub(super) fn abandon(&mut self, from: Rank) {
        for to in self.end_of(from).peers.clone() {
            self.change(from, to, Link::unload);
        }
    }

    /// The peers from whom something may have come.
    pub(super) fn take_due(&mut self, rank: Rank) -> BTreeSet<Rank> {
        std::mem::take(&mut self.end_of(rank).due)
    }

    /// What a rank that is alive is to be told.
    pub(super) fn take_notices(&mut self, rank: Rank) -> Vec<Notice> {
        std::mem::take(&mut self.end_of(rank).notices)
    }

    /// The next thing that has come from `from` to `to` by now.
    pub(super) fn next(&mut self, from: Rank, to: Rank, announced: bool) -> Option<Arrival> {
        if !self.is_alive(to) {
            return None;
        }
        let now_ns = self.now_ns;
        let link = self.links.get_mut(&(from, to)).filter(|link| !link.ended)?;
        if !announced && let Some(header) = link.head(now_ns) {
            return Some(Arrival::Head(header));
        }
        match link.take(now_ns)? {
            Content::Frame(header, bytes) => {
                self.load(from, to);
                let traffic = &mut self.end_of(to).traffic;
                traffic.bytes_received += bytes.len() as u64;
                traffic.messages_received += u64::from(is_message(&header));
                Some(Arrival::Tail(header, bytes))
            }
            Content::End(why) => {
                link.ended = true;
                self.change(to, from, Link::clear);
                Some(Arrival::End(why))
            }
        }
    }

    /// Ends `rank`, and sends word of it to those who have a connection to it.
    pub(super) fn end(&mut self, rank: Rank, ending: EndKind) {
        let end = self.end_of(rank);
        if !std::mem::replace(&mut end.alive, false) {
            return;
        }
        end.notices.clear();
        let now_ns = self.now_ns;
        for peer in self.end_of(rank).peers.clone() {
            self.change(peer, rank, Link::clear);
            let Some(link) = self.links.get_mut(&(rank, peer)) else { continue };
            link.unload();
            if link.ended {
                continue;
            }
            if ending == EndKind::Death {
                link.cut(now_ns);
            }
            let why = match ending {
                EndKind::Goodbye => LossReason::Goodbye,
                EndKind::Close => {
                    LossReason::Died("its connection ended without a goodbye".to_owned())
                }
                EndKind::Death => LossReason::Died("its connection was reset".to_owned()),
            };
            let arrivals = link.travel(now_ns, Content::End(why));
            self.note_arrivals(rank, peer, arrivals);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake => {}
            Event::Death(rank) => self.end(rank, EndKind::Death),
            Event::Departure(from, to) => self.depart(from, to),
            Event::Arrival(from, to) => {
                self.end_of(to).due.insert(from);
                self.awake.insert(to);
            }
        }
    }

    /// Begins to send the first queued frame, if the link is free and has room.
    fn load(&mut self, from: Rank, to: Rank) {
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        if let Some(departs_at_ns) = link.load(self.now_ns) {
            self.events.push(Reverse((departs_at_ns, Event::Departure(from, to))));
        }
    }

    /// Lets the first queued frame leave, if its time has come.
    fn depart(&mut self, from: Rank, to: Rank) {
        let now_ns = self.now_ns;
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let Some((header, arrivals)) = link.depart(now_ns) else { return };
        self.note_arrivals(from, to, arrivals);
        self.tell(from, Notice::Sent(to, header));
        self.load(from, to);
    }

    fn note_arrivals(&mut self, from: Rank, to: Rank, [head_at_ns, tail_at_ns]: [u64; 2]) {
        self.events.push(Reverse((head_at_ns, Event::Arrival(from, to))));
        if tail_at_ns != head_at_ns {
            self.events.push(Reverse((tail_at_ns, Event::Arrival(from, to))));
        }
    }

    fn tell(&mut self, rank: Rank, notice: Notice) {
        self.end_of(rank).notices.push(notice);
        self.awake.insert(rank);
    }

    fn change(&mut self, from: Rank, to: Rank, change: impl FnOnce(&mut Link)) {
        self.links.get_mut(&(from, to)).map(change);
    }

    fn end_of(&mut self, rank: Rank) -> &mut End {
        &mut self.ranks[rank as usize]
    }
}

/// Whether a frame is the first of a message of a collective; others carry more of it, or steer.
fn is_message(header: &Header) -> bool {
    header.kind == Kind::Data && header.offset == 0
}
