//! A line of the log. Knows nothing of where it goes.

use std::time::SystemTime;

use tracing::Level;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How serious it is.
    pub level: Level,
    /// Which part of polyrank it is of: `polyrank::transport::tcp`.
    pub target: String,
    /// What is said, with the values that belong to it.
    pub message: String,
    /// When it was said.
    pub at: SystemTime,
    /// This process's rank in the group of which it is said.
    pub rank: Option<u64>,
    /// The name of that group.
    pub group: Option<String>,
}

impl Record {
    /// As one line for people. Warnings are the usual case, and do not say so.
    #[must_use]
    pub fn line(&self) -> String {
        let level = match self.level {
            Level::ERROR | Level::WARN => String::new(),
            level => format!("{} {}: ", level.as_str().to_ascii_lowercase(), self.part()),
        };
        format!("polyrank: {level}{}{}", self.context(), self.message)
    }

    /// As one line for programs: an object of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let mut object = serde_json::json!({
            "timestamp": humantime::format_rfc3339_micros(self.at).to_string(),
            "level": self.level.as_str(),
            "target": self.target,
            "message": self.message,
        });
        if let Some(rank) = self.rank {
            object["rank"] = rank.into();
        }
        if let Some(group) = &self.group {
            object["group"] = group.as_str().into();
        }
        object.to_string()
    }

    /// The part of polyrank, without the name of the package: `transport::tcp`.
    fn part(&self) -> &str {
        self.target.strip_prefix("polyrank::").unwrap_or(&self.target)
    }

    /// Which rank of which group says it, where that is known.
    fn context(&self) -> String {
        match (self.rank, &self.group) {
            (Some(rank), Some(group)) => format!("rank {rank} of group {group}: "),
            (Some(rank), None) => format!("rank {rank}: "),
            (None, Some(group)) => format!("group {group}: "),
            (None, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn programs_read_objects() {
        let info = record(Level::INFO, Some(2), Some("dp")).json();
        let read: serde_json::Value = serde_json::from_str(&info).unwrap();
        let expected = serde_json::json!({
            "timestamp": "1970-01-01T00:00:00.000000Z", "level": "INFO", "rank": 2, "group": "dp",
            "target": "polyrank::transport::tcp", "message": "it is slow",
        });
        assert_eq!(read, expected);
    }

    fn record(level: Level, rank: Option<u64>, group: Option<&str>) -> Record {
        Record {
            level,
            target: "polyrank::transport::tcp".to_owned(),
            message: "it is slow".to_owned(),
            at: SystemTime::UNIX_EPOCH,
            rank,
            group: group.map(str::to_owned),
        }
    }

    #[test]
    fn lines_say_who_speaks_of_what() {
        let warning = record(Level::WARN, None, None);
        assert_eq!(warning.line(), "polyrank: it is slow");
        let info = record(Level::INFO, Some(2), Some("dp"));
        assert_eq!(info.line(), "polyrank: info transport::tcp: rank 2 of group dp: it is slow");
        let debug = record(Level::DEBUG, Some(2), None);
        assert_eq!(debug.line(), "polyrank: debug transport::tcp: rank 2: it is slow");
    }
}
