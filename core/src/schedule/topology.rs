//! Which ranks share a host: a fact that all ranks of a group know. Knows no links and no steps.

use std::hash::Hash;

use super::Rank;
use crate::sorted::LargeMap;

/// The ranks of a group by host. Hosts are numbered in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    host_of: Vec<u32>,
    members: Vec<Vec<Rank>>,
}

impl Topology {
    /// `size` ranks that are all on one host.
    pub fn one_host(size: u32) -> Topology {
        Topology::blocks(1, size)
    }

    /// `hosts` hosts of `ranks_per_host` ranks each, as launchers number them: host 0 has the
    /// first ranks.
    pub fn blocks(hosts: u32, ranks_per_host: u32) -> Topology {
        let ranks = 0..hosts * ranks_per_host;
        Topology::by_host(ranks.map(|rank| rank / ranks_per_host.max(1)))
    }

    /// The ranks whose hosts have these names, one for each rank.
    pub fn by_host<Name: Ord + Hash>(names: impl IntoIterator<Item = Name>) -> Topology {
        let mut numbers = LargeMap::new();
        let mut topology = Topology { host_of: Vec::new(), members: Vec::new() };
        for (rank, name) in (0..).zip(names) {
            let next = topology.members.len() as u32;
            let host = *numbers.entry(name).or_insert(next);
            if host == next {
                topology.members.push(Vec::new());
            }
            topology.members[host as usize].push(rank);
            topology.host_of.push(host);
        }
        topology
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.host_of.len() as u32
    }

    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.members.len() as u32
    }

    /// The host of a rank of the group.
    pub fn host_of(&self, rank: Rank) -> u32 {
        self.host_of[rank as usize]
    }

    /// The ranks of a host, ascending.
    pub fn members(&self, host: u32) -> &[Rank] {
        &self.members[host as usize]
    }

    /// Whether two ranks share a host.
    pub fn together(&self, one: Rank, other: Rank) -> bool {
        self.host_of(one) == self.host_of(other)
    }

    /// The number of ranks on the smallest host, which is also that of parallel lanes between
    /// hosts.
    pub fn fewest(&self) -> u32 {
        self.members.iter().map(|members| members.len() as u32).min().unwrap_or(0)
    }

    /// The ranks of the host that has the most.
    pub fn most(&self) -> u32 {
        self.members.iter().map(|members| members.len() as u32).max().unwrap_or(0)
    }

    /// The most ranks of one host whose successor, on the ring of all ranks, is on another.
    pub fn crossings(&self) -> u32 {
        let size = self.size();
        let leaves = |&&rank: &&Rank| !self.together(rank, (rank + 1) % size);
        let of_host = |members: &Vec<Rank>| members.iter().filter(leaves).count() as u32;
        self.members.iter().map(of_host).max().unwrap_or(0)
    }

    /// Whether every rank shares its host with the rank whose number differs in `bit` alone.
    pub fn near(&self, bit: u32) -> bool {
        let size = self.size();
        self.hosts() == 1
            || (0..size)
                .filter(|rank| rank ^ bit < size)
                .all(|rank| self.together(rank, rank ^ bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let cyclic = Topology::by_host(["b", "a", "b", "a", "b"]);
        assert_eq!((cyclic.size(), cyclic.hosts()), (5, 2));
        assert_eq!((cyclic.members(0), cyclic.members(1)), (&[0, 2, 4][..], &[1, 3][..]));
        assert_eq!((cyclic.fewest(), cyclic.most(), cyclic.crossings()), (2, 3, 2));
        assert!(cyclic.together(0, 4) && !cyclic.together(0, 1));
    }

    #[test]
    fn blocks_are_near_in_their_low_bits() {
        let blocks = Topology::blocks(4, 4);
        assert_eq!([1, 2, 4, 8].map(|bit| blocks.near(bit)), [true, true, false, false]);
        assert_eq!((blocks.fewest(), blocks.most(), blocks.crossings()), (4, 4, 1));
        let one = Topology::one_host(3);
        assert_eq!((one.hosts(), one.crossings(), one.near(2)), (1, 0, true));
        assert_eq!(Topology::one_host(1).members(0), [0]);
    }
}
