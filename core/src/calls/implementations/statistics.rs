//! Statistics of groups, as languages get them. Knows nothing of how they are counted.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::generated::error::Result;
use crate::recorder::{OperationStats, PeerStats, ProcessGroupStats};

/// What was counted in a group.
pub(super) fn answer(stats: ProcessGroupStats) -> Result<Answer> {
    let ProcessGroupStats {
        group,
        rank,
        global_rank,
        size,
        seconds,
        operations,
        peers,
        slowest_peer,
        ..
    } = stats;
    let operations = operations.into_iter().map(operation).collect::<Result<Vec<_>>>()?;
    let peers = peers.into_iter().map(peer).collect::<Result<Vec<_>>>()?;
    Ok(Answer::Record(vec![
        ("group", group.into_answer()?),
        ("rank", rank.into_answer()?),
        ("global_rank", global_rank.into_answer()?),
        ("size", size.into_answer()?),
        ("seconds", Answer::Float(seconds)),
        ("operations", operations.into_answer()?),
        ("peers", peers.into_answer()?),
        ("slowest_peer", slowest_peer.into_answer()?),
    ]))
}

fn operation(operation: OperationStats) -> Result<Answer> {
    let number = |number: u64| Answer::Int(i64::try_from(number).unwrap_or(i64::MAX));
    Ok(Answer::Record(vec![
        ("name", operation.name.into_answer()?),
        ("comm_name", operation.comm_name.into_answer()?),
        ("count", number(operation.count)),
        ("failed", number(operation.failed)),
        ("in_flight", number(operation.in_flight)),
        ("bytes", number(operation.bytes)),
        ("p50_seconds", Answer::Float(operation.p50_seconds)),
        ("p99_seconds", Answer::Float(operation.p99_seconds)),
        ("max_seconds", Answer::Float(operation.max_seconds)),
        ("total_seconds", Answer::Float(operation.total_seconds)),
        ("algorithm_bandwidth", Answer::Float(operation.algorithm_bandwidth)),
    ]))
}

fn peer(peer: PeerStats) -> Result<Answer> {
    Ok(Answer::Record(vec![
        ("rank", peer.rank.into_answer()?),
        ("global_rank", peer.global_rank.into_answer()?),
        ("waited_seconds", Answer::Float(peer.waited_seconds)),
    ]))
}
