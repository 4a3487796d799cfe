//! How the ranks of a group find one another: address cards and a token in the store.
//! Knows no schedule.

#[cfg(feature = "tcp")]
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::kept_prices::KeptPrices;
use super::link_costs;
#[cfg(feature = "tcp")]
use crate::env::TransportEnvironment;
use crate::env::WebSocketEnvironment;
use crate::generated::error::{Error, Result};
use crate::price::KnownPrices;
use crate::rendezvous::JoinObserver;
use crate::schedule::Topology;
use crate::schedule::cost::{LinkClass, LinkCosts};
use crate::store::Store;
#[cfg(not(feature = "tcp"))]
use crate::store::grace_to_ms;
#[cfg(feature = "tcp")]
use crate::transport::WithinHost;
use crate::transport::board::AnyBoard;
#[cfg(feature = "tcp")]
use crate::transport::tcp::{self, Listener, TcpTransport};
#[cfg(not(feature = "tcp"))]
use crate::transport::websocket::dialer;
use crate::transport::{Endpoints, Transport, compose, inproc};
use crate::wire::card::Card;
use crate::wire::handshake::Token;
use crate::{random, rendezvous};

/// What this rank knows of the others, and its connections to them.
pub(super) struct Discovery {
    /// The way to the others.
    pub(super) transport: Box<dyn Transport>,
    /// What small operations go over, on all ranks or on none.
    pub(super) board: Option<AnyBoard>,
    /// How many of the ranks share this host's cores.
    pub(super) ranks_on_host: usize,
    /// Which ranks share a host.
    pub(super) topology: Topology,
    /// What links cost; the same on all ranks.
    pub(super) link_costs: LinkCosts,
    /// What copies cost in an earlier group like this; the same on all ranks.
    pub(super) known_prices: Arc<KnownPrices>,
    /// Where this rank keeps what they cost in this one, if it does.
    pub(super) kept_prices: Option<KeptPrices>,
    /// The ranks that have a session with the store's server, and its number.
    pub(super) sessions: Vec<(u32, u64)>,
}

/// The ranks that are to find one another.
#[derive(Clone, Copy)]
pub(super) struct Gathering<'a> {
    /// Where they meet.
    pub(super) store: &'a Arc<dyn Store>,
    /// The group.
    pub(super) name: &'a str,
    /// This one.
    pub(super) rank: u32,
    /// How many they are.
    pub(super) size: u32,
    /// The generation of the group: others are not let in.
    pub(super) generation: u32,
    /// How long they wait for one another.
    pub(super) timeout: Duration,
    /// Looks out for a reason why they never come.
    pub(super) observer: Option<&'a dyn JoinObserver>,
}

/// Publishes this rank of a group in its store, waits for the others and listens for them.
///
/// # Errors
/// [`Error::RendezvousTimeout`] naming the ranks that did not come; [`Error::Rendezvous`] if this
/// rank is there already, or another runs a different version.
pub(super) async fn discover(gathering: Gathering<'_>) -> Result<Discovery> {
    let Gathering { store, name, rank, size, timeout, observer, .. } = gathering;
    if size == 1 {
        let transport = inproc::connect(1)
            .pop()
            .ok_or_else(|| Error::Network { message: "cannot make a group of one rank".into() })?;
        return Ok(Discovery {
            transport: Box::new(transport),
            board: boards::offer()?.and_then(boards::alone),
            ranks_on_host: 1,
            sessions: Vec::new(),
            topology: Topology::one_host(1),
            link_costs: LinkCosts::of(LinkClass::Process),
            known_prices: Arc::default(),
            kept_prices: None,
        });
    }
    // What is wrong with this rank alone is found before the others count on it.
    let ready = match Contribution::new(&**store, (rank, size)) {
        Ok(ready) => ready,
        Err(error) => return Err(refuse(store, name, (rank, size), error, timeout).await),
    };
    match observer {
        Some(observer) => {
            rendezvous::join_observed(&**store, name, (rank, size), timeout, observer).await?;
        }
        None => rendezvous::join_async(&**store, name, rank, size, timeout).await?,
    }
    let found = discover_with(gathering, ready).await;
    // Those who waited in vain are not to blame for it.
    if let Err(error) = &found
        && !matches!(error, Error::RendezvousTimeout { .. })
    {
        rendezvous::fail_joined(&**store, name, rank, error).await;
    }
    found
}

/// Tells the others why this rank does not join, and returns that.
pub(super) async fn refuse(
    store: &Arc<dyn Store>,
    name: &str,
    (rank, size): (u32, u32),
    why: Error,
    timeout: Duration,
) -> Error {
    if size > 1 {
        rendezvous::refuse(&**store, name, (rank, size), &why, timeout).await;
    }
    why
}

/// What a rank brings for the others.
struct Contribution {
    spare: spare::Descriptors,
    means: Endpoints,
    offer: Option<boards::Offer>,
    /// What links cost, as rank 0 tells the others.
    link_costs: Option<Vec<u8>>,
    /// What copies cost on this host, if this rank keeps that.
    kept_prices: Option<KeptPrices>,
}

