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
    /// The operation of which it is said, by the method that was called: `allreduce`.
    pub operation: Option<String>,
    /// Its sequence number in the group.
    pub sequence: Option<u64>,
    /// What `record_comm` calls it.
    pub comm_name: Option<String>,
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
        if let Some(operation) = &self.operation {
            object["operation"] = operation.as_str().into();
        }
        if let Some(sequence) = self.sequence {
            object["sequence"] = sequence.into();
        }
        if let Some(comm_name) = &self.comm_name {
            object["comm_name"] = comm_name.as_str().into();
        }
        object.to_string()
    }

    /// The part of polyrank, without the name of the package: `transport::tcp`.
    fn part(&self) -> &str {
        self.target.strip_prefix("polyrank::").unwrap_or(&self.target)
    }

    /// The operation of which it is said, where that is known: `allreduce 'layer 1' #3`.
    #[must_use]
    pub fn operation_title(&self) -> Option<String> {
        let mut title = self.operation.clone()?;
        if let Some(comm_name) = &self.comm_name {
            title.push_str(&format!(" '{comm_name}'"));
        }
        if let Some(sequence) = self.sequence {
            title.push_str(&format!(" #{sequence}"));
        }
        Some(title)
    }

    /// Whether the message begins with the operation, and so says itself what it is about. A
    /// message between two ranks is told by these instead of by its number: "recv from rank 1".
    #[must_use]
    pub fn names_operation(&self) -> bool {
        let Some(title) = self.operation_title() else { return false };
        if let Some(rest) = self.message.strip_prefix(&*title) {
            return !rest.starts_with(char::is_alphanumeric);
        }
        let number = self.sequence.map(|number| format!(" #{number}"));
        let name = number.and_then(|number| title.strip_suffix(&*number));
        let rest = name.and_then(|name| self.message.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(" from ") || rest.starts_with(" to "))
    }

    /// Which rank of which group says it, of which operation, where that is known.
    fn context(&self) -> String {
        if self.names_operation() {
            return String::new();
        }
        let who = match (self.rank, &self.group) {
            (Some(rank), Some(group)) => format!("rank {rank} of group {group}: "),
            (Some(rank), None) => format!("rank {rank}: "),
            (None, Some(group)) => format!("group {group}: "),
            (None, None) => String::new(),
        };
        // A number without an operation is of whatever is said.
        let number = || self.sequence.map(|number| format!("#{number}"));
        let what = self.operation_title().or_else(number);
        who + &what.map(|what| format!("{what}: ")).unwrap_or_default()
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
            operation: None,
            sequence: None,
            comm_name: None,
        }
    }

    #[test]
    fn lines_of_operations_say_which() {
        let mut failed = Record {
            operation: Some("allreduce".to_owned()),
            sequence: Some(3),
            ..record(Level::WARN, Some(2), Some("dp"))
        };
        let expected = "polyrank: rank 2 of group dp: allreduce #3: it is slow";
        assert_eq!(failed.line(), expected);
        failed.comm_name = Some("layer 1".to_owned());
        let expected = "polyrank: rank 2 of group dp: allreduce 'layer 1' #3: it is slow";
        assert_eq!(failed.line(), expected);
        let read: serde_json::Value = serde_json::from_str(&failed.json()).unwrap();
        let told = ["operation", "sequence", "comm_name"].map(|name| &read[name]);
        assert_eq!(told, [&"allreduce".into(), &3.into(), &serde_json::json!("layer 1")]);
        // What a message says itself is not said twice.
        failed.message = "allreduce 'layer 1' #3 of group dp: rank 2 has waited".to_owned();
        assert_eq!(failed.line(), format!("polyrank: {}", failed.message));
    }

    #[test]
    fn lines_say_who_speaks_of_what() {
        let warning = record(Level::WARN, None, None);
        assert_eq!(warning.line(), "polyrank: it is slow");
        let info = record(Level::INFO, Some(2), Some("dp"));
        assert_eq!(info.line(), "polyrank: info transport::tcp: rank 2 of group dp: it is slow");
        let numbered = Record { sequence: Some(3), ..record(Level::WARN, Some(2), Some("dp")) };
        assert_eq!(numbered.line(), "polyrank: rank 2 of group dp: #3: it is slow");
        let debug = record(Level::DEBUG, Some(2), None);
        assert_eq!(debug.line(), "polyrank: debug transport::tcp: rank 2: it is slow");
    }

    #[test]
    fn messages_between_ranks_are_told_once() {
        for (operation, comm_name, text) in [
            ("recv", None, "recv from rank 1 (tag 0) of group dp: rank 2 has waited for 10 s"),
            ("send", Some("halo"), "send 'halo' to rank 1 (tag 0) of group dp waits no longer"),
        ] {
            let stall = Record {
                message: text.to_owned(),
                operation: Some(operation.to_owned()),
                sequence: Some(3),
                comm_name: comm_name.map(str::to_owned),
                ..record(Level::WARN, Some(2), Some("dp"))
            };
            assert_eq!(stall.line(), format!("polyrank: {text}"));
        }
    }
}
