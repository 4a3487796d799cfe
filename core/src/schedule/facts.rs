//! What follows from what the IDL says of a collective. A new collective needs no line here.

use crate::generated::collective::{Blocks, Facts};

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
