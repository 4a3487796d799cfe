//! What the benchmark and its ranks say to one another: one JSON object a line, over a connection
//! that every rank opens to the benchmark. The same for every library and language. Knows nothing
//! of sockets.
//!
//! ```text
//!  rank                                benchmark
//!   │  {"is":"hello","rank":…,"token":…}   │
//!   │─────────────────────────────────────▶│
//!   │      {"do":"join"}                   │   where start-up is measured; answered by "joined"
//!   │◀─────────────────────────────────────│   in place of "ready"
//!   │  {"is":"ready","versions":{…}}       │   it is a member of its group
//!   │─────────────────────────────────────▶│
//!   │      {"do":"prepare",…}              │   for each case: buffers
//!   │◀─────────────────────────────────────│
//!   │  {"is":"prepared"}                   │
//!   │─────────────────────────────────────▶│
//!   │      {"do":"check"}                  │   one call whose result is known
//!   │◀─────────────────────────────────────│
//!   │  {"is":"checked","wrong":0}          │
//!   │─────────────────────────────────────▶│
//!   │      {"do":"run","iterations":…}     │   for each turn
//!   │◀─────────────────────────────────────│
//!   │  {"is":"ran","seconds":…,…}          │
//!   │─────────────────────────────────────▶│
//!   │      {"do":"bursts",…}               │   the same with inputs that are rewritten, each burst
//!   │◀─────────────────────────────────────│   of calls from a common start; before it, for each
//!   │  {"is":"bursts","burst_ns":[…],…}    │   group, {"do":"empty",…}: starts without calls
//!   │─────────────────────────────────────▶│
//!   │      {"do":"memory"}                 │   at last
//!   │◀─────────────────────────────────────│
//!   │  {"is":"memory","bytes":…}           │
//!   │─────────────────────────────────────▶│
//!   │      end of the connection           │   it leaves its group and ends
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operation::{Form, Operation};
use super::pattern::Reduction;

/// A line of a rank is refused beyond this: more than any answer needs.
pub(super) const MAX_LINE_BYTES: u64 = 1 << 20;

/// Calls that a rank times one by one for one answer, at most.
pub(super) const MAX_SINGLE_CALLS: u64 = 4096;

/// What a number of calls took.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunTimes {
    /// Seconds of the clock.
    pub(super) seconds: f64,
    /// Seconds of CPU time.
    pub(super) cpu_seconds: f64,
}

/// What bursts of calls took whose inputs were written before; of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BurstTimes {
    /// From the common start of each burst to its end here, nanoseconds.
    pub(super) burst_ns: Vec<u64>,
    /// How much later than that this rank began each burst.
    pub(super) late_ns: Vec<u64>,
    /// What writing the inputs took, all bursts together; no part of the above.
    pub(super) write_ns: u64,
    /// Wrong elements after the last burst.
    pub(super) wrong: u64,
}

/// One case, as a rank needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) operation: Operation,
    pub(super) form: Form,
    /// Elements of one block: of the tensor, or of what one rank contributes or gets.
    pub(super) count: u64,
    /// Name of the element type: `f32`.
    pub(super) dtype: String,
    pub(super) reduction: Reduction,
    /// None: the root moves on by one rank with every call.
    pub(super) root: Option<u32>,
    /// How often the buffers are made: the calls of a burst have each their own.
    pub(super) copies: u64,
}

/// What a rank is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Command {
    /// Join the group and run one allreduce. The library is loaded already.
    Join,
    /// Make the buffers of a case. No other rank is needed for this.
    Prepare(Case),
    /// Carry it out once with known contents.
    Check,
    /// Run it this many times, timed together.
    Run { iterations: u64 },
    /// Run it this many times, each timed.
    Each { iterations: u64 },
    /// Write the inputs of a burst and run it, this many times, each from a common start.
    Bursts { iterations: u64, lead_ns: u64 },
    /// Start together this many times without a call: what the measure itself takes.
    Empty { iterations: u64, lead_ns: u64 },
    /// Let the buffers go, and say what memory there is beside them.
    Memory,
}

/// What a rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Answer {
    Hello {
        rank: u32,
        token: String,
    },
    /// The rank is a member of its group.
    Ready {
        versions: BTreeMap<String, String>,
    },
    /// When the rank was a member of its group, and when its first allreduce was over: seconds of
    /// the system's monotonic clock, which all processes of a host share.
    Joined {
        member_s: f64,
        reduced_s: f64,
        versions: BTreeMap<String, String>,
    },
    Prepared,
    /// So many elements were wrong.
    Checked {
        wrong: u64,
    },
    Ran {
        seconds: f64,
        /// User and system time of the process.
        cpu_seconds: f64,
    },
    Each {
        seconds: Vec<f64>,
    },
    Bursts(BurstTimes),
    Empty(BurstTimes),
    /// What the process has more than before it joined, the pages that it shares with others
    /// divided by their number; none where the system does not say.
    Memory {
        bytes: Option<u64>,
    },
    /// The library or the language cannot do this; the rank continues.
    Unsupported {
        why: String,
    },
    /// The rank ends.
    Failed {
        why: String,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What the scripts of the other languages rely on, written by hand.
    #[test]
    fn lines_are_what_the_scripts_read_and_write() {
        let case = Case {
            operation: Operation::ReduceScatter,
            form: Form::OutOfPlace,
            count: 256,
            dtype: "f32".to_owned(),
            reduction: Reduction::Sum,
            root: None,
            copies: 1,
        };
        let line = serde_json::to_string(&Command::Prepare(case)).unwrap();
        let expected = concat!(
            r#"{"do":"prepare","operation":"reduce_scatter","form":"out_of_place","count":256,"#,
            r#""dtype":"f32","reduction":"sum","root":null,"copies":1}"#
        );
        assert_eq!(line, expected);
        let line = serde_json::to_string(&Command::Each { iterations: 9 }).unwrap();
        assert_eq!(line, r#"{"do":"each","iterations":9}"#);
        let line = serde_json::to_string(&Command::Bursts { iterations: 9, lead_ns: 800 });
        assert_eq!(line.unwrap(), r#"{"do":"bursts","iterations":9,"lead_ns":800}"#);
        let line = r#"{"is":"empty","burst_ns":[7],"late_ns":[5],"write_ns":0,"wrong":0}"#;
        let times = BurstTimes { burst_ns: vec![7], late_ns: vec![5], ..Default::default() };
        assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), Answer::Empty(times));
        let ran: Answer =
            serde_json::from_str(r#"{"is":"ran","seconds":0.5,"cpu_seconds":1}"#).unwrap();
        assert_eq!(ran, Answer::Ran { seconds: 0.5, cpu_seconds: 1.0 });
        assert!(serde_json::from_str::<Answer>(r#"{"is":"checked","wrong":-1}"#).is_err());
    }
}
