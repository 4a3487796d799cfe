//! What was measured, as it is written to a file and read by programs that draw it. Times are
//! microseconds, bandwidths are 10⁹ bytes a second, as in nccl-tests. Knows nothing of how it was
//! measured.

use std::collections::BTreeMap;

use serde::Serialize;

use super::build::Build;
use super::inputs::Inputs;
use super::machine::Machine;
use super::operation::{Form, Operation};
use super::pattern::Reduction;

/// The layout of the file; it changes when a reader of an older one would be wrong.
pub(super) const FORMAT: u32 = 2;

/// One run of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// "polyrank bench".
    pub(super) made_by: &'static str,
    pub(super) format: u32,
    /// The program that measured; the ranks tell of theirs in `versions`.
    pub(super) build: Build,
    pub(super) title: String,
    /// When it began, ISO 8601.
    pub(super) date: String,
    pub(super) machine: Machine,
    /// Processes that wanted to run besides ours, at the beginning and at the end.
    pub(super) load: [Option<f64>; 2],
    /// Versions of what was measured, by contender.
    pub(super) versions: BTreeMap<String, BTreeMap<String, String>>,
    /// How each contender is started and bound, in words.
    pub(super) settings: BTreeMap<String, Vec<String>>,
    /// The contender that ratios refer to: its time divided by the other's.
    pub(super) reference: String,
    /// What could not be measured, and why.
    pub(super) missing: BTreeMap<String, String>,
    pub(super) cases: Vec<CaseReport>,
    /// How ranks start together where inputs are rewritten.
    pub(super) starts: Vec<StartReport>,
    pub(super) memory: Vec<MemoryReport>,
}

/// How the ranks of one group start a call together, measured without calls.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StartReport {
    pub(super) contender: String,
    pub(super) ranks: u32,
    /// From when the last rank is ready until all start.
    pub(super) lead_us: f64,
    /// What a call that does nothing takes: a part of all times of the group, and not subtracted.
    pub(super) empty_call_us: f64,
}

/// What the ranks of one group held at the end beside the buffers of the cases.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryReport {
    pub(super) contender: String,
    pub(super) ranks: u32,
    /// Of the rank that holds most: what its process has more than before it joined, and is no
    /// file's; of pages that ranks share its part.
    pub(super) most_bytes: u64,
}

/// One operation of one size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaseReport {
    pub(super) operation: Operation,
    pub(super) form: Form,
    /// Whether ranks wrote their inputs between calls.
    pub(super) inputs: Inputs,
    pub(super) ranks: u32,
    /// Of the larger buffer of a rank.
    pub(super) bytes: u64,
    /// Elements of one block.
    pub(super) count: u64,
    pub(super) dtype: String,
    /// Where the operation reduces.
    pub(super) reduction: Option<Reduction>,
    /// Where the operation has one; none: it moves on with every call.
    pub(super) root: Option<u32>,
    pub(super) results: Vec<MeasuredCase>,
}

/// What one contender took for one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MeasuredCase {
    pub(super) contender: String,
    /// Median over the turns of the time of one call: of each turn the median of its calls where
    /// inputs are rewritten, else their mean.
    pub(super) time_us: f64,
    /// The fastest turn.
    pub(super) least_us: f64,
    /// Of each turn, in order.
    pub(super) turns_us: Vec<f64>,
    /// Calls of each turn.
    pub(super) iterations: u64,
    /// Calls from one common start, timed together, each with buffers of its own; none where inputs
    /// are untouched.
    pub(super) burst: Option<u64>,
    /// Of calls that were timed one by one, or of bursts; the slowest rank counts.
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    /// Calls that were timed one by one, or bursts.
    pub(super) single_calls: usize,
    /// User and system time of all ranks for one call; none where ranks wait for the clock.
    pub(super) cpu_us: Option<f64>,
    /// What writing the inputs of one call takes, of the slowest rank, which is no part of the
    /// times; none where they are untouched.
    pub(super) rewrite_us: Option<f64>,
    /// How much later than the common start the last rank began a call, which is a part of the
    /// times; none where calls follow one another.
    pub(super) late_us: Option<f64>,
    /// Bytes by time.
    pub(super) algbw_gbps: f64,
    pub(super) busbw_gbps: f64,
    /// Wrong elements of all ranks in the checked call; none: not checked.
    pub(super) wrong: Option<u64>,
    /// Time of the reference divided by this one's; none for the reference.
    pub(super) ratio: Option<f64>,
}

