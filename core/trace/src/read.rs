//! The layout of flight recorders' files, version 2 (PyTorch's, with additions): text to [`Dump`]s.
//! Nothing in a file is trusted. Knows nothing of what the operations mean to each other.

use serde_json::Value;

use crate::dump::{Dump, Entry, Frame, Group, Message, Rendezvous, State};
use crate::error::TraceError;
use crate::fields::Field;

/// Longer files are not read: what a recorder keeps is far below it.
pub const MAX_FILE_BYTES: u64 = 1 << 29;
/// Jobs with more ranks than these are a mistake of the file.
const MAX_RANKS: u32 = 1 << 20;
/// Frames of a call site that are kept.
const MAX_FRAMES: usize = 32;
/// Tensors of an operation, and their dimensions.
const MAX_SHAPES: usize = 1 << 16;

/// What one file holds: one rank's dump, or those that were gathered from all ranks.
#[derive(Clone, Debug, Default)]
pub struct RecordedFile {
    /// The rank that gathered; none if the rank wrote it for itself.
    pub gathered_by: Option<u32>,
    /// The ranks from which nothing was gathered.
    pub missing: Vec<u32>,
    /// Why not all ranks could be asked.
    pub obstacle: Option<String>,
    /// The ranks' dumps.
    pub dumps: Vec<Dump>,
}

/// Reads one file, whose name is for messages.
///
/// # Errors
/// If the text is not what a flight recorder writes; the error says where.
pub fn read(file: &str, text: &str) -> Result<RecordedFile, TraceError> {
    let bytes = text.len() as u64;
    if bytes > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES;
        return Err(TraceError::TooLarge { file: file.to_owned(), bytes, limit });
    }
    // The parser refuses what is nested too deeply.
    let value: Value = serde_json::from_str(text)
        .map_err(|error| TraceError::NotJson { file: file.to_owned(), why: error.to_string() })?;
    let root = Field::root(file, &value);
    check_version(&root)?;
    let Some(ranks) = root.get("ranks")? else {
        return Ok(RecordedFile { dumps: vec![dump(file, &root)?], ..RecordedFile::default() });
    };
    let mut dumps = Vec::new();
    for field in ranks.items()? {
        dumps.push(dump(file, &field)?);
    }
    let gathered_by = root.get("gathered_by")?.map(|field| field.small()).transpose()?;
    let missing = each(root.get("missing")?, Field::small)?;
    if missing.len() > MAX_RANKS as usize || missing.iter().any(|rank| *rank >= MAX_RANKS) {
        return Err(root.error(format!("\"missing\" names more ranks than {MAX_RANKS}")));
    }
    let obstacle = root.get("obstacle")?.map(|field| field.text()).transpose()?;
    Ok(RecordedFile { gathered_by, missing, obstacle, dumps })
}

fn check_version(root: &Field<'_>) -> Result<(), TraceError> {
    let field = root.need("version")?;
    let version = field.text()?;
    if version.split('.').next() == Some("2") {
        return Ok(());
    }
    Err(field.error(format!("expected version 2 of the layout, as \"2.10\", not \"{version}\"")))
}

fn dump(file: &str, root: &Field<'_>) -> Result<Dump, TraceError> {
    let rank = root.need("rank")?;
    let size = root.need("world_size")?;
    let (rank, world_size) = (rank.small()?, size.small()?);
    if world_size > MAX_RANKS || world_size == 0 {
        return Err(size.error(format!("expected 1 to {MAX_RANKS} ranks, not {world_size}")));
    }
    if rank >= MAX_RANKS {
        return Err(root.error(format!("rank {rank} is not below {MAX_RANKS}")));
    }
    let text = |name| root.get(name)?.map(|field| field.text()).transpose();
    let offset = root.get("clock_offset_ns")?.map(|field| field.signed()).transpose()?;
    let clock = Clock { offset: offset.unwrap_or(0) };
    let groups = groups(root)?;
    // A rank may know of a part of its job alone.
    let known = groups.iter().flat_map(|group| &group.ranks).max().copied().unwrap_or(rank);
    let world_size = world_size.max(known.max(rank) + 1);
    let mut entries = Vec::new();
    for field in root.need("entries")?.items()? {
        entries.push(entry(&field, &groups, clock)?);
    }
    let mut rendezvous = Vec::new();
    // Ranks of earlier versions do not tell.
    for field in root.get("rendezvous")?.map_or(Ok(Vec::new()), |all| all.items())? {
        rendezvous.push(meeting(&field, clock)?);
    }
    let met = rendezvous.iter().flat_map(|it| &it.ranks).max().copied().unwrap_or(0);
    let world_size = world_size.max(met + 1);
    let last = entries.iter().map(|entry| entry.completed_ns.unwrap_or(entry.created_ns)).max();
    let dumped = root.get("dumped_at_ns")?.map(|field| clock.time(&field)).transpose()?;
    Ok(Dump {
        file: file.to_owned(),
        rank,
        world_size,
        hostname: text("hostname")?,
        pid: root.get("pid")?.map(|field| field.number()).transpose()?,
        run_id: text("run_id")?,
        reason: text("reason")?,
        call_site: text("call_site")?,
        breakpoint: text("breakpoint")?,
        dumped_ns: dumped.or(last).unwrap_or(0),
        has_clock_offset: offset.is_some(),
        groups,
        entries,
        rendezvous,
    })
}

