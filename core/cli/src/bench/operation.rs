//! The operations that can be measured: their names, what a size in bytes means for each, and how
//! bandwidth is reckoned. Knows nothing of libraries or ranks' processes.

use serde::{Deserialize, Serialize};

use polyrank::Collective;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Allreduce,
    Reduce,
    Broadcast,
    Allgather,
    Gather,
    Scatter,
    ReduceScatter,
    Alltoall,
    Barrier,
    /// Every rank sends to the next and receives from the one before.
    Sendrecv,
    /// Rank 0 sends to rank 1, which sends back; the time is that of one way.
    Pingpong,
    /// Rank 0 writes to the window of rank 1, and waits until it is there: `MPI_Put` and
    /// `MPI_Win_flush`. The others do nothing.
    Put,
}

/// Whether the result takes the place of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    OutOfPlace,
    InPlace,
}

/// The size of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Elements of one block: of the tensor, or of what one rank contributes or gets.
    pub(super) count: u64,
    /// Elements of the larger of a rank's buffers.
    pub(super) whole_elements: u64,
    /// Bytes of the same.
    pub(super) whole_bytes: u64,
}

impl Operation {
    pub(super) const ALL: [Operation; 12] = [
        Operation::Allreduce,
        Operation::Reduce,
        Operation::Broadcast,
        Operation::Allgather,
        Operation::Gather,
        Operation::Scatter,
        Operation::ReduceScatter,
        Operation::Alltoall,
        Operation::Barrier,
        Operation::Sendrecv,
        Operation::Pingpong,
        Operation::Put,
    ];

    /// The name on the command line and in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Allreduce => "allreduce",
            Operation::Reduce => "reduce",
            Operation::Broadcast => "broadcast",
            Operation::Allgather => "allgather",
            Operation::Gather => "gather",
            Operation::Scatter => "scatter",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::Alltoall => "alltoall",
            Operation::Barrier => "barrier",
            Operation::Sendrecv => "sendrecv",
            Operation::Pingpong => "pingpong",
            Operation::Put => "put",
        }
    }

    /// The operation of a name; `all_reduce` and `all-reduce` are `allreduce`.
    pub(super) fn from_name(name: &str) -> Option<Operation> {
        let plain = |text: &str| text.replace(['_', '-'], "").to_ascii_lowercase();
        Operation::ALL.into_iter().find(|operation| plain(operation.name()) == plain(name))
    }

    /// The collective whose algorithms run it; none for messages.
    pub(super) fn collective(self) -> Option<Collective> {
        Collective::ALL.into_iter().find(|collective| collective.facts().name == self.name())
    }

    pub(super) fn reduces(self) -> bool {
        self.collective().is_some_and(|collective| collective.facts().reduces)
    }

    pub(super) fn has_root(self) -> bool {
        self.collective().is_some_and(|collective| collective.facts().rooted)
    }

    /// Whether there is something to measure besides latency.
    pub(super) fn has_size(self) -> bool {
        self.collective().is_none_or(|collective| collective.facts().has_data())
    }

    /// Whether it is between two ranks, so that one alone is too few.
    pub(super) fn needs_two(self) -> bool {
        matches!(self, Operation::Sendrecv | Operation::Pingpong | Operation::Put)
    }

    /// How c10d defines the operation.
    pub(super) fn natural_form(self) -> Form {
        match self {
            Operation::Allreduce | Operation::Reduce | Operation::Broadcast => Form::InPlace,
            _ => Form::OutOfPlace,
        }
    }

    /// The forms that can be measured, in the order of nccl-tests' columns.
    pub(super) fn forms(self) -> &'static [Form] {
        match self {
            Operation::Allreduce => &[Form::OutOfPlace, Form::InPlace],
            Operation::Reduce | Operation::Broadcast => &[Form::InPlace],
            _ => &[Form::OutOfPlace],
        }
    }

    /// What `bytes` on the command line means: the size of the larger buffer in whole elements, as
    /// in nccl-tests. Less than an element is none; anything else is at least one for each block.
    pub(super) fn extent(self, bytes: u64, element_bytes: u64, ranks: u32) -> Extent {
        if !self.has_size() {
            return Extent { count: 0, whole_elements: 0, whole_bytes: 0 };
        }
        let elements = bytes / element_bytes;
        let is_divided = self.collective().is_some_and(|it| it.facts().is_divided());
        let blocks = if is_divided { u64::from(ranks) } else { 1 };
        let count = if elements == 0 { 0 } else { (elements / blocks).max(1) };
        let whole_elements = count * blocks;
        Extent { count, whole_elements, whole_bytes: whole_elements * element_bytes }
    }

    /// Bus bandwidth by algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it: what every
    /// link carries if the algorithm is the best there is.
    pub(super) fn bus_factor(self, ranks: u32) -> f64 {
        // A message goes over its link once.
        self.collective().map_or(1.0, |collective| collective.facts().bus_factor(ranks))
    }

    /// How many of the operation one iteration is.
    pub(super) fn per_iteration(self) -> f64 {
        if self == Operation::Pingpong { 2.0 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_read_in_any_spelling() {
        for operation in Operation::ALL {
            assert_eq!(Operation::from_name(operation.name()), Some(operation));
        }
        assert_eq!(Operation::from_name("all_reduce"), Some(Operation::Allreduce));
        assert_eq!(Operation::from_name("Reduce-Scatter"), Some(Operation::ReduceScatter));
        assert_eq!(Operation::from_name("all"), None);
    }

    #[test]
    fn what_is_measured_is_a_collective_or_a_message() {
        for operation in Operation::ALL {
            let is_message = operation.needs_two();
            assert_eq!(operation.collective().is_none(), is_message, "{}", operation.name());
        }
    }

    #[test]
    fn sizes_are_those_of_the_larger_buffer() {
        let extent = Operation::Allgather.extent(1 << 20, 4, 4);
        assert_eq!((extent.count, extent.whole_elements), (1 << 16, 1 << 18));
        // Too small for one element a rank: as little as there can be.
        let extent = Operation::Alltoall.extent(8, 8, 3);
        assert_eq!((extent.count, extent.whole_elements, extent.whole_bytes), (1, 3, 24));
        assert_eq!(Operation::Allreduce.extent(6, 4, 3).whole_bytes, 4);
        for operation in Operation::ALL {
            assert_eq!(operation.extent(0, 4, 3).whole_elements, 0);
            assert_eq!(operation.extent(3, 4, 3).whole_elements, 0);
        }
        assert_eq!(Operation::Barrier.extent(6, 4, 3).whole_bytes, 0);
    }

    #[test]
    fn bandwidth_is_reckoned_as_nccl_tests_does() {
        assert_eq!(Operation::Allreduce.bus_factor(2), 1.0);
        assert_eq!(Operation::Allreduce.bus_factor(4), 1.5);
        assert_eq!(Operation::ReduceScatter.bus_factor(4), 0.75);
        assert_eq!(Operation::Broadcast.bus_factor(4), 1.0);
    }
}
