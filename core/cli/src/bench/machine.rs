//! What the results say about the machine and the hour. Knows nothing of what was measured.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::processor::{self, Processor};
use super::system_files::{field, read};

/// The machine that ran the benchmark. Empty or 0 where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// Model name of the processor, which virtual machines shorten.
    pub(super) cpu: String,
    /// What tells it from others of the same name.
    pub(super) processor: Processor,
    /// Cores that this process may use.
    pub(super) cores: usize,
    pub(super) memory_bytes: u64,
    /// Name and version of the system.
    pub(super) system: String,
}

impl Machine {
    /// This machine.
    pub(super) fn here() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let release = read("/proc/sys/kernel/osrelease");
        Machine {
            cpu: processor::model_name(),
            processor: Processor::here(cores),
            cores,
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()))
                .map_or(0, |kib| kib << 10),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        }
    }
}

/// Processes that wanted to run, averaged over the last minute; none where the system does not say.
pub(super) fn load() -> Option<f64> {
    read("/proc/loadavg").split(' ').next()?.parse().ok()
}

/// This hour, as ISO 8601 in UTC.
pub(super) fn now() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    iso_8601(since_1970.as_secs())
}

fn iso_8601(unix_seconds: u64) -> String {
    let (days, of_day) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The Gregorian date of a day, counted from 1970-01-01. Years are taken to begin in March, so
/// that a leap day is the last of its year (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_those_of_the_calendar() {
        assert_eq!(iso_8601(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso_8601(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(iso_8601(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(Machine::here().cores >= 1);
    }
}