fn meeting(root: &Field<'_>, clock: Clock) -> Result<Rendezvous, TraceError> {
    let text = |name| root.get(name)?.map(|field| field.text()).transpose();
    let missing = each(root.get("missing")?, Field::small)?;
    let group = root.need("group")?.text()?;
    Ok(Rendezvous {
        subject: root.need("subject")?.text()?,
        call: text("call")?,
        // Tabs, which meet nowhere else, and ranks of earlier versions do not tell.
        makes_group: root.get("makes_group")?.map_or(Ok(true), |field| field.flag())?,
        title: text("title")?.unwrap_or_else(|| group.clone()),
        group,
        ranks: members(&root.need("ranks")?)?,
        missing,
        since_ns: clock.time(&root.need("since_ns")?)?,
        frames: frames(root)?,
    })
}

/// How a rank's times become those of who gathered.
#[derive(Clone, Copy)]
struct Clock {
    offset: i64,
}

impl Clock {
    fn time(self, field: &Field<'_>) -> Result<i64, TraceError> {
        let time = field.signed()?.checked_add(self.offset).filter(|time| *time >= 0);
        time.ok_or_else(|| field.expected("a time since 1970 in nanoseconds"))
    }
}

fn groups(root: &Field<'_>) -> Result<Vec<Group>, TraceError> {
    let status = root.get("pg_status")?;
    let mut found = Vec::new();
    for (id, field) in root.need("pg_config")?.fields()? {
        let text = |name| field.get(name)?.map(|field| field.text()).transpose();
        let name = text("name")?.unwrap_or_else(|| id.to_owned());
        let status = status.as_ref().map(|all| all.get(id)).transpose()?.flatten();
        let of_status = |name| status.as_ref().map(|field| field.get(name)).transpose();
        let last = of_status("last_enqueued_collective")?.flatten();
        // PyTorch's has -1 for none.
        let last = last.map(|field| field.signed()).transpose()?;
        let failure = of_status("failure")?.flatten().map(|field| field.text()).transpose()?;
        let description = text("desc")?.unwrap_or_else(|| name.clone());
        // PyTorch's files do not say it, whose word for no description this is.
        let is_described = !matches!(description.as_str(), "" | "undefined");
        let untitled = || if is_described { &description } else { &name }.clone();
        found.push(Group {
            id: id.to_owned(),
            title: text("title")?.unwrap_or_else(untitled),
            description,
            name,
            ranks: members(&field.need("ranks")?)?,
            epoch: field.get("epoch")?.map(|field| field.number()).transpose()?.unwrap_or(0),
            last_enqueued: last.and_then(|last| u64::try_from(last).ok()),
            failure,
        });
    }
    Ok(found)
}

/// `"[0, 1, 2]"`, or the same as an array.
fn members(field: &Field<'_>) -> Result<Vec<u32>, TraceError> {
    let ranks: Vec<u32> = if field.is_text() {
        // Long lists are cut in texts that are to be shown, so it is read as JSON at once.
        field.parsed("a list of ranks, as \"[0, 1]\"")?
    } else {
        each(Some(field.clone()), Field::small)?
    };
    if let Some(rank) = ranks.iter().find(|rank| **rank >= MAX_RANKS) {
        return Err(field.error(format!("rank {rank} is not below {MAX_RANKS}")));
    }
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(field.error(format!("rank {} is named twice", pair[0])));
    }
    Ok(ranks)
}

