//! How far a state is, told now and then.

use std::time::{Duration, Instant};

use super::assembly::Assembly;
use super::take::Outcome;

/// Between two messages.
const INTERVAL: Duration = Duration::from_secs(2);

/// Since when a state comes, and when that was told last.
pub(super) struct Progress {
    began: Instant,
    told: Instant,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let now = Instant::now();
        Progress { began: now, told: now }
    }

    /// So many bytes have come.
    pub(super) fn note(&mut self, came: u64, assembly: &Assembly, step: i64) {
        if self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        let (bytes, all) = (assembly.bytes(), assembly.length());
        let rate = rate(came, self.began.elapsed());
        tracing::info!("state of step {step}: {} of {}, {rate}", size(bytes), size(all));
    }

    /// All of it is here.
    pub(super) fn end(&self, outcome: &Outcome, length: u64, verified: bool) {
        let took = self.began.elapsed();
        let sources = outcome.pieces.iter().filter(|pieces| **pieces > 0).count();
        let (s, verified) =
            (if sources == 1 { "" } else { "s" }, if verified { ", verified" } else { "" });
        tracing::info!(
            "took {} from {sources} replica{s} in {:.1} s, {}{verified}",
            size(length),
            took.as_secs_f64(),
            rate(length - outcome.kept, took)
        );
    }
}

fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        0.0..1e6 => format!("{bytes} bytes"),
        1e6..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}

fn rate(bytes: u64, took: Duration) -> String {
    let per_second = bytes as f64 / took.as_secs_f64().max(1e-9);
    match per_second {
        0.0..1e9 => format!("{:.0} MB/s", per_second / 1e6),
        _ => format!("{:.1} GB/s", per_second / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_written_as_people_read_them() {
        assert_eq!(
            [size(0), size(999_999), size(1_200_000_000)],
            ["0 bytes", "999999 bytes", "1.2 GB"]
        );
        assert_eq!(rate(1_170_000_000, Duration::from_millis(900)), "1.3 GB/s");
        assert_eq!(rate(5_000_000, Duration::from_millis(100)), "50 MB/s");
    }
}
