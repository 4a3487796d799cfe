//! Groups of ranks of which some listen and the others only dial, as in a browser. Knows nothing of
//! what is done with them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::{Dialer, NativeDialer, Options, Pipe, Relay, Socket};
use super::memory::{MemoryPipe, pair};
use crate::generated::error::Result;
use crate::transport::compose::compose_with;
use crate::transport::tcp::{Listener, TcpTransport};
use crate::transport::{Endpoints, Membership, Rank, Timeouts, Transport};
use crate::wire::card::Card;
use crate::wire::handshake::Token;

pub(super) const TOKEN: Token = Token([9; 16]);
pub(super) const GENERATION: u32 = 5;

/// A relay in memory: the second to ask for a pipe gets its other end.
#[derive(Clone, Default)]
pub(crate) struct MemoryRelay {
    number: u64,
    waiting: PendingPipes,
}

/// Ends of pipes by the lower number, the higher number and the name.
type PendingPipes = Arc<Mutex<HashMap<(u64, u64, u64), MemoryPipe>>>;

impl MemoryRelay {
    /// The same relay, as another process sees it.
    fn of(&self, number: u64) -> MemoryRelay {
        MemoryRelay { number, waiting: self.waiting.clone() }
    }
}

impl Relay for MemoryRelay {
    fn number(&self) -> u64 {
        self.number
    }

    fn open(&self, peer: u64, id: u64) -> Box<dyn Pipe> {
        let name = (self.number.min(peer), self.number.max(peer), id);
        let mut waiting = self.waiting.lock().unwrap();
        let ours = waiting.remove(&name).unwrap_or_else(|| {
            let [ours, theirs] = pair();
            waiting.insert(name, theirs);
            ours
        });
        Box::new(ours)
    }
}

/// What the ranks of a group have: `is_web(rank)` only dials, by `dialer`.
pub(super) fn means(
    size: u32,
    is_web: impl Fn(Rank) -> bool,
    dialer: &Arc<dyn Dialer>,
) -> (Vec<Endpoints>, Vec<Card>) {
    let relay = MemoryRelay::default();
    let means = |rank| match is_web(rank) {
        true => Endpoints {
            dialer: Some(dialer.clone()),
            relay: Some(Arc::new(relay.of(u64::from(rank) + 100))),
            ..Endpoints::default()
        },
        false => Endpoints { listener: Some(listener()), ..Endpoints::default() },
    };
    let means: Vec<_> = (0..size).map(means).collect();
    let cards = cards(&means);
    (means, cards)
}

fn listener() -> Listener {
    TcpTransport::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn cards(means: &[Endpoints]) -> Vec<Card> {
    let cards = (0_u32..).zip(means).map(|(rank, means)| Card {
        // In one process, too, they are to reach each other by their means.
        process_id: rank,
        ..means.card()
    });
    cards.collect()
}

/// Every other rank only dials, but nobody may: the stores of all are reached by encrypted
/// connections.
pub(crate) fn encrypted(size: u32) -> Vec<Box<dyn Transport>> {
    let relay = MemoryRelay::default();
    let means = (0..size).map(|rank| Endpoints {
        listener: (rank % 2 == 1).then(listener),
        dialer: Some(Arc::new(Forbidden)),
        relay: Some(Arc::new(relay.of(u64::from(rank) + 100))),
        ..Endpoints::default()
    });
    let means: Vec<_> = means.collect();
    let cards = cards(&means);
    connect((means, cards), Options::default())
}

/// An encrypted page's: it opens no other connections.
struct Forbidden;

impl Dialer for Forbidden {
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>> {
        panic!("{url} was dialled")
    }
}

pub(super) fn connect(
    (means, cards): (Vec<Endpoints>, Vec<Card>),
    options: Options,
) -> Vec<Box<dyn Transport>> {
    let transport = |(rank, means)| {
        let membership = Membership { rank, cards: &cards, token: TOKEN, generation: GENERATION };
        compose_with(membership, means, options).unwrap()
    };
    (0..).zip(means).map(transport).collect()
}

/// Every other rank only dials, the `first` of all being one of those (0) or of the others (1).
pub(crate) fn mixed(size: u32, first: u32) -> Vec<Box<dyn Transport>> {
    alternating(size, first, Options::default())
}

/// As [`mixed`], with ranks that do not wait long for each other.
pub(in crate::transport) fn impatient(size: u32, first: u32) -> Vec<Box<dyn Transport>> {
    let timeouts = Timeouts {
        connect_timeout: Duration::from_secs(2),
        refused_timeout: Duration::from_millis(100),
        ..Timeouts::default()
    };
    alternating(size, first, Options { timeouts, ..Options::default() })
}

fn alternating(size: u32, first: u32, options: Options) -> Vec<Box<dyn Transport>> {
    let dialer: Arc<dyn Dialer> = Arc::new(NativeDialer);
    connect(means(size, |rank| rank % 2 == first % 2, &dialer), options)
}
