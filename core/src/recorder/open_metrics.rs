//! Statistics as OpenMetrics text, which Prometheus and others read. Knows nothing of where it
//! goes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::statistics::{OperationStats, PUBLISHED_BITS, ProcessGroupStats};

/// What the text is, for who serves it over HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The statistics of groups of any ranks as OpenMetrics text, from its first line to `# EOF`.
/// `up` says of ranks whether they are known to run; of none, nothing is said.
pub fn open_metrics(groups: &[ProcessGroupStats], up: &[(u32, bool)]) -> String {
    let mut text = String::new();
    let operations = by_labels(groups);
    let mut family = |name, kind, unit, help, samples: Vec<Sample>| {
        add_family(&mut text, Family { name, kind, unit, help }, &samples);
    };
    let each = |suffix: &'static str, value: fn(&OperationStats) -> f64| {
        let sample = |(labels, it): (&String, &OperationStats)| (suffix, labels.clone(), value(it));
        operations.iter().map(sample).collect::<Vec<_>>()
    };
    let help = "Whether the rank has told its statistics lately.";
    let samples = up
        .iter()
        .map(|(rank, is_up)| ("", format!("rank=\"{rank}\""), f64::from(u8::from(*is_up))));
    family("polyrank_up", "gauge", "", help, samples.collect());
    let help = "Operations that have ended, well or not.";
    family("polyrank_operations", "counter", "", help, each("_total", |it| it.count as f64));
    let help = "Operations that have failed.";
    let failed = each("_total", |it| it.failed as f64);
    family("polyrank_operations_failed", "counter", "", help, failed);
    let help = "Operations that were called and have not ended.";
    let open = each("", |it| it.in_flight as f64);
    family("polyrank_operations_in_flight", "gauge", "", help, open);
    let help = "Bytes of operations that have ended well, of each what the rank reads or writes.";
    let bytes = each("_total", |it| it.bytes as f64);
    family("polyrank_operation_bytes", "counter", "bytes", help, bytes);
    let help = "How long operations took; of many that are done at once, one in 64 is timed.";
    let times = operations.iter().flat_map(|(labels, it)| histogram(labels, it)).collect();
    family("polyrank_operation_duration_seconds", "histogram", "seconds", help, times);
    let help = "How long operations of the rank have waited for the peer.";
    family("polyrank_peer_wait_seconds", "counter", "seconds", help, waits(groups));
    text.push_str("# EOF\n");
    text
}

/// What follows the name of the family, the labels, and the value.
type Sample = (&'static str, String, f64);

struct Family {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
}

fn add_family(text: &mut String, family: Family, samples: &[Sample]) {
    let Family { name, kind, unit, help } = family;
    // A string takes all that is written to it.
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for (suffix, labels, value) in samples {
        let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}");
    }
}

/// Operations by their labels, each once: groups of one name count together.
fn by_labels(groups: &[ProcessGroupStats]) -> BTreeMap<String, OperationStats> {
    let mut all = BTreeMap::<String, OperationStats>::new();
    for group in groups {
        for operation in &group.operations {
            let mut labels =
                format!("{},operation=\"{}\"", of_group(group), escaped(&operation.name));
            if let Some(name) = &operation.comm_name {
                labels.push_str(&format!(",comm_name=\"{}\"", escaped(name)));
            }
            let known = all.entry(labels).or_default();
            known.count += operation.count;
            known.failed += operation.failed;
            known.in_flight += operation.in_flight;
            known.bytes += operation.bytes;
            known.timed += operation.timed;
            known.total_seconds += operation.total_seconds;
            known.below.resize(PUBLISHED_BITS.len(), 0);
            known.below.iter_mut().zip(&operation.below).for_each(|(all, own)| *all += own);
        }
    }
    all
}

fn histogram(labels: &str, operation: &OperationStats) -> Vec<Sample> {
    let bucket = |(bits, below): (&u32, &u64)| {
        let bound = (1u64 << bits) as f64 / 1e9;
        ("_bucket", format!("{labels},le=\"{bound:?}\""), *below as f64)
    };
    let mut samples: Vec<Sample> =
        PUBLISHED_BITS.iter().zip(&operation.below).map(bucket).collect();
    samples.push(("_bucket", format!("{labels},le=\"+Inf\""), operation.timed as f64));
    samples.push(("_count", labels.to_owned(), operation.timed as f64));
    samples.push(("_sum", labels.to_owned(), operation.total_seconds));
    samples
}

fn waits(groups: &[ProcessGroupStats]) -> Vec<Sample> {
    let mut all = BTreeMap::<String, f64>::new();
    for group in groups {
        for peer in &group.peers {
            let labels = format!("{},peer=\"{}\"", of_group(group), peer.global_rank);
            *all.entry(labels).or_default() += peer.waited_seconds;
        }
    }
    all.into_iter().map(|(labels, waited)| ("_total", labels, waited)).collect()
}

fn of_group(group: &ProcessGroupStats) -> String {
    format!("rank=\"{}\",group=\"{}\"", group.global_rank, escaped(&group.group))
}

/// As the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::PeerStats;

    #[test]
    fn a_text_has_each_family_once_and_ends_as_the_standard_says() {
        let operation = OperationStats {
            name: "allreduce".to_owned(),
            count: 3,
            bytes: 24,
            timed: 2,
            total_seconds: 0.5,
            below: vec![1; PUBLISHED_BITS.len()],
            ..OperationStats::default()
        };
        let comm_name = Some("layer \"1\"".to_owned());
        let named = OperationStats { comm_name, ..operation.clone() };
        let peer = PeerStats { rank: 0, global_rank: 4, waited_seconds: 0.25 };
        let group = ProcessGroupStats {
            group: "a \"b\\\n".to_owned(),
            global_rank: 7,
            operations: vec![operation, named],
            peers: vec![peer],
            ..ProcessGroupStats::default()
        };
        let text = open_metrics(&[group.clone(), group], &[(7, true), (8, false)]);
        let labels = r#"rank="7",group="a \"b\\\n""#;
        let bucket = |le: &str, below: u32| {
            let name = "polyrank_operation_duration_seconds_bucket";
            format!("{name}{{{labels},operation=\"allreduce\",le=\"{le}\"}} {below}")
        };
        let expected = [
            "polyrank_up{rank=\"8\"} 0".to_owned(),
            format!("polyrank_operations_total{{{labels},operation=\"allreduce\"}} 6"),
            format!(
                "polyrank_operations_total{{{labels},operation=\"allreduce\",\
                 comm_name=\"layer \\\"1\\\"\"}} 6"
            ),
            format!("polyrank_operation_bytes_total{{{labels},operation=\"allreduce\"}} 48"),
            bucket("2.56e-7", 2),
            bucket("+Inf", 4),
            format!(
                "polyrank_operation_duration_seconds_sum{{{labels},operation=\"allreduce\"}} 1"
            ),
            format!("polyrank_peer_wait_seconds_total{{{labels},peer=\"4\"}} 0.5"),
            "# EOF".to_owned(),
        ];
        let lines: Vec<&str> = text.lines().collect();
        for line in expected {
            assert!(lines.contains(&line.as_str()), "{line} is not in\n{text}");
        }
        let kinds = lines.iter().filter(|line| line.starts_with("# TYPE"));
        assert_eq!((kinds.count(), lines.last()), (7, Some(&"# EOF")));
    }
}
