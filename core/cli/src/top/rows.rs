//! Ranks as rows of text, and as JSON. Knows no terminal.

use serde_json::{Value, json};

use super::job::{Answer, GroupRows, Row};

/// The columns.
pub(super) const HEADER: [&str; 8] =
    ["rank", "host", "pid", "operation", "for", "ops/s", "MB/s", "waits for"];
/// Those whose text stands at the right.
const RIGHT: [bool; 8] = [true, false, true, false, true, true, true, false];

/// The cells of a rank; whether it has answered.
pub(super) fn cells(row: &Row) -> ([String; 8], bool) {
    let rank = row.rank.to_string();
    let Some(answer) = &row.answer else {
        let why = "no answer: stopped, gone, or cut off from the store".to_owned();
        let none = || "-".to_owned();
        return ([rank, none(), none(), why, none(), none(), none(), none()], false);
    };
    let Answer { report, operations_per_second, bytes_per_second, slowest_peer } = answer;
    let (operation, since) = match &report.operation {
        Some((title, group, since_ms)) => (format!("{title} of {group}"), duration(*since_ms)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let waits = slowest_peer.map_or_else(
        || "-".to_owned(),
        |(peer, share)| format!("rank {peer} ({:.0} %)", share * 100.0),
    );
    let cells = [
        rank,
        report.host.clone(),
        report.pid.to_string(),
        operation,
        since,
        format!("{operations_per_second:.1}"),
        format!("{:.1}", bytes_per_second / 1e6),
        waits,
    ];
    (cells, true)
}

/// The plain table.
pub(super) fn text(groups: &[GroupRows]) -> String {
    let mut text = String::new();
    for group in groups {
        let rows: Vec<[String; 8]> = group.rows.iter().map(|row| cells(row).0).collect();
        let answered = group.rows.iter().filter(|row| row.answer.is_some()).count();
        let all = rows.len();
        text.push_str(&format!("{}: {all} ranks, {answered} have answered\n", group.name));
        let header = HEADER.map(str::to_owned);
        let lines: Vec<&[String; 8]> = std::iter::once(&header).chain(&rows).collect();
        for line in &lines {
            let mut words = Vec::new();
            for (column, cell) in line.iter().enumerate() {
                let width = lines.iter().map(|line| line[column].chars().count()).max();
                let width = width.unwrap_or(0);
                words.push(match RIGHT[column] {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                });
            }
            text.push_str(words.join("  ").trim_end());
            text.push('\n');
        }
    }
    text
}

/// The same as data.
pub(super) fn json(groups: &[GroupRows]) -> Value {
    let group = |group: &GroupRows| {
        let ranks: Vec<Value> = group.rows.iter().map(rank).collect();
        json!({ "name": group.name, "ranks": ranks })
    };
    json!({ "groups": groups.iter().map(group).collect::<Vec<_>>() })
}

fn rank(row: &Row) -> Value {
    let Some(answer) = &row.answer else {
        return json!({ "rank": row.rank, "answered": false });
    };
    let Answer { report, operations_per_second, bytes_per_second, slowest_peer } = answer;
    let operation = report.operation.as_ref().map(|(title, group, since_ms)| {
        json!({ "name": title, "group": group, "seconds": *since_ms as f64 / 1e3 })
    });
    json!({
        "rank": row.rank,
        "answered": true,
        "host": report.host,
        "pid": report.pid,
        "operation": operation,
        "operations_per_second": operations_per_second,
        "bytes_per_second": bytes_per_second,
        "slowest_peer": slowest_peer.map(|(peer, _)| peer),
        "waited_share": slowest_peer.map(|(_, share)| share),
        "groups": report.groups,
    })
}

fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        _ => format!("{} min", milliseconds / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use polyrank::recorder::report::RankReport;

    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_rank_and_says_who_has_not_answered() {
        let report = RankReport {
            rank: 0,
            host: "a".to_owned(),
            pid: 12,
            operation: Some(("allreduce #7".to_owned(), "dp".to_owned(), 1500)),
            groups: Vec::new(),
        };
        let answer = Answer {
            report,
            operations_per_second: 2.5,
            bytes_per_second: 3e6,
            slowest_peer: Some((1, 0.75)),
        };
        let rows = vec![Row { rank: 0, answer: Some(answer) }, Row { rank: 1, answer: None }];
        let groups = [GroupRows { name: "default_pg".to_owned(), rows }];
        let text = text(&groups);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
        assert_eq!(lines[0], ["default_pg: 2 ranks, 1 have answered"]);
        let words = |line: usize| {
            lines[line].iter().copied().filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(words(1), HEADER);
        let expected =
            ["0", "a", "12", "allreduce #7 of dp", "1.5 s", "2.5", "3.0", "rank 1 (75 %)"];
        assert_eq!(words(2), expected);
        let why = "no answer: stopped, gone, or cut off from the store";
        assert_eq!(words(3), ["1", "-", "-", why, "-", "-", "-", "-"]);
        let json = json(&groups);
        let ranks = &json["groups"][0]["ranks"];
        assert_eq!(ranks[0]["operation"]["seconds"], 1.5);
        assert_eq!((&ranks[0]["slowest_peer"], &ranks[1]["answered"]), (&1.into(), &false.into()));
    }
}