impl Contribution {
    fn new(store: &dyn Store, (rank, size): (u32, u32)) -> Result<Contribution> {
        // Here all is checked always; a wrong word would go unseen.
        crate::debug_level::get_debug_level()?;
        let kept_prices = if rank == 0 { KeptPrices::open(size) } else { None };
        let prices = kept_prices.as_ref().map(KeptPrices::text).unwrap_or_default();
        let link_costs = (rank == 0).then(|| link_costs::published(&prices)).transpose()?;
        let (means, offer) = (means(store)?, boards::offer()?);
        let spare = spare::Descriptors::open()?;
        Ok(Contribution { means, offer, link_costs, kept_prices, spare })
    }
}

/// As [`discover`], for a rank that has joined.
async fn discover_with(
    gathering: Gathering<'_>,
    Contribution { means, offer, link_costs, kept_prices, spare }: Contribution,
) -> Result<Discovery> {
    let Gathering { store, name, rank, size, generation, timeout, observer } = gathering;
    let ours = Card { board: offer.as_ref().map(boards::Offer::key), ..means.card() };
    store.set_async(&card_key(rank), &ours.encode()).await?;
    if let Some(link_costs) = link_costs {
        // One rank's link costs for all, so that all choose the same algorithms.
        store.set_async(LINK_COSTS, &link_costs).await?;
        store.set_async(TOKEN, &random::bytes::<16>()?).await?;
    }
    let keys: Vec<String> = (0..size).map(card_key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).chain([LINK_COSTS, TOKEN]).collect();
    rendezvous::await_joined(&**store, (name, size), &keys, timeout, observer).await?;
    let mut values = store.multi_get_async(&keys).await?;
    let token = values.pop().unwrap_or_default();
    let token = <[u8; 16]>::try_from(token).map(Token).map_err(|_| Error::Rendezvous {
        message: "the store holds something else under the group's token".into(),
    })?;
    let published = values.pop().unwrap_or_default();
    let cards = values
        .iter()
        .enumerate()
        .map(|(other, bytes)| {
            Card::decode(bytes).map_err(|error| Error::Rendezvous {
                message: format!("the store's entry for rank {other}: {error}"),
            })
        })
        .collect::<Result<Vec<Card>>>()?;
    let ranks_on_host = cards.iter().filter(|card| card.host == ours.host).count();
    let board = match offer {
        Some(offer) => boards::agree(offer, gathering, &cards).await?,
        None => None,
    };
    // Ranks that listen tell of one another by themselves.
    let is_told = |card: &Card| card.tcp.is_empty() || ours.tcp.is_empty();
    let sessions = (0..).zip(&cards).filter(|(_, card)| is_told(card));
    let sessions = sessions.filter_map(|(other, card)| Some((other, card.relay?)));
    let sessions = sessions.filter(|(other, _)| *other != rank).collect();
    let topology = Topology::by_host(cards.iter().map(|card| &card.host));
    let link_costs = link_costs::of_group(&published, &cards)?;
    #[cfg(feature = "tcp")]
    super::announcement::tell_ways(name, rank, &cards);
    spare.release();
    let transport = compose(rank, &cards, token, generation, means)?;
    // What operations cost whose ranks are on several hosts is the network's doing.
    let is_one_host = ranks_on_host == cards.len();
    let known_prices = is_one_host.then(|| link_costs::known_prices(&published));
    Ok(Discovery {
        transport,
        board,
        ranks_on_host,
        sessions,
        topology,
        link_costs,
        known_prices: Arc::new(known_prices.unwrap_or_default()),
        kept_prices: kept_prices.filter(|_| is_one_host),
    })
}

/// Where rank 0 publishes what links cost, for all ranks.
const LINK_COSTS: &str = "link_costs";
const TOKEN: &str = "token";

fn card_key(rank: u32) -> String {
    format!("rank/{rank}")
}

/// What this rank has to reach the others and to be reached.
fn means(store: &dyn Store) -> Result<Endpoints> {
    // The others come to a rank that listens, but for those that may open no such connection.
    #[cfg(feature = "tcp")]
    return Ok(Endpoints {
        listener: Some(listen(store)?),
        within_host: WithinHost::open()?,
        relay: store.relay(),
        environment: WebSocketEnvironment::read()?,
        ..Endpoints::default()
    });
    #[cfg(not(feature = "tcp"))]
    return Ok(Endpoints {
        dialer: dialer(),
        relay: store.relay(),
        reconnect_grace_ms: grace_to_ms(store.reconnect_grace()),
        environment: WebSocketEnvironment::read()?,
    });
}

#[cfg(feature = "tcp")]
fn listen(store: &dyn Store) -> Result<Listener> {
    // The interface that leads to the store leads to the other ranks; without one, this host only.
    let address = store.local_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    match TransportEnvironment::read()?.interfaces {
        Some((variable, list)) => {
            TcpTransport::bind_all(&tcp::addresses(variable, &list, address)?)
        }
        None => TcpTransport::bind(SocketAddr::new(address, 0)),
    }
}