fn entry(root: &Field<'_>, groups: &[Group], clock: Clock) -> Result<Entry, TraceError> {
    let number = |name| root.get(name)?.map(|field| field.number()).transpose();
    let text = |name| root.get(name)?.map(|field| field.text()).transpose();
    let time = |name| root.get(name)?.map(|field| clock.time(&field)).transpose();
    let group = group_of(root, groups)?;
    let members = &groups[group].ranks;
    let profiling = root.need("profiling_name")?;
    let words = profiling.text()?;
    let words = words.rsplit_once(':').map_or(words.as_str(), |(_, words)| words);
    let (operation, ends) = words.split_once(' ').unwrap_or((words, ""));
    let state = root.need("state")?;
    let state = match state.text()?.as_str() {
        "scheduled" => State::Scheduled,
        "started" => State::Started,
        "completed" => State::Completed,
        _ => return Err(state.expected("\"scheduled\", \"started\" or \"completed\"")),
    };
    let mut waits_for = Vec::new();
    if let Some(field) = root.get("waits_for")? {
        for field in field.items()? {
            waits_for.push(member(&field, members, field.small()?)?);
        }
    }
    let (message, kind) = (message(&profiling, operation, ends, members)?, text("kind")?);
    Ok(Entry {
        record_id: root.need("record_id")?.number()?,
        group,
        sequence: number("collective_seq_id")?.unwrap_or(0),
        message_sequence: number("p2p_seq_id")?.unwrap_or(0),
        name: text("name")?.unwrap_or_else(|| operation.to_owned()),
        is_collective: message.is_none() && kind.as_deref() != Some("other"),
        message,
        operation: operation.to_owned(),
        label: text("comm_name")?,
        root: root.get("root")?.map(|field| field.small()).transpose()?,
        reduce_op: text("reduce_op")?,
        tag: root.get("tag")?.map(|field| field.signed()).transpose()?,
        input_sizes: shapes(root.get("input_sizes")?)?,
        output_sizes: shapes(root.get("output_sizes")?)?,
        input_dtypes: each(root.get("input_dtypes")?, Field::text)?,
        output_dtypes: each(root.get("output_dtypes")?, Field::text)?,
        bytes: number("bytes")?,
        created_ns: clock.time(&root.need("time_created_ns")?)?,
        started_ns: time("time_discovered_started_ns")?,
        completed_ns: time("time_discovered_completed_ns")?,
        state,
        failed: text("failed")?,
        timeout_ms: number("timeout_ms")?,
        is_awaited: root.get("awaited")?.map_or(Ok(true), |field| field.flag())?,
        waits_for,
        frames: frames(root)?,
    })
}

/// The place of the entry's group: by number and name, or by one of them, as PyTorch has it.
fn group_of(root: &Field<'_>, groups: &[Group]) -> Result<usize, TraceError> {
    let id = root.get("pg_id")?;
    let id = match &id {
        Some(field) if field.is_text() => field.text()?,
        Some(field) => field.number()?.to_string(),
        None => String::new(),
    };
    let name = match root.get("process_group")? {
        Some(field) => field.items()?.first().map(Field::text).transpose()?,
        None => None,
    };
    let find = |is_it: &dyn Fn(&Group) -> bool| groups.iter().position(is_it);
    let named = |group: &Group| name.as_ref().is_none_or(|name| *name == group.name);
    find(&|group| group.id == id && named(group))
        .or_else(|| find(&|group| name.as_ref() == Some(&group.name)))
        .or_else(|| find(&|group| name.as_ref() == Some(&group.id)))
        .ok_or_else(|| {
            let name = name.as_deref().unwrap_or("");
            root.error(format!("its group \"{name}\" (pg_id \"{id}\") is not in pg_config"))
        })
}

/// `1->2` of a send, `3<-0` and `3<-?` of a receive: ranks of the group.
fn message(
    field: &Field<'_>,
    operation: &str,
    ends: &str,
    members: &[u32],
) -> Result<Option<Message>, TraceError> {
    let rank = |text: &str| {
        let rank = text.trim().parse::<u32>();
        let rank = rank.map_err(|_| field.expected("ranks, as \"send 1->2\" or \"recv 3<-0\""))?;
        member(field, members, rank)
    };
    let (arrow, is_send) = match operation {
        "send" => ("->", true),
        "recv" => ("<-", false),
        _ => return Ok(None),
    };
    let peer = ends.split_once(arrow).map(|(_, peer)| peer.trim());
    let peer = peer.ok_or_else(|| field.expected("ranks, as \"send 1->2\" or \"recv 3<-0\""))?;
    Ok(Some(match peer {
        "?" if !is_send => Message::ReceiveFrom(None),
        peer if is_send => Message::SendTo(rank(peer)?),
        peer => Message::ReceiveFrom(Some(rank(peer)?)),
    }))
}

/// The job's rank that is this rank of a group.
fn member(field: &Field<'_>, members: &[u32], rank: u32) -> Result<u32, TraceError> {
    members.get(rank as usize).copied().ok_or_else(|| {
        field.error(format!("rank {rank} is not in the group, which has {}", members.len()))
    })
}

fn shapes(field: Option<Field<'_>>) -> Result<Vec<Vec<u64>>, TraceError> {
    each(field, |shape| each(Some(shape.clone()), Field::number))
}

fn frames(root: &Field<'_>) -> Result<Vec<Frame>, TraceError> {
    let Some(field) = root.get("frames")? else { return Ok(Vec::new()) };
    let mut frames = Vec::new();
    for field in field.items()?.into_iter().take(MAX_FRAMES) {
        frames.push(Frame {
            name: field.need("name")?.text()?,
            filename: field.need("filename")?.text()?,
            line: field.need("line")?.number()?,
        });
    }
    Ok(frames)
}

/// The values of an array, none if it is missing.
fn each<'a, T>(
    field: Option<Field<'a>>,
    value: impl Fn(&Field<'a>) -> Result<T, TraceError>,
) -> Result<Vec<T>, TraceError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let items = field.items()?;
    if items.len() > MAX_SHAPES.max(MAX_RANKS as usize) {
        return Err(field.error(format!("has {} values", items.len())));
    }
    items.iter().map(value).collect()
}
