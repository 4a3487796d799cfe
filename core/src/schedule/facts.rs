//! What follows from what the IDL says of a collective. A new collective needs no line here.

use super::Rank;
use crate::generated::collective::{Blocks, Collective, Facts};

impl Collective {
    /// Of how many ranks the result of `rank` is the reduction, where it gets one: of all, but for
    /// prefix reductions. None, in an exclusive scan, for rank 0, whose tensor stays as it was.
    #[must_use]
    pub fn reduced_ranks(self, rank: Rank, size: u32) -> u32 {
        match self {
            Collective::Scan => rank + 1,
            Collective::Exscan => rank,
            _ => size,
        }
    }
}

impl Facts {
    /// Whether any bytes belong to it: a barrier has none.
    #[must_use]
    pub fn has_data(&self) -> bool {
        [self.input, self.output].iter().any(|blocks| *blocks != Blocks::None)
    }

    /// Whether a buffer of it has a block for each rank.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        let all = [Blocks::All, Blocks::AllAtRoot];
        all.contains(&self.input) || all.contains(&self.output)
    }

    /// Bus bandwidth by algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it: what every
    /// link carries if the algorithm is the best there is.
    #[must_use]
    pub fn bus_factor(&self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks);
        // What a rank has of its own need not travel.
        let others = (ranks - 1.0) / ranks;
        match (self.has_data(), self.is_divided()) {
            (false, _) => 0.0,
            (true, true) => others,
            // Every rank's part goes to where it is reduced, and the result to every rank.
            (true, false) if self.reduces && !self.rooted => 2.0 * others,
            (true, false) => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::generated::collective::Collective;

    #[test]
    fn a_prefix_is_of_the_ranks_up_to_this_one_or_before_it() {
        let reduced = |collective: Collective| [0, 2].map(|rank| collective.reduced_ranks(rank, 4));
        assert_eq!(reduced(Collective::Scan), [1, 3]);
        assert_eq!(reduced(Collective::Exscan), [0, 2]);
        assert_eq!(reduced(Collective::Allreduce), [4, 4]);
    }

    #[test]
    fn the_factors_are_those_of_nccl_tests() {
        for (collective, factor) in [
            (Collective::Allreduce, 1.5),
            (Collective::Reduce, 1.0),
            (Collective::Broadcast, 1.0),
            (Collective::Allgather, 0.75),
            (Collective::Gather, 0.75),
            (Collective::Scatter, 0.75),
            (Collective::ReduceScatter, 0.75),
            (Collective::Alltoall, 0.75),
            (Collective::Barrier, 0.0),
        ] {
            assert_eq!(collective.facts().bus_factor(4), factor, "{collective:?}");
        }
    }
}
