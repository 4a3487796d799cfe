//! What links cost, one rank's word for all: what was measured on rank 0's machine, or what such
//! links cost elsewhere. Knows no schedule and no store.

use crate::schedule::cost::{Calibration, LinkClass, Prices};
use crate::wire::card::Card;
use crate::{Error, Result, env};

/// What rank 0 tells the others: the content of its `POLYRANK_PRICES`, if it has one.
///
/// # Errors
/// [`Error::InvalidArgument`] if the file cannot be read or is something else.
pub(super) fn published() -> Result<Vec<u8>> {
    let Some(path) = env::prices_file() else {
        return Ok(Calibration::default().encode().into_bytes());
    };
    let wrong = |why: String| Error::InvalidArgument {
        message: format!("POLYRANK_PRICES: {}: {why}", path.display()),
    };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let calibration = Calibration::decode(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(calibration.encode().into_bytes())
}

/// The prices of a group: what rank 0 `published`, for the links that the ranks' `cards` offer.
///
/// # Errors
/// [`Error::Rendezvous`] if what was published is something else.
pub(super) fn of_group(published: &[u8], cards: &[Card]) -> Result<Prices> {
    let text = String::from_utf8_lossy(published);
    let calibration = Calibration::decode(&text).map_err(|error| Error::Rendezvous {
        message: format!("the store's entry for the prices of links: {error}"),
    })?;
    Ok(calibration.prices(link_within(cards)))
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

    #[test]
    fn the_groups_links_decide_which_prices_count() {
        let mut calibration = Calibration::default();
        let measured = crate::schedule::cost::Link { latency_s: 1.0, overhead_s: 2.0, byte_s: 3.0 };
        calibration.links[LinkClass::Loopback as usize] = Some(measured);
        let text = calibration.encode().into_bytes();
        let listens = Card::new("host", 1, vec!["127.0.0.1:80".parse().unwrap()]);
        let other = Card { process_id: 2, ..listens.clone() };
        let prices = of_group(&text, &[listens, other]).unwrap();
        assert_eq!((prices.within, prices.between), (measured, LinkClass::Network.link()));
        let page = Card::new("process 1", 1, Vec::new());
        let prices = of_group(&text, &[page.clone(), page]).unwrap();
        assert_eq!(prices.within, LinkClass::Process.link());
        let error = of_group(b"hello", &[]).unwrap_err().to_string();
        assert!(error.contains("polyrank prices"), "{error}");
    }
}
