//! Picks the algorithm of a collective: by cost, or as told. Knows only what all ranks share, so
//! that all ranks pick alike; the environment is read by the caller.

use std::fmt;
use std::sync::OnceLock;

use super::Topology;
use super::cost::{LinkCosts, Load};
use crate::generated::collective::Collective;

/// The whole that is assumed where ranks need not agree on sizes.
const UNKNOWN_BYTES: u64 = 64 * 1024;

/// Sizes beyond this cost as much as this one.
const MAX_BYTES: u64 = 1 << 48;

/// What all ranks know of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSize {
    /// The size of the whole: of the tensor in an allreduce, reduce or broadcast, of all blocks
    /// together in an allgather or reduce-scatter. `None` where ranks may see different sizes
    /// (gather, scatter, alltoall).
    pub bytes: Option<u64>,
    /// Whether all blocks have one size.
    pub equal_blocks: bool,
}

/// Picks algorithms for one group. Equal ones pick alike, on every machine.
#[derive(Debug)]
pub struct Selector {
    loads: [Vec<Load>; Collective::ALL.len()],
    link_costs: LinkCosts,
    overrides: Overrides,
    /// For each collective, with blocks of different sizes and of one: made when first wanted,
    /// since a group seldom uses all of them.
    tables: [[OnceLock<Table>; 2]; Collective::ALL.len()],
}

/// Up to which size each choice is the cheapest, ascending.
type Table = Vec<(u64, usize)>;

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

impl Selector {
    /// A selector for a group whose ranks are `on` these hosts, at these link costs.
    pub fn new(on: &Topology, link_costs: &LinkCosts, overrides: Overrides) -> Selector {
        let loads = |collective: Collective| {
            collective.algorithms().iter().map(|algorithm| (algorithm.load)(on)).collect()
        };
        Selector {
            loads: Collective::ALL.map(loads),
            link_costs: *link_costs,
            overrides,
            tables: Default::default(),
        }
    }

    /// The algorithm to use, as an index into [`Collective::algorithms`].
    pub fn choose(&self, collective: Collective, known: CallSize) -> usize {
        if let Some(chosen) = self.overrides.get(collective) {
            return chosen;
        }
        let table = &self.tables[collective as usize][usize::from(known.equal_blocks)];
        let table = table.get_or_init(|| self.table(collective, known.equal_blocks));
        let bytes = known.bytes.unwrap_or(UNKNOWN_BYTES).min(MAX_BYTES);
        let place = table.partition_point(|&(up_to, _)| up_to < bytes);
        table.get(place).map_or(0, |&(_, choice)| choice)
    }

    /// The algorithms for blocks of one size, each with the most bytes that it is used for; none
    /// for the last.
    pub fn choices(&self, collective: Collective) -> Vec<(Option<u64>, &'static str)> {
        let name = |choice: usize| collective.algorithms().get(choice).map_or("", |it| it.name);
        if let Some(chosen) = self.overrides.get(collective) {
            return vec![(None, name(chosen))];
        }
        let table = &self.tables[collective as usize][1];
        let table = table.get_or_init(|| self.table(collective, true));
        let up_to = |bytes: u64| (bytes < MAX_BYTES).then_some(bytes);
        table.iter().map(|&(bytes, choice)| (up_to(bytes), name(choice))).collect()
    }

    /// Whether the user insists on an algorithm.
    pub fn is_told(&self, collective: Collective) -> bool {
        self.overrides.get(collective).is_some()
    }

    /// Seconds that an algorithm costs, by its index.
    pub fn cost(&self, collective: Collective, algorithm: usize, bytes: u64) -> f64 {
        self.loads[collective as usize][algorithm].cost(bytes as f64, &self.link_costs)
    }

    fn table(&self, collective: Collective, equal_blocks: bool) -> Table {
        let cheapest = |bytes| self.cheapest(collective, equal_blocks, bytes);
        let (mut table, mut choice, mut from) = (Table::new(), cheapest(0), 0);
        for bytes in (0..=MAX_BYTES.ilog2()).map(|bits| 1 << bits) {
            let next = cheapest(bytes);
            while choice != next {
                // The last size at which the earlier choice holds; there may be another between.
                let (mut holds, mut fails) = (from, bytes);
                while fails - holds > 1 {
                    let middle = holds + (fails - holds) / 2;
                    if cheapest(middle) == choice { holds = middle } else { fails = middle }
                }
                table.push((holds, choice));
                (choice, from) = (cheapest(fails), fails);
            }
            from = bytes;
        }
        table.push((u64::MAX, choice));
        table
    }

