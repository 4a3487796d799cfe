//! What a group has called since it was made: how often, how long that took, and for whom this rank
//! has waited. Knows nothing of who asks.
//!
//! All is counted exactly but the times of operations that are done when their call returns: after
//! the first thousand of a group, one in 64 is timed, and stands for 64.

mod counts;
mod histogram;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(super) use counts::{ALL_TIMED, BriefCounts, Counts, TimedCall, counts_of, is_timed};
use counts::{CountedName, MethodCounts};
pub(super) use histogram::PUBLISHED_BITS;

use super::Recorder;

/// What a group has called since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessGroupStats {
    /// The name of the group.
    pub group: String,
    /// This process's rank in the group.
    pub rank: u32,
    /// This process's rank in the group of all.
    pub global_rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// For how long it has been counted, in seconds.
    pub seconds: f64,
    /// What was called, by the name of the method and what the user calls it.
    pub operations: Vec<OperationStats>,
    /// The ranks for which this one has waited, by rank, since they are members.
    pub peers: Vec<PeerStats>,
    /// The rank for which this one has waited longest; none if it has waited for nobody.
    pub slowest_peer: Option<u32>,
}

/// What was counted of a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationStats {
    /// The method: `allreduce`.
    pub name: String,
    /// What [`record_comm`](crate::record_comm) calls the operations: those of other names are
    /// counted apart, as far as there are not hundreds.
    #[serde(default)]
    pub comm_name: Option<String>,
    /// Operations that have ended, well or not.
    pub count: u64,
    /// Those of them that have failed.
    pub failed: u64,
    /// Operations that have not ended.
    pub in_flight: u64,
    /// Bytes of all that have ended well: of each what the rank reads, or writes if that is more.
    pub bytes: u64,
    /// Half of them took no longer, in seconds.
    pub p50_seconds: f64,
    /// 99 of 100 took no longer, in seconds.
    pub p99_seconds: f64,
    /// The longest that was timed, in seconds.
    pub max_seconds: f64,
    /// What all took together, in seconds.
    pub total_seconds: f64,
    /// Bytes per second of the time that they took: what nccl-tests call `algbw`.
    pub algorithm_bandwidth: f64,
    /// How many were timed, where those that are done at once count 64 each.
    #[doc(hidden)]
    pub timed: u64,
    /// How many of them took less than each published bound.
    #[doc(hidden)]
    pub below: Vec<u64>,
}

/// How long this rank has waited for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerStats {
    /// Its rank in the group.
    pub rank: u32,
    /// Its rank in the group of all.
    pub global_rank: u32,
    /// The time, in seconds.
    pub waited_seconds: f64,
}

impl Recorder {
    /// What was counted.
    pub(crate) fn stats(&self) -> ProcessGroupStats {
        let group = self.group();
        let mut counts = self.pending().counts();
        self.brief.add_to(&mut counts);
        let seconds = self.began.elapsed().as_secs_f64();
        let mut waits = self.waits().waited;
        waits.sort_unstable_by_key(|(rank, _)| *rank);
        let slowest_peer = waits.iter().max_by_key(|(_, waited)| *waited).map(|(rank, _)| *rank);
        let peer = |(rank, waited): (u32, std::time::Duration)| PeerStats {
            rank,
            global_rank: group.members.get(rank as usize).copied().unwrap_or(rank),
            waited_seconds: waited.as_secs_f64(),
        };
        ProcessGroupStats {
            rank: group.rank,
            global_rank: group.global_rank(),
            size: group.members.len() as u32,
            seconds,
            operations: counts.into_iter().map(|(name, it)| operation(name, &it)).collect(),
            peers: waits.into_iter().map(peer).collect(),
            slowest_peer,
            group: group.name,
        }
    }
}

fn operation((name, comm_name): CountedName, counts: &MethodCounts) -> OperationStats {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let quantile = |share| counts.times.quantile(share).map_or(0.0, seconds);
    let total_seconds = seconds(counts.times.sum());
    let is_timed = total_seconds > 0.0;
    OperationStats {
        name: name.to_owned(),
        comm_name: comm_name.map(|name| name.as_ref().to_owned()),
        count: counts.ended,
        failed: counts.failed,
        in_flight: counts.open,
        bytes: counts.bytes,
        p50_seconds: quantile(0.5),
        p99_seconds: quantile(0.99),
        max_seconds: seconds(counts.times.max()),
        total_seconds,
        algorithm_bandwidth: match is_timed {
            true => counts.timed_bytes as f64 / total_seconds,
            false => 0.0,
        },
        timed: counts.times.count(),
        below: counts.times.published(),
    }
}
