//! Why files cannot be read or do not belong together. Knows no format.

use std::fmt;

/// Why files cannot be read, or do not belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// The file is longer than what is read.
    TooLarge {
        /// The file.
        file: String,
        /// How long it is.
        bytes: u64,
        /// What is read at most.
        limit: u64,
    },
    /// The file is not JSON: cut off, or something else.
    NotJson {
        /// The file.
        file: String,
        /// What the parser says, with line and column.
        why: String,
    },
    /// A field is missing, or is not what the layout says.
    Field {
        /// The file.
        file: String,
        /// Where in the file: `ranks[2].entries[17].collective_seq_id`.
        place: String,
        /// What was expected, and what came.
        why: String,
    },
    /// The files are those of two jobs.
    TwoRuns {
        /// A file, and its run.
        one: (String, String),
        /// Another, and its run.
        other: (String, String),
    },
    /// There is no dump in what was given.
    Nothing,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::TooLarge { file, bytes, limit } => {
                write!(f, "{file} has {bytes} bytes; at most {limit} are read")
            }
            TraceError::NotJson { file, why } => {
                write!(f, "{file} is not a whole JSON file: {why}")
            }
            TraceError::Field { file, place, why } if place.is_empty() => {
                write!(f, "{file}: {why}")
            }
            TraceError::Field { file, place, why } => write!(f, "{file}: {place}: {why}"),
            TraceError::TwoRuns { one, other } => write!(
                f,
                "{} is of the run {}, and {} of the run {}; give the files of one run",
                one.0, one.1, other.0, other.1
            ),
            TraceError::Nothing => f.write_str("no file holds what a flight recorder wrote"),
        }
    }
}

impl std::error::Error for TraceError {}
