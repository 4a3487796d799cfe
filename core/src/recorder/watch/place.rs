//! Where a rank stands: what it waits for, and what it called last in each group. Knows no store.

use std::sync::Arc;

use super::milliseconds;
use serde::{Deserialize, Serialize};

use crate::call_site::CallFrame;
use crate::clock::Instant;
use crate::held_ranks::held_at;
use crate::recorder::meetings::{self, Meeting};
use crate::recorder::{GroupFacts, OperationKind, RecordedOperation, Recorder, all};

/// Most operations of a group that are told.
const MAX_OPEN: usize = 8;

/// Where a rank stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The number of the question that is answered.
    pub(super) answers: i64,
    pub(super) groups: Vec<GroupPlace>,
    /// Where in the program it is, if its language can tell: `train.py:88 in step`.
    #[serde(default)]
    pub(super) site: Option<String>,
    /// Where a debugger holds it, if one does.
    #[serde(default)]
    pub(super) held: Option<String>,
    /// The rendezvous at which it waits for others, the first of them, and for how many
    /// milliseconds.
    #[serde(default)]
    pub(super) meeting: Option<(String, u64)>,
}

/// What a rank has called in a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupPlace {
    pub(super) group: String,
    /// What its user calls it, where that is something else.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// What is not done, the oldest first; what is waited for, before all other.
    pub(super) open: Vec<CalledOperation>,
    /// The number of the first collective that is not done.
    pub(super) first_open: Option<u64>,
    /// The last collective that it called.
    pub(super) last: Option<CalledOperation>,
}

/// An operation that a rank has called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CalledOperation {
    /// The method, with the user's name for it.
    pub(super) title: String,
    pub(super) sequence: u64,
    pub(super) is_collective: bool,
    /// Whether the rank waits for it, rather than for something else, or nothing.
    pub(super) is_awaited: bool,
    /// How long ago it was called, in milliseconds.
    pub(super) since_ms: u64,
    /// For a message: the global rank of the other, if it is from or to a certain one.
    pub(super) peer: Option<u32>,
    pub(super) tag: Option<u32>,
    /// Where it was called, if that is noted: `main.rs:50 in train`.
    #[serde(default)]
    pub(super) site: Option<String>,
}

impl Place {
    /// That of the rank of this process with this global number, which is at `site` in its
    /// program, as far as that is known.
    pub(super) fn of(rank: u32, answers: i64, now: Instant, site: Option<String>) -> Place {
        let is_its = |recorder: &Arc<Recorder>| recorder.group().global_rank() == rank;
        let place = |recorder: Arc<Recorder>| {
            let (group, mut open) = (recorder.group(), recorder.open_operations());
            let called = |it: &RecordedOperation| CalledOperation::of(it, &group, now);
            let collectives = open.iter().filter(|it| it.note.kind == OperationKind::Collective);
            let first_open = collectives.map(|it| it.sequence).min();
            open.sort_by_key(|it| !it.is_awaited);
            let last = recorder.last_collective();
            GroupPlace {
                group: group.name.clone(),
                title: Some(group.shown()).filter(|title| *title != group.name),
                first_open,
                open: open.iter().take(MAX_OPEN).map(called).collect(),
                last: last.as_ref().map(called),
            }
        };
        let groups = all().into_iter().filter(is_its).map(place).collect();
        let meetings = meetings::of_rank(rank);
        let meeting = meetings.first();
        let site = site.or_else(|| meeting.and_then(Meeting::site));
        let waited = |it: &Meeting| milliseconds(now.saturating_duration_since(it.began));
        let meeting = meeting.map(|it| (it.what(), waited(it)));
        Place { answers, groups, site, held: held_at(rank), meeting }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Strings and numbers always have a form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What [`Place::encode`] wrote; none if it is something else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Place> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn group(&self, name: &str) -> Option<&GroupPlace> {
        self.groups.iter().find(|place| place.group == name)
    }

    /// What the rank waits for, the oldest first, and in which group.
    pub(super) fn awaited(&self) -> Option<(&GroupPlace, &CalledOperation)> {
        let all = self.groups.iter().flat_map(|place| {
            place.open.iter().filter(|it| it.is_awaited).map(move |it| (place, it))
        });
        all.max_by_key(|(_, operation)| operation.since_ms)
    }
}

impl GroupPlace {
    /// What its user calls it.
    pub(super) fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.group)
    }

    /// Whether the collective of this number was called, and is not done: those between the first
    /// that is not and the last are not all told.
    pub(super) fn has_open(&self, sequence: u64) -> bool {
        let is_it = |it: &CalledOperation| it.is_collective && it.sequence == sequence;
        let last = self.last.as_ref().map_or(0, |last| last.sequence);
        let is_between = self.first_open.is_some_and(|first| (first..=last).contains(&sequence));
        is_between || self.open.iter().any(is_it)
    }
}

impl CalledOperation {
    /// What is told of `operation`.
    pub(super) fn of(
        operation: &RecordedOperation,
        group: &GroupFacts,
        now: Instant,
    ) -> CalledOperation {
        let since = operation.issued.or(operation.end.as_ref().map(|end| end.at));
        let since = since.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        let global = |peer: u32| group.members.get(peer as usize).copied().unwrap_or(peer);
        let is_message =
            matches!(operation.note.kind, OperationKind::Send | OperationKind::Receive);
        CalledOperation {
            title: operation.title(),
            sequence: operation.sequence,
            is_collective: operation.note.kind == OperationKind::Collective,
            is_awaited: operation.is_awaited,
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            peer: operation.note.peer.filter(|_| is_message).map(global),
            tag: operation.note.tag,
            site: operation.frames.first().map(CallFrame::place),
        }
    }

    /// "allreduce #17", or "recv from rank 2 (tag 5)".
    pub(super) fn named(&self) -> String {
        if self.is_collective {
            return format!("{} #{}", self.title, self.sequence);
        }
        let direction = if self.title.starts_with("send") { "to" } else { "from" };
        match (self.peer, self.tag) {
            (Some(peer), Some(tag)) => {
                format!("{} {direction} rank {peer} (tag {tag})", self.title)
            }
            (None, Some(tag)) => format!("{} {direction} any rank (tag {tag})", self.title),
            _ => self.title.clone(),
        }
    }
}
