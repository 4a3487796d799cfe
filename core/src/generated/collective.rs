//! The collectives, the buffers each has, and what all ranks must agree on.

use crate::schedule::{self, Algorithm, Contract};

/// A collective. The discriminant is the number that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collective {
    /// All ranks get the reduction of all ranks' tensors.
    Allreduce = 0,
    /// The root gets the reduction of all ranks' tensors.
    Reduce = 1,
    /// All ranks get the root's tensor.
    Broadcast = 2,
    /// All ranks get every rank's tensor.
    Allgather = 3,
    /// The root gets every rank's tensor.
    Gather = 4,
    /// Each rank gets its part of the root's tensors.
    Scatter = 5,
    /// Each rank gets its part of the reduction.
    ReduceScatter = 6,
    /// Each rank sends a part to, and gets a part from, every rank.
    Alltoall = 7,
    /// No data; nobody leaves before everybody came.
    Barrier = 8,
}

/// How many blocks a rank's buffer has. A block is one rank's contribution or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// The collective has no such buffer.
    None,
    /// One block on every rank.
    One,
    /// One block for each rank, on every rank.
    All,
    /// One block, at the root only.
    OneAtRoot,
    /// One block for each rank, at the root only.
    AllAtRoot,
}

/// How the sizes of blocks relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Every block of every rank has the same number of elements; it is part of the fingerprint.
    Equal,
    /// Block `i` has rank `i`'s size wherever it stands; every rank knows all sizes.
    PerRank,
    /// Block `i` has rank `i`'s size; only the root knows all sizes.
    PerRankAtRoot,
    /// Each pair of ranks has its own size.
    Pairwise,
}

/// What the IDL says of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The name that every language uses: `allreduce`, `reduce_scatter`, …
    pub name: &'static str,
    /// Blocks of the input buffer; `None` where the operation works in place on the output.
    pub input: Blocks,
    /// Blocks of the output buffer.
    pub output: Blocks,
    /// How block sizes relate.
    pub sizes: Sizes,
    /// Whether one rank is the root.
    pub rooted: bool,
    /// Whether elements are reduced.
    pub reduces: bool,
}

impl Collective {
    /// Every collective, in the order of the numbers that travel.
    pub const ALL: [Collective; 9] = [
        Collective::Allreduce,
        Collective::Reduce,
        Collective::Broadcast,
        Collective::Allgather,
        Collective::Gather,
        Collective::Scatter,
        Collective::ReduceScatter,
        Collective::Alltoall,
        Collective::Barrier,
    ];

    /// The collective of a number that travelled, if it is one.
    pub const fn from_code(code: u8) -> Option<Collective> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    /// What the IDL says of this collective.
    pub const fn facts(self) -> &'static Facts {
        match self {
            Collective::Allreduce => &Facts {
                name: "allreduce",
                input: Blocks::None,
                output: Blocks::One,
                sizes: Sizes::Equal,
                rooted: false,
                reduces: true,
            },
            Collective::Reduce => &Facts {
                name: "reduce",
                input: Blocks::One,
                output: Blocks::OneAtRoot,
                sizes: Sizes::Equal,
                rooted: true,
                reduces: true,
            },
            Collective::Broadcast => &Facts {
                name: "broadcast",
                input: Blocks::None,
                output: Blocks::One,
                sizes: Sizes::Equal,
                rooted: true,
                reduces: false,
            },
            Collective::Allgather => &Facts {
                name: "allgather",
                input: Blocks::One,
                output: Blocks::All,
                sizes: Sizes::PerRank,
                rooted: false,
                reduces: false,
            },
            Collective::Gather => &Facts {
                name: "gather",
                input: Blocks::One,
                output: Blocks::AllAtRoot,
                sizes: Sizes::PerRankAtRoot,
                rooted: true,
                reduces: false,
            },
            Collective::Scatter => &Facts {
                name: "scatter",
                input: Blocks::AllAtRoot,
                output: Blocks::One,
                sizes: Sizes::PerRankAtRoot,
                rooted: true,
                reduces: false,
            },
            Collective::ReduceScatter => &Facts {
                name: "reduce_scatter",
                input: Blocks::All,
                output: Blocks::One,
                sizes: Sizes::PerRank,
                rooted: false,
                reduces: true,
            },
            Collective::Alltoall => &Facts {
                name: "alltoall",
                input: Blocks::All,
                output: Blocks::All,
                sizes: Sizes::Pairwise,
                rooted: false,
                reduces: false,
            },
            Collective::Barrier => &Facts {
                name: "barrier",
                input: Blocks::None,
                output: Blocks::None,
                sizes: Sizes::Equal,
                rooted: false,
                reduces: false,
            },
        }
    }

    /// The contract that every algorithm of this collective keeps.
    pub fn contract(self) -> &'static Contract {
        match self {
            Collective::Allreduce => &schedule::allreduce::CONTRACT,
            Collective::Reduce => &schedule::reduce::CONTRACT,
            Collective::Broadcast => &schedule::broadcast::CONTRACT,
            Collective::Allgather => &schedule::allgather::CONTRACT,
            Collective::Gather => &schedule::gather::CONTRACT,
            Collective::Scatter => &schedule::scatter::CONTRACT,
            Collective::ReduceScatter => &schedule::reduce_scatter::CONTRACT,
            Collective::Alltoall => &schedule::alltoall::CONTRACT,
            Collective::Barrier => &schedule::barrier::CONTRACT,
        }
    }

    /// The algorithms that can carry out this collective.
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Collective::Allreduce => schedule::allreduce::ALGORITHMS,
            Collective::Reduce => schedule::reduce::ALGORITHMS,
            Collective::Broadcast => schedule::broadcast::ALGORITHMS,
            Collective::Allgather => schedule::allgather::ALGORITHMS,
            Collective::Gather => schedule::gather::ALGORITHMS,
            Collective::Scatter => schedule::scatter::ALGORITHMS,
            Collective::ReduceScatter => schedule::reduce_scatter::ALGORITHMS,
            Collective::Alltoall => schedule::alltoall::ALGORITHMS,
            Collective::Barrier => schedule::barrier::ALGORITHMS,
        }
    }
}
