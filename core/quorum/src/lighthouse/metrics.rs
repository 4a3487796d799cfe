//! What a lighthouse sees, as OpenMetrics.

use std::fmt::Write as _;

use super::state::Counts;
use super::status::{Replica, Status};

/// The page.
pub(super) fn text(status: &Status, counts: &Counts) -> String {
    let mut text = String::new();
    let whole = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
    let alive = status.replicas.iter().filter(|it| it.is_alive).count();
    let waiting = status.replicas.iter().filter(|it| it.waits_seconds.is_some()).count();
    #[allow(clippy::cast_precision_loss)]
    let id = status.quorum_id as f64;
    let gauges = [
        ("quorum_id", "Id of the last quorum", id),
        ("participants", "Members of the last quorum", whole(status.participants.len())),
        ("replicas_alive", "Replicas with a recent heartbeat", whole(alive)),
        ("replicas_waiting", "Replicas that ask for a quorum", whole(waiting)),
    ];
    for (name, help, value) in gauges {
        family(&mut text, name, "gauge", help);
        let _ = writeln!(text, "polyrank_lighthouse_{name} {value}");
    }
    let counters = [
        ("quorums", "Quorums made", counts.quorums),
        ("quorum_requests", "Calls that asked for a quorum", counts.quorum_requests),
        ("quorum_requests_given_up", "Those that ended without one", counts.given_up),
        ("heartbeats", "Heartbeats received", counts.heartbeats),
        ("refused", "Requests refused for what they said, or for want of room", counts.refused),
        ("denied", "Requests without the token, or from another site", counts.denied),
        ("kills", "Replicas told to end", counts.kills),
    ];
    for (name, help, value) in counters {
        family(&mut text, name, "counter", help);
        let _ = writeln!(text, "polyrank_lighthouse_{name}_total {value}");
    }
    type Value = fn(&Replica) -> Option<f64>;
    #[allow(clippy::cast_precision_loss)]
    let of_replicas: [(&str, &str, Value); 4] = [
        ("replica_heartbeat_age_seconds", "Since the last heartbeat", |it| {
            it.heartbeat_age_seconds
        }),
        ("replica_up", "Whether the replica is alive", |it| Some(f64::from(u8::from(it.is_alive)))),
        ("replica_waiting_seconds", "How long it has asked for a quorum", |it| it.waits_seconds),
        ("replica_step", "Steps that it has committed", |it| it.step.map(|step| step as f64)),
    ];
    for (name, help, value) in of_replicas {
        family(&mut text, name, "gauge", help);
        for replica in &status.replicas {
            if let Some(value) = value(replica) {
                let id = escaped(&replica.replica_id);
                let _ = writeln!(text, "polyrank_lighthouse_{name}{{replica_id=\"{id}\"}} {value}");
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let name = format!("polyrank_lighthouse_{name}");
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(text, "# UNIT {name} seconds");
    }
    let _ = writeln!(text, "# HELP {name} {help}.");
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
