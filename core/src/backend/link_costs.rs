//! What links cost, one rank's word for all: what was measured on rank 0's machine, or what such
//! links cost elsewhere, and how many cores it has; behind that, what copies cost in an earlier
//! group on its host. Knows no schedule and no store.

use crate::env;
use crate::executor::SPIN_LIMITS;
use crate::generated::error::{Error, Result};
use crate::price::{self, KnownPrices};
use crate::schedule::cost::{Calibration, LinkClass, LinkCosts};
use crate::wire::card::Card;

/// The name of the line after the costs that says how many cores the ranks of a host share.
const CORES: &str = "cores";

/// What rank 0 tells the others: the content of its `POLYRANK_LINK_COSTS`, if it has one, how many
/// cores it has, and the text of an earlier group's `prices`.
///
/// # Errors
/// [`Error::InvalidArgument`] if the file cannot be read or is something else.
pub(super) fn published(prices: &str) -> Result<Vec<u8>> {
    let calibration = match env::link_costs_file() {
        None => Calibration::default(),
        Some(path) => {
            let wrong = |why: String| Error::InvalidArgument {
                message: format!("POLYRANK_LINK_COSTS: {}: {why}", path.display()),
            };
            let text = env::read_link_costs(&path).map_err(|error| wrong(error.to_string()))?;
            Calibration::decode(&text).map_err(|error| wrong(error.to_string()))?
        }
    };
    let mut text = calibration.encode();
    if let Ok(cores) = std::thread::available_parallelism() {
        text.push_str(&format!("{CORES} {cores}\n"));
    }
    text.push_str(prices);
    Ok(text.into_bytes())
}

/// What copies cost in an earlier group on rank 0's host, by what rank 0 `published`. What makes no
/// sense there is nothing: it is measured again.
pub(super) fn known_prices(published: &[u8]) -> KnownPrices {
    let text = String::from_utf8_lossy(published);
    let (_, prices) = parts(&text);
    KnownPrices::decode(prices).map(|(_, known)| known).unwrap_or_default()
}

/// The two parts of what rank 0 published.
fn parts(published: &str) -> (&str, &str) {
    published.split_at(price::kept_text_in(published).unwrap_or(published.len()))
}

/// The link costs of a group: what rank 0 `published`, for the links that the ranks' `cards` offer.
///
/// # Errors
/// [`Error::Rendezvous`] if what was published is something else.
pub(super) fn of_group(published: &[u8], cards: &[Card]) -> Result<LinkCosts> {
    let text = String::from_utf8_lossy(published);
    let (text, _) = parts(&text);
    let calibration = Calibration::decode(text).map_err(|error| Error::Rendezvous {
        message: format!("the store's entry for the link costs: {error}"),
    })?;
    let class = link_within(cards);
    let link_costs = calibration.link_costs(class);
    // What one process moves for all of its ranks was not measured with fewer cores.
    let shared = cores(text).filter(|_| class != LinkClass::Process);
    let awake_s = SPIN_LIMITS.yielding.as_secs_f64();
    Ok(LinkCosts { cores: shared.unwrap_or(link_costs.cores), awake_s, ..link_costs })
}

/// How many cores rank 0 has said that the ranks of a host share.
fn cores(published: &str) -> Option<f64> {
    let number = |line: &str| line.strip_prefix(CORES)?.trim().parse::<u32>().ok();
    published.lines().find_map(number).filter(|cores| *cores > 0).map(f64::from)
}