/// Descriptors of a process that may run out of them.
#[cfg(feature = "tcp")]
mod spare {
    use std::fs::File;

    use super::*;

    /// How many a rank opens for itself when the others count on it already: two event queues with
    /// their timers, what wakes their thread, and what tells of the ends of connections.
    const COUNT: usize = 7;

    /// As many as a rank needs that has joined, so that one that may not open them says so before.
    pub(super) struct Descriptors {
        files: Vec<File>,
    }

    impl Descriptors {
        pub(super) fn open() -> Result<Descriptors> {
            let files = (0..COUNT).map(|_| File::open("/dev/null")).collect::<std::io::Result<_>>();
            let files = files.map_err(|error| Error::Network {
                message: format!("cannot open the descriptors that a group needs: {error}"),
            })?;
            Ok(Descriptors { files })
        }

        /// They may be opened for something else.
        pub(super) fn release(self) {
            drop(self.files);
        }
    }
}

/// A browser has none.
#[cfg(not(feature = "tcp"))]
mod spare {
    use super::*;

    pub(super) struct Descriptors;

    impl Descriptors {
        pub(super) fn open() -> Result<Descriptors> {
            Ok(Descriptors)
        }

        pub(super) fn release(self) {}
    }
}

/// Where ranks can share memory.
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod boards {
    use super::*;
    use crate::env::{CopyChoice, TransportChoice};
    use crate::spin::is_crowded;
    pub(super) use crate::transport::shm::board::Offer;

    /// What a rank answers that has no board.
    const NONE: &[u8] = b"none";
    /// What one answers that can read the memory of all others, and should.
    const READS: &[u8] = b"reads";

    /// This rank's part of a board, if the user wants to share memory and the system provides it.
    pub(super) fn offer() -> Result<Option<Offer>> {
        if TransportEnvironment::read()?.transport == TransportChoice::Tcp {
            return Ok(None);
        }
        let nonce = u64::from_le_bytes(random::bytes::<8>()?);
        Ok(Offer::new(nonce).inspect_err(|why| tracing::debug!(%why, "no board")).ok())
    }

    /// The board of a group of one rank.
    pub(super) fn alone(mut offer: Offer) -> Option<AnyBoard> {
        let card = Card::new("", 0, Vec::new());
        offer.join(0, &[card]).inspect_err(|why| tracing::debug!(%why, "no board")).ok()
    }

    /// The board of the group, if every rank finds every other's part.
    pub(super) async fn agree(
        mut offer: Offer,
        gathering: Gathering<'_>,
        cards: &[Card],
    ) -> Result<Option<AnyBoard>> {
        let Gathering { store, name, rank, size, timeout, observer, .. } = gathering;
        if !Offer::suits(cards) {
            return Ok(None);
        }
        let board = offer.join(rank, cards).inspect_err(|why| tracing::debug!(%why, "no board"));
        let key = |rank| format!("board/{rank}");
        let answer: &[u8] = match &board {
            Ok(board) if board.reads_memory() && wants_to_read(cards.len())? => READS,
            Ok(_) => b"found",
            Err(_) => NONE,
        };
        store.set_async(&key(rank), answer).await?;
        let keys: Vec<String> = (0..cards.len()).map(|rank| key(rank as u32)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        rendezvous::await_joined(&**store, (name, size), &keys, timeout, observer).await?;
        let answers = store.multi_get_async(&keys).await?;
        // All have looked for this rank's part.
        drop(offer);
        let mut board = board.ok().filter(|_| answers.iter().all(|answer| answer != NONE));
        if let Some(board) = &mut board
            && answers.iter().any(|answer| answer != READS)
        {
            board.forbid_reading();
        }
        Ok(board)
    }

    /// Whether `ranks` ranks of this host should read one another's memory. Where they share cores,
    /// each turn in which all wait for one costs more than a copy.
    fn wants_to_read(ranks: usize) -> Result<bool> {
        Ok(match TransportEnvironment::read()?.copy {
            CopyChoice::Auto => !is_crowded(ranks),
            CopyChoice::Attach => true,
            CopyChoice::Slots | CopyChoice::Lent => false,
        })
    }
}

/// Where they cannot.
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
mod boards {
    use super::*;
    use crate::wire::card::BoardKey;

    pub(super) enum Offer {}

    impl Offer {
        pub(super) fn key(&self) -> BoardKey {
            match *self {}
        }
    }

    pub(super) fn offer() -> Result<Option<Offer>> {
        Ok(None)
    }

    pub(super) fn alone(offer: Offer) -> Option<AnyBoard> {
        match offer {}
    }

    pub(super) async fn agree(
        offer: Offer,
        _: Gathering<'_>,
        _: &[Card],
    ) -> Result<Option<AnyBoard>> {
        match offer {}
    }
}
