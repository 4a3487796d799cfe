//! Messages between two ranks, matched: which receive has no send, which send no receive. Knows no
//! collective.

use std::collections::{BTreeMap, BTreeSet};

use crate::dump::{Dump, Entry, Message};
use crate::job::Job;

/// A message that has one end only.
#[derive(Clone, Debug)]
pub(crate) struct LonelyMessage<'a> {
    /// Who issued its one end.
    pub(crate) dump: &'a Dump,
    pub(crate) entry: &'a Entry,
    pub(crate) group: usize,
    /// The rank whose end is missing; none for a receive from any.
    pub(crate) peer: Option<u32>,
    /// How many sends and receives there were of this pair and tag, where all are recorded.
    pub(crate) counted: Option<(usize, usize)>,
}

/// Group, sender, receiver, tag: messages of one are received in the order in which they were sent.
type Channel = (usize, u32, u32, i64);

#[derive(Default)]
struct Ends<'a> {
    sends: Vec<(&'a Dump, &'a Entry)>,
    receives: Vec<(&'a Dump, &'a Entry)>,
}

/// The messages that wait for their other end.
pub(crate) fn lonely(job: &Job) -> Vec<LonelyMessage<'_>> {
    let tags = Tags::new(job);
    let mut channels: BTreeMap<Channel, Ends<'_>> = BTreeMap::new();
    let mut of_any: Vec<(usize, &Dump, &Entry)> = Vec::new();
    for dump in &job.dumps {
        for entry in dump.entries.iter().filter(|entry| entry.message.is_some()) {
            let group = job.group_of(dump, entry);
            let Some(tag) = tags.of(group, dump, entry) else {
                of_any.push((group, dump, entry));
                continue;
            };
            match entry.message {
                Some(Message::SendTo(to)) => {
                    let channel = channels.entry((group, dump.rank, to, tag)).or_default();
                    channel.sends.push((dump, entry));
                }
                Some(Message::ReceiveFrom(Some(from))) => {
                    let channel = channels.entry((group, from, dump.rank, tag)).or_default();
                    channel.receives.push((dump, entry));
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for ((group, from, to, tag), ends) in &channels {
        let any = |of: &&(usize, &Dump, &Entry)| {
            of.0 == *group && of.1.rank == *to && of.2.tag.is_none_or(|of| of == *tag)
        };
        match_ends(job, (*group, *from, *to), ends, of_any.iter().any(|of| any(&of)), &mut found);
    }
    for (group, dump, entry) in of_any {
        let is_sent = channels.iter().any(|(&(of, _, to, with), ends)| {
            let is_for_it =
                of == group && to == dump.rank && entry.tag.is_none_or(|tag| tag == with);
            is_for_it && ends.sends.iter().any(|(_, send)| !send.is_done())
        });
        if !entry.is_done() && !is_sent {
            found.push(LonelyMessage { dump, entry, group, peer: None, counted: None });
        }
    }
    found
}

/// The ends of one channel that have no other. A receive from any rank may have taken any send.
fn match_ends<'a>(
    job: &Job,
    (group, from, to): (usize, u32, u32),
    ends: &Ends<'a>,
    has_any: bool,
    found: &mut Vec<LonelyMessage<'a>>,
) {
    let is_whole = |rank| job.dump(rank).is_some_and(|dump| has_all(job, dump, group));
    let (sends, receives) = (&ends.sends, &ends.receives);
    let mut add = |(dump, entry): (&'a Dump, &'a Entry), peer, counted| {
        found.push(LonelyMessage { dump, entry, group, peer: Some(peer), counted });
    };
    if is_whole(from) && is_whole(to) && !has_any {
        let counted = Some((sends.len(), receives.len()));
        let unsent = receives.iter().skip(sends.len()).filter(|(_, entry)| !entry.is_done());
        unsent.for_each(|end| add(*end, from, counted));
        // A send may be done before anybody asks for it: then nobody waits for it.
        sends.iter().skip(receives.len()).for_each(|end| add(*end, to, counted));
        return;
    }
    let open = |ends: &[(&'a Dump, &'a Entry)]| -> Vec<(&'a Dump, &'a Entry)> {
        ends.iter().copied().filter(|(_, entry)| !entry.is_done()).collect()
    };
    let (sends, receives) = (open(sends), open(receives));
    receives.iter().skip(sends.len()).for_each(|end| add(*end, from, None));
    if !has_any {
        sends.iter().skip(receives.len()).for_each(|end| add(*end, to, None));
    }
}

/// Whether a recorder has forgotten nothing of a group. It numbers what it records from 0, by group
/// or in all of them.
fn has_all(job: &Job, dump: &Dump, group: usize) -> bool {
    let place = job.groups[group].places.get(&dump.rank);
    let all = || dump.entries.iter();
    let is_whole = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        numbers.into_iter().zip(0..).all(|(number, expected)| number == expected)
    };
    is_whole(all().map(|entry| entry.record_id).collect())
        || is_whole(all().filter(|it| Some(&it.group) == place).map(|it| it.record_id).collect())
}

/// The tags by which messages are told apart. Where a recorder has noted the tags of some messages
/// of two ranks and not of others, they are not used.
pub(crate) struct Tags {
    unknown: BTreeSet<(usize, u32, u32)>,
}

impl Tags {
    pub(crate) fn new(job: &Job) -> Tags {
        let mut unknown = BTreeSet::new();
        for dump in &job.dumps {
            for entry in dump.entries.iter().filter(|entry| entry.tag.is_none()) {
                let pair = ends(dump, entry);
                unknown.extend(pair.map(|(from, to)| (job.group_of(dump, entry), from, to)));
            }
        }
        Tags { unknown }
    }

    /// The tag of a message, 0 where tags are not used; none if its sender is not known.
    pub(crate) fn of(&self, group: usize, dump: &Dump, entry: &Entry) -> Option<i64> {
        let (from, to) = ends(dump, entry)?;
        let is_unknown = self.unknown.contains(&(group, from, to));
        Some(entry.tag.filter(|_| !is_unknown).unwrap_or(0))
    }
}

/// The sender and the receiver of a message; none if it is no message of two known ranks.
fn ends(dump: &Dump, entry: &Entry) -> Option<(u32, u32)> {
    match entry.message? {
        Message::SendTo(to) => Some((dump.rank, to)),
        Message::ReceiveFrom(from) => Some((from?, dump.rank)),
    }
}
