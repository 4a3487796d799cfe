//! Why there is no quorum yet, in words.

use std::fmt;
use std::time::Duration;

use crate::words::names;

/// Why there is no quorum yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No replica that is alive asks for one.
    NobodyAsks {
        /// Who asks and is silent, so that it does not count.
        silent: Vec<String>,
    },
    /// One asks for `shrink_only`, and nobody is there who was in the last quorum.
    NobodyFromTheLast {
        /// How many ask.
        joined: usize,
    },
    /// Fewer ask than there must be.
    TooFew {
        /// How many ask.
        joined: usize,
        /// How many must.
        needed: usize,
        /// Who is alive and does not ask.
        absent: Vec<String>,
        /// Who asks and is silent, so that it does not count.
        silent: Vec<String>,
    },
    /// Half of those alive, or fewer, ask: the others might make a quorum of their own.
    NoMajority {
        /// How many ask.
        joined: usize,
        /// How many are alive.
        alive: usize,
        /// Who is alive and does not ask.
        absent: Vec<String>,
    },
    /// Some are alive and do not ask yet.
    Stragglers {
        /// Who they are.
        absent: Vec<String>,
        /// How long they are waited for.
        left: Duration,
    },
}

impl Reason {
    /// A word for programs: the same in every release.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::NobodyAsks { .. } => "nobody_asks",
            Reason::NobodyFromTheLast { .. } => "shrink_only",
            Reason::TooFew { .. } => "min_replicas",
            Reason::NoMajority { .. } => "split_brain",
            Reason::Stragglers { .. } => "join_timeout",
        }
    }

    /// As displayed, without what changes from moment to moment: for a log that says news only.
    #[must_use]
    pub fn lasting(&self) -> String {
        match self {
            Reason::Stragglers { absent, .. } => format!("waits for {}", alive(absent)),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NobodyAsks { silent } if silent.is_empty() => {
                formatter.write_str("nobody asks for a quorum")
            }
            Reason::NobodyAsks { silent } => write!(formatter, "waits for {}", unheard(silent)),
            Reason::NobodyFromTheLast { joined } => write!(
                formatter,
                "waits for a replica of the last quorum: {} joined, none of which was in it, and \
                 shrink_only lets in no others",
                have(*joined)
            ),
            Reason::TooFew { joined, needed, absent, silent } => {
                let more = replicas(needed - joined, "more ");
                write!(
                    formatter,
                    "waits for {more}: {joined} of at least {needed} {} joined",
                    verb(*joined)
                )?;
                if !absent.is_empty() {
                    write!(formatter, "; {}", alive(absent))?;
                }
                if silent.is_empty() { Ok(()) } else { write!(formatter, "; {}", unheard(silent)) }
            }
            Reason::NoMajority { joined, alive: all, absent } => write!(
                formatter,
                "waits for more than half of the {all} replicas that are alive: {} joined; {}",
                have(*joined),
                alive(absent)
            ),
            Reason::Stragglers { absent, left } => {
                let seconds = left.as_secs_f64();
                write!(formatter, "waits up to {seconds:.1} s for {}", alive(absent))
            }
        }
    }
}

/// "a and b, which are alive and have not joined".
fn alive(absent: &[String]) -> String {
    let verbs = if absent.len() == 1 { ("is", "has") } else { ("are", "have") };
    format!("{}, which {} alive and {} not joined", names(absent), verbs.0, verbs.1)
}

/// "c, which asks and sends no heartbeats".
fn unheard(silent: &[String]) -> String {
    let verbs = if silent.len() == 1 { ("asks", "sends") } else { ("ask", "send") };
    format!("{}, which {} and {} no heartbeats", names(silent), verbs.0, verbs.1)
}

fn replicas(count: usize, which: &str) -> String {
    format!("{count} {which}replica{}", if count == 1 { "" } else { "s" })
}

fn verb(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// "2 have".
fn have(count: usize) -> String {
    format!("{count} {}", verb(count))
}