    /// The first of the cheapest, so that equal costs are not a tie.
    fn cheapest(&self, collective: Collective, equal_blocks: bool, bytes: u64) -> usize {
        let usable = (0..).zip(collective.algorithms());
        let usable = usable.filter(|(_, known)| equal_blocks || !known.needs_equal_blocks());
        let costs = usable.map(|(index, _)| (index, self.cost(collective, index, bytes)));
        let cheapest = costs.min_by(|a, b| a.1.total_cmp(&b.1));
        cheapest.map_or(0, |(index, _)| index)
    }
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
                write!(f, "'{entry}' is not of the form collective=algorithm")
            }
            OverrideError::UnknownCollective { collective } => {
                let known = Collective::ALL.iter().map(|c| c.facts().name).collect();
                write!(f, "'{collective}' is not a collective; expected one of {}", list(known))
            }
            OverrideError::UnknownAlgorithm { collective, algorithm } => {
                let known = collective.algorithms().iter().map(|a| a.name).collect();
                let name = collective.facts().name;
                write!(f, "{name} has no algorithm '{algorithm}'; it has {}", list(known))
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

    fn selector(size: u32, overrides: Overrides) -> Selector {
        Selector::new(&Topology::one_host(size), &LinkCosts::LOOPBACK, overrides)
    }

    fn known(bytes: Option<u64>) -> CallSize {
        CallSize { bytes, equal_blocks: false }
    }

    fn name(collective: Collective, size: u32, bytes: Option<u64>) -> &'static str {
        let chosen = selector(size, Overrides::none()).choose(collective, known(bytes));
        collective.algorithms()[chosen].name
    }

    #[test]
    fn overrides_decide() {
        let overrides = Overrides::parse(" allreduce = ring,, broadcast=chain ").unwrap();
        let selector = selector(4, overrides.clone());
        let chosen = selector.choose(Collective::Allreduce, known(Some(4)));
        assert_eq!(Collective::Allreduce.algorithms()[chosen].name, "ring");
        let chosen = selector.choose(Collective::Broadcast, known(None));
        assert_eq!(Collective::Broadcast.algorithms()[chosen].name, "chain");
        assert_eq!(overrides.get(Collective::Barrier), None);
        assert_eq!(Overrides::parse("").unwrap(), Overrides::none());
    }

    #[test]
    fn mistakes_are_named_with_the_choice_there_is() {
        let message = |text: &str| Overrides::parse(text).unwrap_err().to_string();
        let algorithms: Vec<_> =
            Collective::Allreduce.algorithms().iter().map(|a| a.name).collect();
        assert_eq!(
            message("allreduce=rign"),
            format!("allreduce has no algorithm 'rign'; it has {}", algorithms.join(", "))
        );
        let collectives = Collective::ALL.map(|collective| collective.facts().name).join(", ");
        assert_eq!(
            message("all_reduce=ring"),
            format!("'all_reduce' is not a collective; expected one of {collectives}")
        );
        assert_eq!(message("ring"), "'ring' is not of the form collective=algorithm");
        assert_eq!(message("reduce=chain,reduce=chain"), "reduce is named twice");
    }

    #[test]
    fn the_choice_is_the_cheapest_at_every_size() {
        for on in [Topology::one_host(1), Topology::one_host(7), Topology::blocks(3, 4)] {
            let selector = Selector::new(&on, &LinkCosts::LOOPBACK, Overrides::none());
            for collective in Collective::ALL {
                for equal_blocks in [false, true] {
                    for bytes in (0..40).flat_map(|bits| [(1 << bits) - 1, 3 << bits]) {
                        let known = CallSize { bytes: Some(bytes), equal_blocks };
                        let chosen = selector.choose(collective, known);
                        let cheapest = selector.cheapest(collective, equal_blocks, bytes);
                        assert_eq!(chosen, cheapest, "{collective:?} of {bytes} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn every_size_gets_an_algorithm() {
        for size in [1, 2, 3, 5, 8, 100, 100_000] {
            let selector = selector(size, Overrides::none());
            for collective in Collective::ALL {
                for bytes in [None, Some(0), Some(1), Some(1 << 20), Some(u64::MAX)] {
                    let chosen = selector.choose(collective, known(bytes));
                    assert!(!collective.algorithms()[chosen].needs_equal_blocks());
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
