//! Picks the algorithm of a collective: by price, or as told. Knows only what all ranks share, so
//! that all ranks pick alike; the environment is read by the caller.

use std::fmt;

use super::cost::Prices;
use crate::Collective;

/// The whole that is assumed where ranks need not agree on sizes.
const UNKNOWN_BYTES: u64 = 64 * 1024;

/// The size beyond which a larger group changes no choice.
const SIZE_MAX: u32 = 1 << 24;

/// Algorithms that the user insists on, by collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    chosen: [Option<usize>; Collective::ALL.len()],
}

/// Why a list of algorithms cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideError {
    /// An entry is not of the form `collective=algorithm`.
    Malformed {
        /// The entry.
        entry: String,
    },
    /// There is no such collective.
    UnknownCollective {
        /// What was asked for.
        collective: String,
    },
    /// The collective has no such algorithm.
    UnknownAlgorithm {
        /// The collective.
        collective: Collective,
        /// What was asked for.
        algorithm: String,
    },
    /// A collective is named twice.
    Twice {
        /// The collective.
        collective: Collective,
    },
}

/// The algorithm to use, as an index into [`Collective::algorithms`].
///
/// `bytes` is the size of the whole if all ranks know it: of the tensor in an allreduce, reduce or
/// broadcast, of all blocks together in an allgather or reduce-scatter. It must be `None` where
/// ranks may see different sizes (gather, scatter, alltoall).
pub fn select(
    collective: Collective,
    size: u32,
    bytes: Option<u64>,
    overrides: &Overrides,
) -> usize {
    if let Some(chosen) = overrides.get(collective) {
        return chosen;
    }
    let whole_bytes = bytes.unwrap_or(UNKNOWN_BYTES) as f64;
    let price = |index: &usize| {
        let traffic = (collective.algorithms()[*index].traffic)(size.clamp(1, SIZE_MAX));
        traffic.price(whole_bytes, &Prices::LOOPBACK)
    };
    // The first of the cheapest, so that equal prices are no tie.
    (0..collective.algorithms().len())
        .min_by(|a, b| price(a).total_cmp(&price(b)))
        .unwrap_or_default()
}

impl Overrides {
    /// Nothing is insisted on.
    pub fn none() -> Overrides {
        Overrides::default()
    }

    /// Reads the value of `POLYRANK_ALGORITHM`: `allreduce=ring,broadcast=binomial`. Spaces and
    /// empty entries are allowed.
    ///
    /// # Errors
    /// Unknown names, with the known ones in the message; a collective named twice.
    pub fn parse(text: &str) -> Result<Overrides, OverrideError> {
        let mut overrides = Overrides::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((collective, algorithm)) = entry.split_once('=') else {
                return Err(OverrideError::Malformed { entry: entry.into() });
            };
            let (collective, algorithm) = (collective.trim(), algorithm.trim());
            let known = Collective::ALL.into_iter().find(|c| c.facts().name == collective);
            let Some(known) = known else {
                return Err(OverrideError::UnknownCollective { collective: collective.into() });
            };
            let index = known.algorithms().iter().position(|a| a.name == algorithm);
            let Some(index) = index else {
                let algorithm = algorithm.into();
                return Err(OverrideError::UnknownAlgorithm { collective: known, algorithm });
            };
            if overrides.chosen[known as usize].replace(index).is_some() {
                return Err(OverrideError::Twice { collective: known });
            }
        }
        Ok(overrides)
    }

    /// The algorithm insisted on.
    pub fn get(&self, collective: Collective) -> Option<usize> {
        self.chosen[collective as usize]
    }
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<&str>| names.join(", ");
        match self {
            OverrideError::Malformed { entry } => {
                write!(f, "`{entry}` is not of the form `collective=algorithm`")
            }
            OverrideError::UnknownCollective { collective } => {
                let known = Collective::ALL.iter().map(|c| c.facts().name).collect();
                write!(f, "there is no collective `{collective}`; there are {}", list(known))
            }
            OverrideError::UnknownAlgorithm { collective, algorithm } => {
                let known = collective.algorithms().iter().map(|a| a.name).collect();
                let name = collective.facts().name;
                write!(f, "{name} has no algorithm `{algorithm}`; it has {}", list(known))
            }
            OverrideError::Twice { collective } => {
                write!(f, "{} is named twice", collective.facts().name)
            }
        }
    }
}

impl std::error::Error for OverrideError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(collective: Collective, size: u32, bytes: Option<u64>) -> &'static str {
        collective.algorithms()[select(collective, size, bytes, &Overrides::none())].name
    }

    #[test]
    fn overrides_decide() {
        let overrides = Overrides::parse(" allreduce = ring,, broadcast=chain ").unwrap();
        let chosen = select(Collective::Allreduce, 4, Some(4), &overrides);
        assert_eq!(Collective::Allreduce.algorithms()[chosen].name, "ring");
        let chosen = select(Collective::Broadcast, 4, None, &overrides);
        assert_eq!(Collective::Broadcast.algorithms()[chosen].name, "chain");
        assert_eq!(overrides.get(Collective::Barrier), None);
        assert_eq!(Overrides::parse("").unwrap(), Overrides::none());
    }

    #[test]
    fn mistakes_are_named_with_the_choice_there_is() {
        let message = |text: &str| Overrides::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("allreduce=rign"),
            "allreduce has no algorithm `rign`; it has one_shot, two_shot, recursive_doubling, \
             halving_doubling, ring"
        );
        assert_eq!(
            message("all_reduce=ring"),
            "there is no collective `all_reduce`; there are allreduce, reduce, broadcast, \
             allgather, gather, scatter, reduce_scatter, alltoall, barrier"
        );
        assert_eq!(message("ring"), "`ring` is not of the form `collective=algorithm`");
        assert_eq!(message("reduce=chain,reduce=chain"), "reduce is named twice");
    }

    #[test]
    fn every_size_gets_an_algorithm() {
        for collective in Collective::ALL {
            for size in [0, 1, 2, 3, 5, 8, 100, 100_000, u32::MAX] {
                for bytes in [None, Some(0), Some(1), Some(1 << 20), Some(u64::MAX)] {
                    let chosen = select(collective, size, bytes, &Overrides::none());
                    assert!(chosen < collective.algorithms().len());
                }
            }
        }
    }

    #[test]
    fn small_and_large_differ() {
        assert_eq!(name(Collective::Allreduce, 4, Some(4)), "one_shot");
        assert_eq!(name(Collective::Allreduce, 64, Some(4)), "recursive_doubling");
        assert_eq!(name(Collective::Allreduce, 4, Some(64 << 20)), "two_shot");
        assert_eq!(name(Collective::Broadcast, 8, Some(4)), "binomial");
        assert_eq!(name(Collective::Broadcast, 8, Some(64 << 20)), "chain");
        assert_eq!(name(Collective::Barrier, 2, None), "direct");
        assert_eq!(name(Collective::Barrier, 64, None), "dissemination");
    }
}