/// What one contender's turns were, before it is summed up. Seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// Of each turn; where inputs are rewritten, bursts.
    pub(super) iterations: u64,
    /// Iterations of a burst; 0 where there are none.
    pub(super) burst: u64,
    /// Of one iteration, for each turn.
    pub(super) seconds: Vec<f64>,
    pub(super) cpu_seconds: Vec<f64>,
    /// Of iterations that were timed one by one.
    pub(super) single_seconds: Vec<f64>,
    /// Of writing the inputs of one iteration, for each turn; none if they are untouched.
    pub(super) write_seconds: Vec<f64>,
    /// Of the last rank's lateness, for each turn; none if calls follow one another.
    pub(super) late_seconds: Vec<f64>,
    pub(super) wrong: Option<u64>,
}

impl MeasuredCase {
    /// Sums up.
    pub(super) fn new(
        contender: &str,
        operation: Operation,
        bus_factor: f64,
        bytes: u64,
        turns: &Turns,
    ) -> MeasuredCase {
        let scale = 1e6 / operation.per_iteration();
        let median = |values: &[f64], scale: f64| {
            (!values.is_empty()).then(|| quantile(values, 0.5) * scale)
        };
        let turns_us: Vec<f64> = turns.seconds.iter().map(|seconds| seconds * scale).collect();
        let time_us = quantile(&turns_us, 0.5);
        // 10⁹ bytes a second are 10³ bytes a microsecond.
        let algbw_gbps = if time_us > 0.0 { bytes as f64 / time_us * 1e-3 } else { 0.0 };
        MeasuredCase {
            contender: contender.to_owned(),
            time_us,
            least_us: quantile(&turns_us, 0.0),
            turns_us,
            iterations: turns.iterations * turns.burst.max(1),
            burst: (turns.burst > 0).then_some(turns.burst),
            median_us: quantile(&turns.single_seconds, 0.5) * scale,
            p99_us: quantile(&turns.single_seconds, 0.99) * scale,
            single_calls: turns.single_seconds.len(),
            cpu_us: median(&turns.cpu_seconds, scale),
            rewrite_us: median(&turns.write_seconds, 1e6),
            late_us: median(&turns.late_seconds, 1e6),
            algbw_gbps,
            busbw_gbps: algbw_gbps * bus_factor,
            wrong: turns.wrong,
            ratio: None,
        }
    }
}

impl CaseReport {
    /// Fills in the ratios.
    pub(super) fn compare(&mut self, reference: &str) {
        let of_reference = |result: &&MeasuredCase| result.contender == reference;
        let Some(time_us) = self.results.iter().find(of_reference).map(|result| result.time_us)
        else {
            return;
        };
        for result in &mut self.results {
            let is_other = result.contender != reference && result.time_us > 0.0;
            result.ratio = is_other.then(|| time_us / result.time_us);
        }
    }
}

/// The value below which the share `part` of the values lies, between neighbours by proportion; 0
/// of none.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.0), 1.0);
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.99), 99.0);
    }

    #[test]
    fn bandwidth_is_bytes_by_time() {
        let turns = Turns {
            iterations: 10,
            seconds: vec![1e-3, 2e-3, 3e-3],
            cpu_seconds: vec![4e-3],
            single_seconds: vec![2e-3],
            wrong: Some(0),
            ..Turns::default()
        };
        let result = MeasuredCase::new("us", Operation::Allreduce, 1.5, 8_000_000, &turns);
        assert_eq!((result.time_us, result.least_us), (2000.0, 1000.0));
        assert_eq!((result.cpu_us, result.rewrite_us), (Some(4000.0), None));
        assert_eq!((result.algbw_gbps, result.busbw_gbps), (4.0, 6.0));
        // An iteration is two messages.
        let result = MeasuredCase::new("us", Operation::Pingpong, 1.0, 8_000_000, &turns);
        assert_eq!((result.time_us, result.busbw_gbps), (1000.0, 8.0));
    }

    #[test]
    fn ratios_are_the_references_time_by_the_others() {
        let measured = |name: &str, seconds| {
            let turns = Turns { seconds: vec![seconds], ..Turns::default() };
            MeasuredCase::new(name, Operation::Barrier, 0.0, 0, &turns)
        };
        let mut case = CaseReport {
            operation: Operation::Barrier,
            form: Form::OutOfPlace,
            inputs: Inputs::Rewritten,
            ranks: 2,
            bytes: 0,
            count: 0,
            dtype: "f32".to_owned(),
            reduction: None,
            root: None,
            results: vec![measured("us", 1e-6), measured("them", 4e-6)],
        };
        case.compare("us");
        assert_eq!((case.results[0].ratio, case.results[1].ratio), (None, Some(0.25)));
    }
}
