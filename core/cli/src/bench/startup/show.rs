//! The table of `polyrank bench start` on the terminal. Knows nothing of how it was measured.

use super::{Row, StartCondition, files};

/// How a contender is started.
pub(super) fn settings(contender: &str, settings: &[String]) {
    files::show(&format!("# {contender}: {}\n", settings.join("; ")));
}

/// The line above the first row.
pub(super) fn header() {
    let line = format!(
        "#{:>6}  {:<10}{:<22}{:>12}{:>12}{:>11}{:>11}{:>9}{:>9}",
        "ranks", "before", "contender", "member ms", "reduced ms", "least", "most", "MiB", "ratio"
    );
    files::show(&(line + "\n"));
}

/// Rows of one beginning; ratios are of the first to the others.
pub(super) fn rows(rows: &[Row]) {
    for row in rows {
        let before = match row.before {
            StartCondition::AtOnce => "at once",
            StartCondition::StoreUp => "store up",
        };
        let least = row.turns_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let most = row.turns_ms.iter().copied().fold(0.0, f64::max);
        let ratio = match rows.first() {
            Some(first) if first.contender != row.contender => {
                format!("{:.2}x", first.reduced_ms / row.reduced_ms)
            }
            _ => String::new(),
        };
        let mib = row.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        let mib = mib.map_or_else(String::new, |mib| format!("{mib:.1}"));
        let line = format!(
            "{:>7}  {before:<10}{:<22}{:>12.1}{:>12.1}{least:>11.1}{most:>11.1}{mib:>9}{ratio:>9}",
            row.ranks, row.contender, row.member_ms, row.reduced_ms
        );
        files::show(&(line + "\n"));
    }
}
