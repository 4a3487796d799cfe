//! The rendezvous at which ranks of this process wait for others. Knows no store, and nothing of
//! how ranks meet.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::group_title;
use crate::call_site::{CallFrame, call_frames};
use crate::clock::Instant;
use crate::completion::rank_names;
use crate::context;
use crate::debug_level::{DebugLevel, get_debug_level};
use crate::process_mutex::ProcessMutex;

/// Of which call a rendezvous is: of groups that are made out of others, and of calls in which all
/// ranks of a group meet.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct MeetingCall {
    /// What was called: `new_group`.
    pub(crate) function: String,
    /// Whether it makes the group.
    pub(crate) makes_group: bool,
    /// The name of the new group, or of the one that meets.
    pub(crate) group: String,
    /// What its user says it is.
    pub(crate) description: String,
    /// Global ranks of its members, by group rank.
    pub(crate) members: Vec<u32>,
}

/// A rendezvous at which a rank waits.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    call: Option<Arc<MeetingCall>>,
    /// The group, as the store knows it.
    group: String,
    /// This rank, and the members by group rank, as global ranks.
    pub(crate) rank: u32,
    pub(super) members: Vec<u32>,
    pub(super) began: Instant,
    /// Where it was called, the innermost line first, if that is noted.
    pub(super) frames: Arc<[CallFrame]>,
    /// The first of those that had not come when that was last looked for, as global ranks, and how
    /// many more they were.
    pub(super) missing: (Vec<u32>, u32),
    /// The number of forks before: a child does not wait for what its parent waits for.
    forks: u32,
}

/// Open until it is dropped.
pub(crate) struct OpenMeeting {
    number: u64,
}

struct Open {
    next: u64,
    all: BTreeMap<u64, Meeting>,
}

static OPEN: ProcessMutex<Open> = ProcessMutex::new(Open { next: 0, all: BTreeMap::new() });

