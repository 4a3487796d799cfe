//! Statistics of all groups of this process as text. Knows nothing of how they are counted.

use crate::recorder;

/// What [`ProcessGroup::stats`](crate::ProcessGroup::stats) of all groups of this process say, as
/// OpenMetrics text, which Prometheus reads: operations, failures, bytes, durations and waits, by
/// rank, group, operation and peer. `polyrank run --metrics-port` serves the same for all ranks of
/// a host.
#[must_use]
pub fn metrics() -> String {
    recorder::open_metrics(&recorder::stats(), &[])
}
