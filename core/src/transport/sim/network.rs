//! All ranks and links of a simulated network, and the queue of its events. A link takes memory
//! only once two ranks connect, and a step of time touches only links that have an event. Knows
//! nothing of sinks.

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
    ranks: Vec<RankState>,
    /// Ranks that had an event.
    awake: BTreeSet<Rank>,
}

/// What the network knows of one rank.
struct RankState {
    alive: bool,
    /// The ranks that it has links to and from.
    peers: BTreeSet<Rank>,
    /// The ranks from which something may have arrived.
    due: BTreeSet<Rank>,
    notices: Vec<Notice>,
    traffic: Traffic,
}

/// What has arrived at a receiver.
pub(super) enum Arrival {
    Head(Header),
    Tail(Header, Vec<u8>),
    End(LossReason),
}

/// How a rank leaves the network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RankExit {
    Goodbye,
    Close,
    Death,
}

/// What happens at a moment of simulated time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Death(Rank),
    /// Nothing: a caller asked that time stops here.
    Wake,
    /// The first queued frame of a link leaves.
    Departure(Rank, Rank),
    /// The first or last byte of a frame of a link arrives.
    Arrival(Rank, Rank),
}

impl Network {
    pub(super) fn new(size: u32, options: &Options) -> Network {
        let state = |_| RankState {
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
            ranks: (0..size).map(state).collect(),
            awake: BTreeSet::new(),
        }
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, event))) = self.events.pop() else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        self.run_event(event);
        while let Some(Reverse((at_ns, event))) = self.events.peek().copied()
            && at_ns <= self.now_ns
        {
            self.events.pop();
            self.run_event(event);
        }
        true
    }

    pub(super) fn wake_at(&mut self, at_ns: u64) {
        self.events.push(Reverse((at_ns, Event::Wake)));
    }

    pub(super) fn is_alive(&self, rank: Rank) -> bool {
        self.ranks[rank as usize].alive
    }

    /// Appends the ranks that had an event since the last call.
    pub(super) fn take_awake(&mut self, awake: &mut Vec<Rank>) {
        awake.extend(std::mem::take(&mut self.awake));
    }

    pub(super) fn traffic(&self, rank: Rank) -> Traffic {
        let state = &self.ranks[rank as usize];
        Traffic { connections: state.peers.len(), ..state.traffic }
    }

    /// Links two ranks, both ways.
    pub(super) fn connect(&mut self, from: Rank, to: Rank) {
        if from == to || !self.is_alive(from) || !self.state_of(from).peers.insert(to) {
            return;
        }
        self.state_of(to).peers.insert(from);
        let size = self.ranks.len() as u64;
        for (from, to) in [(from, to), (to, from)] {
            let number = u64::from(from) * size + u64::from(to);
            self.links.insert((from, to), Link::new(number, &self.options));
        }
        if !self.is_alive(to) {
            self.with_link(to, from, |link| link.ended = true);
            let why = LossReason::Unreachable("it has left already".to_owned());
            self.notify(from, Notice::Lost(to, why));
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
        let traffic = &mut self.state_of(from).traffic;
        traffic.frames_sent += 1;
        traffic.bytes_sent += bytes;
        traffic.messages_sent += u64::from(is_message(&header));
        self.begin_departure(from, to);
    }

    /// Drops what `from` has queued.
    pub(super) fn abandon(&mut self, from: Rank) {
        for to in self.state_of(from).peers.clone() {
            self.with_link(from, to, Link::drop_queued);
        }
    }

    /// Takes the peers from which something may have arrived.
    pub(super) fn take_due(&mut self, rank: Rank) -> BTreeSet<Rank> {
        std::mem::take(&mut self.state_of(rank).due)
    }

    /// Takes the notices for a rank that is alive.
    pub(super) fn take_notices(&mut self, rank: Rank) -> Vec<Notice> {
        std::mem::take(&mut self.state_of(rank).notices)
    }

    /// Takes the next thing that has arrived from `from` at `to` by now.
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
                self.begin_departure(from, to);
                let traffic = &mut self.state_of(to).traffic;
                traffic.bytes_received += bytes.len() as u64;
                traffic.messages_received += u64::from(is_message(&header));
                Some(Arrival::Tail(header, bytes))
            }
            Content::End(why) => {
                link.ended = true;
                self.with_link(to, from, Link::clear);
                Some(Arrival::End(why))
            }
        }
    }

    /// Ends `rank`, and sends the end of the connection to its peers.
    pub(super) fn end(&mut self, rank: Rank, ending: RankExit) {
        let state = self.state_of(rank);
        if !std::mem::replace(&mut state.alive, false) {
            return;
        }
        state.notices.clear();
        let now_ns = self.now_ns;
        for peer in self.state_of(rank).peers.clone() {
            self.with_link(peer, rank, Link::clear);
            let Some(link) = self.links.get_mut(&(rank, peer)) else { continue };
            link.drop_queued();
            if link.ended {
                continue;
            }
            if ending == RankExit::Death {
                link.drop_last_in_transit(now_ns);
            }
            let why = match ending {
                RankExit::Goodbye => LossReason::Goodbye,
                RankExit::Close => {
                    LossReason::Died("its connection ended without a goodbye".to_owned())
                }
                RankExit::Death => LossReason::Died("its connection was reset".to_owned()),
            };
            let arrivals = link.push_in_transit(now_ns, Content::End(why));
            self.note_arrivals(rank, peer, arrivals);
        }
    }

    fn run_event(&mut self, event: Event) {
        match event {
            Event::Wake => {}
            Event::Death(rank) => self.end(rank, RankExit::Death),
            Event::Departure(from, to) => self.finish_departure(from, to),
            Event::Arrival(from, to) => {
                self.state_of(to).due.insert(from);
                self.awake.insert(to);
            }
        }
    }

    /// Begins to send the first queued frame, if the link is free and has room.
    fn begin_departure(&mut self, from: Rank, to: Rank) {
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        if let Some(departs_at_ns) = link.begin_departure(self.now_ns) {
            self.events.push(Reverse((departs_at_ns, Event::Departure(from, to))));
        }
    }

    /// Moves the first queued frame onto the link, if its time has come.
    fn finish_departure(&mut self, from: Rank, to: Rank) {
        let now_ns = self.now_ns;
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let Some((header, arrivals)) = link.finish_departure(now_ns) else { return };
        self.note_arrivals(from, to, arrivals);
        self.notify(from, Notice::Sent(to, header));
        self.begin_departure(from, to);
    }

    fn note_arrivals(&mut self, from: Rank, to: Rank, [head_at_ns, tail_at_ns]: [u64; 2]) {
        self.events.push(Reverse((head_at_ns, Event::Arrival(from, to))));
        if tail_at_ns != head_at_ns {
            self.events.push(Reverse((tail_at_ns, Event::Arrival(from, to))));
        }
    }

    fn notify(&mut self, rank: Rank, notice: Notice) {
        self.state_of(rank).notices.push(notice);
        self.awake.insert(rank);
    }

    fn with_link(&mut self, from: Rank, to: Rank, change: impl FnOnce(&mut Link)) {
        self.links.get_mut(&(from, to)).map(change);
    }

    fn state_of(&mut self, rank: Rank) -> &mut RankState {
        &mut self.ranks[rank as usize]
    }
}

/// Whether a frame is the first of a collective's message; others carry more of it, or control.
fn is_message(header: &Header) -> bool {
    header.kind == Kind::Data && header.offset == 0
}