thread_local! {
    static CALLS: RefCell<Vec<Arc<MeetingCall>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `future`, in which ranks meet for `call`.
pub(crate) async fn within_call<F: Future>(call: MeetingCall, future: F) -> F::Output {
    context::within_async(&CALLS, Arc::new(call), future).await
}

/// Those of this process, in the order in which they began.
pub(crate) fn all() -> Vec<Meeting> {
    let forks = crate::fork::forks();
    OPEN.lock().all.values().filter(|it| it.forks == forks).cloned().collect()
}

/// Those of the rank of this process with this global number.
pub(super) fn of_rank(rank: u32) -> Vec<Meeting> {
    all().into_iter().filter(|it| it.rank == rank).collect()
}

impl OpenMeeting {
    /// The rendezvous of `group`, at which this thread waits as this of so many ranks from now on.
    pub(crate) fn begin(group: &str, (rank, size): (u32, u32)) -> OpenMeeting {
        let call: Option<Arc<MeetingCall>> = context::innermost(&CALLS);
        let members = call.as_ref().map(|call| call.members.clone());
        let members = members.unwrap_or_else(|| (0..size).collect());
        OpenMeeting::open(call, group, rank, members)
    }

    /// One at which no group is made: the ranks of a group meet in a call of all of them.
    pub(crate) fn of_call(call: MeetingCall, rank: u32) -> OpenMeeting {
        let (group, members) = (call.group.clone(), call.members.clone());
        OpenMeeting::open(Some(Arc::new(call)), &group, rank, members)
    }

    fn open(
        call: Option<Arc<MeetingCall>>,
        group: &str,
        rank: u32,
        members: Vec<u32>,
    ) -> OpenMeeting {
        // A level that cannot be read is an error where groups are made.
        let is_noted = get_debug_level() == Ok(DebugLevel::Detail);
        let meeting = Meeting {
            call,
            group: group.to_owned(),
            rank: members.get(rank as usize).copied().unwrap_or(rank),
            members,
            began: Instant::now(),
            // Before the lock: it is the program that tells.
            frames: if is_noted { call_frames() } else { Arc::default() },
            missing: (Vec::new(), 0),
            forks: crate::fork::forks(),
        };
        let mut open = OPEN.lock();
        let number = open.next;
        open.next += 1;
        open.all.insert(number, meeting);
        OpenMeeting { number }
    }

    /// These ranks of the group, and so many more, had not come just now.
    pub(crate) fn note_missing(&self, ranks: &[u32], others: u32) {
        if let Some(meeting) = OPEN.lock().all.get_mut(&self.number) {
            let global = |rank: &u32| meeting.members.get(*rank as usize).copied();
            meeting.missing = (ranks.iter().filter_map(global).collect(), others);
        }
    }

    /// What is known of it; none where nobody waits for it: in a forked child.
    pub(crate) fn meeting(&self) -> Option<Meeting> {
        OPEN.lock().all.get(&self.number).cloned()
    }
}

impl Drop for OpenMeeting {
    fn drop(&mut self) {
        let former = OPEN.lock().all.remove(&self.number);
        // Outside the lock: its members may be many.
        drop(former);
    }
}

impl Meeting {
    /// Whether the ranks of a group meet that is not made out of another: nobody looks after them
    /// yet.
    pub(crate) fn is_first(&self) -> bool {
        self.call.is_none()
    }

    /// What was called, if that is known.
    pub(super) fn function(&self) -> Option<&str> {
        self.call.as_ref().map(|call| call.function.as_str())
    }

    /// Whether a group is made there, and not that the ranks of one meet.
    pub(super) fn makes_group(&self) -> bool {
        self.call.as_ref().is_none_or(|call| call.makes_group)
    }

    /// The name of the group that is made, or in which its ranks meet.
    pub(crate) fn group_name(&self) -> &str {
        self.call.as_ref().map_or(&self.group, |call| &call.group)
    }

    /// What the user calls the group that is made, or in which its ranks meet.
    pub(super) fn title(&self) -> &str {
        let call = self.call.as_ref();
        call.map_or(&self.group, |call| group_title(&call.group, &call.description))
    }

    /// "group 'default_pg'", "new_group of ranks 0, 1", "new_group of group tp (ranks 0, 1)",
    /// "monitored_barrier of group tp".
    pub(crate) fn subject(&self) -> String {
        let Some(call) = &self.call else { return format!("group '{}'", self.group) };
        let MeetingCall { function, makes_group, group, members, .. } = &**call;
        let title = self.title();
        if !makes_group {
            return format!("{function} of group {title}");
        }
        let ranks = rank_names(members, 0);
        // What was numbered for want of a name says nothing to its user.
        match title == group && group.contains(":split:") {
            true => format!("{function} of {ranks}"),
            false => format!("{function} of group {title} ({ranks})"),
        }
    }

    /// What this rank is in: "the rendezvous of group 'default_pg'", "new_group of ranks 0, 1".
    pub(crate) fn what(&self) -> String {
        match self.call {
            Some(_) => self.subject(),
            None => format!("the rendezvous of {}", self.subject()),
        }
    }

    /// That ranks had not come when that was last looked for, after so long; or the `obstacle` for
    /// which it is not known who.
    pub(crate) fn late(&self, obstacle: Option<&str>, waited: &str) -> String {
        let who = match obstacle {
            None => format!("{} not come to the rendezvous", self.who_has()),
            Some(why) => format!("ranks have not come, and the store does not say which ({why})"),
        };
        format!("{}: {who}; waited for {waited}", self.subject())
    }

    /// What is said to be over when all have come.
    pub(crate) fn over(&self) -> String {
        if self.is_first() { "the rendezvous".to_owned() } else { self.what() }
    }

    /// "rank 3 of 4 has", "ranks 5, 7 have".
    fn who_has(&self) -> String {
        let (listed, others) = &self.missing;
        let has = if listed.len() + *others as usize == 1 { "has" } else { "have" };
        let of = match self.is_first() {
            true => format!(" of {}", self.members.len()),
            // Those of the call are named.
            false => String::new(),
        };
        format!("{}{of} {has}", rank_names(listed, *others))
    }

    /// Where it was called, if that is noted.
    pub(crate) fn site(&self) -> Option<String> {
        self.frames.first().map(CallFrame::place)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde::Deserialize;

    use super::*;

    /// What pages say in the same words (`bindings-wasm/tests/words.test.mjs`).
    #[derive(Deserialize)]
    struct Cases {
        meetings: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        group: String,
        size: u32,
        call: Option<MeetingCall>,
        missing: Vec<u32>,
        others: u32,
        obstacle: Option<String>,
        waited: String,
        what: String,
        over: String,
        said: String,
    }

    #[test]
    fn who_is_late_and_where_is_said() {
        let cases: Cases = serde_json::from_str(include_str!("watch/words.json")).unwrap();
        for case in cases.meetings {
            let call = case.call.map(Arc::new);
            let members = call.as_ref().map(|call| call.members.clone());
            let meeting = Meeting {
                call,
                group: case.group,
                rank: 0,
                members: members.unwrap_or_else(|| (0..case.size).collect()),
                began: Instant::now(),
                frames: Arc::default(),
                missing: (case.missing, case.others),
                forks: 0,
            };
            assert_eq!(meeting.late(case.obstacle.as_deref(), &case.waited), case.said);
            assert_eq!([meeting.what(), meeting.over()], [case.what, case.over]);
        }
    }
}