/// How ranks of one host reach each other, by what all ranks offer.
fn link_within(cards: &[Card]) -> LinkClass {
    let process = |card: &Card| (card.host.clone(), card.process_id);
    let first = cards.first().map(process);
    if cards.iter().all(|card| Some(process(card)) == first && card.tcp.is_empty()) {
        LinkClass::Process
    } else if cards.iter().all(|card| card.shm.is_some()) {
        LinkClass::SharedMemory
    } else {
        LinkClass::Loopback
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::generated::collective::Collective;
    use crate::price::Price;
    use crate::schedule::Topology;
    use crate::schedule::select::{CallSize, Overrides, Selector};

    #[test]
    fn the_groups_links_decide_which_costs_count() {
        let mut calibration = Calibration::default();
        let measured = crate::schedule::cost::Link { latency_s: 1.0, overhead_s: 2.0, byte_s: 3.0 };
        calibration.links[LinkClass::Loopback as usize] = Some(measured);
        let text = calibration.encode().into_bytes();
        let listens = Card::new("host", 1, vec!["127.0.0.1:80".parse().unwrap()]);
        let other = Card { process_id: 2, ..listens.clone() };
        let link_costs = of_group(&text, &[listens, other]).unwrap();
        assert_eq!((link_costs.within, link_costs.between), (measured, LinkClass::Network.link()));
        let page = Card::new("process 1", 1, Vec::new());
        let link_costs = of_group(&text, &[page.clone(), page]).unwrap();
        assert_eq!(link_costs.within, LinkClass::Process.link());
        let error = of_group(b"hello", &[]).unwrap_err().to_string();
        assert!(error.contains("polyrank link costs"), "{error}");
    }

    #[test]
    fn prices_follow_the_link_costs() {
        let mut known = KnownPrices::default();
        known.insert("message/1MiB".to_owned(), &[3, 4].map(Price));
        let prices = known.encode("somebody");
        let costs = Calibration::default().encode() + "cores 2\n";
        let both = costs.clone() + &prices;
        let cards: Vec<_> = (0..4).map(|id| Card::new("host", id, Vec::new())).collect();
        let link_costs = |text: &str| of_group(text.as_bytes(), &cards).unwrap();
        assert_eq!(link_costs(&both), link_costs(&costs));
        assert_eq!(known_prices(both.as_bytes()).get("message/1MiB"), Some([3, 4].map(Price)));
        for none in [&*costs, &both[..both.len() - 1], "", &prices[1..]] {
            assert!(known_prices(none.as_bytes()).is_empty(), "{none}");
        }
    }

    fn allreduce_by_sockets(ranks: u32, published: &str) -> &'static str {
        let address = "127.0.0.1:80".parse().unwrap();
        let cards: Vec<_> = (0..ranks).map(|id| Card::new("host", id, vec![address])).collect();
        let link_costs = of_group(published.as_bytes(), &cards).unwrap();
        allreduce(ranks, 4, &link_costs)
    }

    fn allreduce(ranks: u32, bytes: u64, link_costs: &LinkCosts) -> &'static str {
        let selector = Selector::new(&Topology::one_host(ranks), link_costs, Overrides::none());
        let known = CallSize { bytes: Some(bytes), equal_blocks: true };
        Collective::Allreduce.algorithms()[selector.choose(Collective::Allreduce, known)].name
    }

    /// Four ranks on two cores took 50 µs for an allreduce of 4 bytes by recursive doubling, 70 by
    /// one_shot, 122 by halving_doubling, 145 by two_shot.
    #[test]
    fn ranks_that_share_cores_send_fewer_messages() {
        let published = |lines: &str| Calibration::default().encode() + lines;
        assert_eq!(allreduce_by_sockets(4, &published("cores 2\n")), "recursive_doubling");
        assert_eq!(allreduce_by_sockets(4, &published("cores 4\n")), "one_shot");
        for unknown in ["", "cores\n", "cores 0\n", "cores -1\n", "cores many\n"] {
            assert_eq!(allreduce_by_sockets(4, &published(unknown)), "one_shot", "{unknown}");
        }
    }

    /// On two cores of an Intel Xeon (family 6 model 167), the tree took 1.3 to 1.5 ms for 4 bytes
    /// of 64 ranks, recursive doubling 2.0 to 2.3; for 64 KiB 3.7 ms, the exchange by halves 6.6.
    #[test]
    fn ranks_that_share_cores_go_by_what_all_of_them_send() {
        let shared = |cores: f64| LinkCosts { cores, ..LinkCosts::of(LinkClass::SharedMemory) };
        assert_eq!(allreduce(64, 4, &shared(64.0)), "recursive_doubling");
        assert_eq!(allreduce(64, 64 << 10, &shared(64.0)), "halving_doubling");
        for bytes in [4, 1 << 10, 64 << 10] {
            assert_eq!(allreduce(64, bytes, &shared(2.0)), "hierarchical", "{bytes}");
        }
    }
}
