//! What one rank recorded, after it was checked: plain data. Knows no JSON and no other rank.

/// What one rank's flight recorder held when it was written.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The file that it came from.
    pub file: String,
    /// Its rank in the job.
    pub rank: u32,
    /// How many ranks the job has.
    pub world_size: u32,
    /// The host on which it ran.
    pub hostname: Option<String>,
    /// Its process.
    pub pid: Option<u64>,
    /// Which run of the job this was.
    pub run_id: Option<String>,
    /// Why it was written.
    pub reason: Option<String>,
    /// When it was written, on the clock that all dumps share as far as it is known.
    pub dumped_ns: i64,
    /// Whether the file says how its clock differs from that of who gathered.
    pub has_clock_offset: bool,
    /// Where in its program the rank stood: `train.py:88 in step`.
    pub call_site: Option<String>,
    /// Where a debugger held the rank: `train.py:17`.
    pub breakpoint: Option<String>,
    /// The groups that the rank is a member of.
    pub groups: Vec<Group>,
    /// The operations, in the order in which they were issued.
    pub entries: Vec<Entry>,
    /// Where it waits for the others of a group that is not made yet, or that meets in a call.
    pub rendezvous: Vec<Rendezvous>,
}

/// A rendezvous at which a rank waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendezvous {
    /// What it is: `group 'default_pg'`, `new_group of ranks 0, 1`, or
    /// `monitored_barrier of group tp`.
    pub subject: String,
    /// What was called, where a group is made out of another, or meets.
    pub call: Option<String>,
    /// Whether a group is made there, and not that the ranks of one meet.
    pub makes_group: bool,
    /// The name of that group.
    pub group: String,
    /// What its user calls it.
    pub title: String,
    /// The job's ranks that are its members.
    pub ranks: Vec<u32>,
    /// The first of those that had not come when the rank last looked.
    pub missing: Vec<u32>,
    /// Since when it waits.
    pub since_ns: i64,
    /// Where it was called, the innermost frame first.
    pub frames: Vec<Frame>,
}

impl Rendezvous {
    /// What a rank is in that waits there.
    #[must_use]
    pub fn what(&self) -> String {
        match self.call {
            Some(_) => self.subject.clone(),
            None => format!("the rendezvous of {}", self.subject),
        }
    }
}

/// A process group, as one of its members knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its number within the rank.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What its user says it is.
    pub description: String,
    /// What its user calls it.
    pub title: String,
    /// The job's ranks that are its members, in the order of their ranks in the group.
    pub ranks: Vec<u32>,
    /// How often its members were replaced.
    pub epoch: u64,
    /// The number of the last collective that this member issued.
    pub last_enqueued: Option<u64>,
    /// Why the group failed.
    pub failure: Option<String>,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was issued.
    Scheduled,
    /// It runs.
    Started,
    /// It has ended.
    Completed,
}

impl State {
    /// Its name in the layout.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Scheduled => "scheduled",
            State::Started => "started",
            State::Completed => "completed",
        }
    }
}

/// A message's other end, a rank of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// To this rank.
    SendTo(u32),
    /// From this rank, or from any.
    ReceiveFrom(Option<u32>),
}

/// One operation of one rank.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place among all that the rank has issued.
    pub record_id: u64,
    /// Its group, by its place in [`Dump::groups`].
    pub group: usize,
    /// The number of the collective in its group.
    pub sequence: u64,
    /// The number of the message in its group.
    pub message_sequence: u64,
    /// The kind of operation: `all_reduce`, `send`.
    pub operation: String,
    /// The method that was called, or the kind of operation.
    pub name: String,
    /// The user's name for it.
    pub label: Option<String>,
    /// The rank of the group that is its root.
    pub root: Option<u32>,
    /// How values are reduced.
    pub reduce_op: Option<String>,
    /// The tag of a message.
    pub tag: Option<i64>,
    /// Shapes of what it reads.
    pub input_sizes: Vec<Vec<u64>>,
    /// Shapes of what it writes.
    pub output_sizes: Vec<Vec<u64>>,
    /// Element types of what it reads.
    pub input_dtypes: Vec<String>,
    /// Element types of what it writes.
    pub output_dtypes: Vec<String>,
    /// How much data it is about.
    pub bytes: Option<u64>,
    /// When it was issued, started and ended.
    pub created_ns: i64,
    /// When it was found to have started.
    pub started_ns: Option<i64>,
    /// When it was found to have ended.
    pub completed_ns: Option<i64>,
    /// How far it has come.
    pub state: State,
    /// The error with which it ended.
    pub failed: Option<String>,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// The other end, if it is a message.
    pub message: Option<Message>,
    /// Whether all ranks of the group call it, in one order: neither a message nor an access to a
    /// window.
    pub is_collective: bool,
    /// Whether its rank waits for it, rather than for something else, or nothing; if that is not
    /// told, it does.
    pub is_awaited: bool,
    /// The job's ranks whose data it waits for.
    pub waits_for: Vec<u32>,
    /// Where it was called, the innermost frame first.
    pub frames: Vec<Frame>,
}

/// A place in the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its file.
    pub filename: String,
    /// The line.
    pub line: u64,
}

impl Entry {
    /// Whether it ended as it should.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Completed && self.failed.is_none()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.state != State::Completed && self.failed.is_none()
    }

    /// When it ended, or when the recorder was written if it had not.
    #[must_use]
    pub fn end_ns(&self, dump: &Dump) -> i64 {
        let end = match self.completed_ns {
            Some(completed) => completed,
            None if self.is_done() => self.created_ns,
            None => dump.dumped_ns,
        };
        end.max(self.created_ns)
    }
}
