//! What is remembered, as JSON in the layout of PyTorch's flight recorder (version 2.10), with
//! fields of our own beside its. Knows nothing of where that goes.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::meetings::{self, Meeting};
use super::note::{OperationKind, OperationNote, TensorNote};
use super::{GroupFacts, OpenCollective, RecordedOperation};
use crate::call_site::{CallFrame, call_site};
use crate::clock::{Instant, SystemTime, UNIX_EPOCH};
use crate::generated::dtype::DType;
use crate::held_ranks::held_at;
use crate::whole_file::host_name;

/// What takes longer never ends: half a century.
const NEVER: Duration = Duration::from_secs(50 * 365 * 86_400);
/// The version of the layout.
const VERSION: &str = "2.10";

/// The group of which operations are shown.
struct GroupPlace<'a> {
    pg_id: usize,
    group: &'a GroupFacts,
    /// What is known of its collectives that have not ended.
    open: &'a [OpenCollective],
}

/// Times since 1970 of times of this process.
struct WallClock {
    now: Instant,
    now_ns: u64,
}

/// As [`dump`], with where in the program this rank stands, as far as that can be told.
pub(super) fn dump_with_call_site(rank: u32, reason: &str) -> Value {
    let mut dump = dump(rank, reason);
    dump["call_site"] = json!(call_site());
    dump
}

/// What the rank of this process with this global number has called lately in all its groups, for
/// `reason`.
pub(super) fn dump(rank: u32, reason: &str) -> Value {
    let clock = WallClock::now();
    let (mut config, mut status, mut entries) = (Map::new(), Map::new(), Vec::new());
    let mut world_size = 1;
    let groups = super::all().into_iter().map(|recorder| (recorder.group(), recorder));
    let own = groups.filter(|(group, _)| group.global_rank() == rank);
    for (pg_id, (group, recorder)) in own.enumerate() {
        world_size = world_size.max(group.members.len());
        let operations = recorder.operations();
        config.insert(pg_id.to_string(), config_of(&group));
        status.insert(pg_id.to_string(), status_of(&operations));
        let open = recorder.waits().collectives;
        let place = GroupPlace { pg_id, group: &group, open: &open };
        entries.extend(operations.iter().map(|operation| place.entry(operation, &clock)));
    }
    let meetings = meetings::of_rank(rank);
    world_size = meetings.iter().map(|it| it.members.len()).fold(world_size, usize::max);
    // As in PyTorch's, the order is that of the calls in all groups.
    entries.sort_by_key(|entry| entry["time_created_ns"].as_u64());
    json!({
        "version": VERSION,
        "polyrank": env!("CARGO_PKG_VERSION"),
        "rank": rank,
        "world_size": world_size,
        "hostname": host_name(),
        "pid": crate::clock::process_id(),
        "run_id": crate::env::run_id(),
        "restart_count": crate::env::restart_count(),
        "reason": reason,
        "breakpoint": held_at(rank),
        "dumped_at_ns": clock.now_ns,
        "pg_config": config,
        "pg_status": status,
        "entries": entries,
        "rendezvous": meetings.iter().map(|it| meeting(it, &clock)).collect::<Vec<_>>(),
    })
}

fn config_of(group: &GroupFacts) -> Value {
    json!({
        "name": group.name,
        "desc": description(group),
        "title": group.title(),
        "ranks": format!("{:?}", group.members),
        "backend": group.backend,
        "epoch": group.epoch,
    })
}

/// A rendezvous at which the rank waits.
fn meeting(meeting: &Meeting, clock: &WallClock) -> Value {
    let (missing, others) = &meeting.missing;
    json!({
        "subject": meeting.subject(),
        "call": meeting.function(),
        "makes_group": meeting.makes_group(),
        "group": meeting.group_name(),
        "title": meeting.title(),
        "ranks": meeting.members,
        "missing": missing,
        "others_missing": others,
        "since_ns": clock.nanoseconds(meeting.began),
        "frames": meeting.frames.iter().map(frame).collect::<Vec<_>>(),
    })
}

/// PyTorch's description of a group that nobody described is `undefined`, but that of the default
/// group.
fn description(group: &GroupFacts) -> &str {
    match group.description.as_str() {
        "" if group.name == "default_pg" => "default_pg",
        "" => "undefined",
        description => description,
    }
}

fn status_of(operations: &[RecordedOperation]) -> Value {
    let collectives =
        || operations.iter().filter(|it| it.note.kind == OperationKind::Collective).rev();
    let last = collectives().map(|it| it.sequence).max();
    let ended = collectives().filter(|it| it.end.is_some());
    let failed = operations.iter().rev().find_map(|it| it.end.as_ref()?.error.as_deref());
    json!({
        "last_enqueued_collective": last,
        "last_started_collective": last,
        "last_completed_collective": ended.map(|it| it.sequence).max(),
        "failure": failed,
    })
}

impl GroupPlace<'_> {
    fn entry(&self, operation: &RecordedOperation, clock: &WallClock) -> Value {
        let GroupPlace { pg_id, group, .. } = self;
        let RecordedOperation { number, name, comm_name, sequence, note, issued, end, .. } =
            operation;
        let is_message = matches!(note.kind, OperationKind::Send | OperationKind::Receive);
        let ended_ns = end.as_ref().map(|end| clock.nanoseconds(end.at));
        // Of what was done at once, the end is the time of the call.
        let issued_ns = issued.map(|at| clock.nanoseconds(at)).or(ended_ns);
        let duration =
            issued.zip(end.as_ref()).map(|(from, to)| to.at.saturating_duration_since(from));
        let error = end.as_ref().and_then(|end| end.error.as_deref());
        let is_collective = note.kind == OperationKind::Collective;
        let open = self.open.iter().find(|open| open.sequence == *sequence);
        let open = open.filter(|_| is_collective && end.is_none());
        // A message waits for its other end.
        let peer = note.peer.filter(|_| is_message && end.is_none());
        let waits_for = open.map_or_else(|| Vec::from_iter(peer), |open| open.waits_for.clone());
        json!({
            "record_id": number,
            "pg_id": pg_id,
            "process_group": [group.name, description(group)],
            "kind": note.kind.name(),
            "collective_seq_id": if is_collective { *sequence } else { 0 },
            // Backends number sends and receives apart.
            "p2p_seq_id": if is_message { *number } else { 0 },
            "op_id": number,
            "profiling_name": format!("polyrank:{}", profiling_name(name, note, group.rank)),
            "name": name,
            "comm_name": comm_name.as_deref(),
            "root": note.peer.filter(|_| is_collective),
            "peer": note.peer.filter(|_| is_message),
            "tag": note.tag,
            "reduce_op": note.reduce_op,
            "bytes": note.bytes(),
            "input_sizes": sizes(&note.inputs),
            "output_sizes": sizes(&note.outputs),
            "input_dtypes": dtypes(&note.inputs),
            "output_dtypes": dtypes(&note.outputs),
            "time_created_ns": issued_ns,
            "time_discovered_started_ns": issued_ns,
            "time_discovered_completed_ns": ended_ns,
            "duration_ms": duration.map(|took| took.as_secs_f64() * 1e3),
            "state": if end.is_some() { "completed" } else { "started" },
            "failed": error,
            "retired": end.is_some(),
            "is_p2p": is_message,
            "awaited": operation.is_awaited,
            "waits_for": waits_for,
            "timeout_ms": open.and_then(|open| limit_ms(open.limit)),
            "frames": operation.frames.iter().map(frame).collect::<Vec<_>>(),
        })
    }
}

/// A limit, in milliseconds; none for one that never comes, which is kept as a far time.
fn limit_ms(limit: Duration) -> Option<u64> {
    // The start of an operation is noted a moment after its deadline was set.
    (limit < NEVER).then(|| (limit.as_secs_f64() * 1e3).round() as u64)
}

fn frame(frame: &CallFrame) -> Value {
    json!({ "name": frame.name, "filename": frame.filename, "line": frame.line })
}

/// PyTorch's name of an operation: `all_reduce`, `send 0->1`.
fn profiling_name(name: &str, note: &OperationNote, rank: u32) -> String {
    let peer = note.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
    match note.kind {
        OperationKind::Send => format!("send {rank}->{peer}"),
        OperationKind::Receive => format!("recv {rank}<-{peer}"),
        OperationKind::Collective | OperationKind::Other => match name {
            "allreduce" => "all_reduce",
            "allgather" => "all_gather",
            "alltoall" => "all_to_all",
            "alltoall_base" => "all_to_all_single",
            name => name,
        }
        .to_owned(),
    }
}

fn sizes(tensors: &[TensorNote]) -> Vec<&[usize]> {
    tensors.iter().map(|tensor| &*tensor.shape).collect()
}

fn dtypes(tensors: &[TensorNote]) -> Vec<&'static str> {
    tensors.iter().map(|tensor| torch_name(tensor.dtype)).collect()
}

/// What PyTorch's recorder calls a dtype.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "Bool",
        DType::U8 => "Byte",
        DType::I8 => "Char",
        DType::U16 => "UInt16",
        DType::I16 => "Short",
        DType::U32 => "UInt32",
        DType::I32 => "Int",
        DType::U64 => "UInt64",
        DType::I64 => "Long",
        DType::F16 => "Half",
        DType::Bf16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::Complex64 => "ComplexFloat",
        DType::Complex128 => "ComplexDouble",
    }
}

impl WallClock {
    fn now() -> WallClock {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        WallClock { now: Instant::now(), now_ns: u64::try_from(now_ns).unwrap_or(u64::MAX) }
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        let ago = self.now.saturating_duration_since(at).as_nanos();
        let ahead = at.saturating_duration_since(self.now).as_nanos();
        let clamped = |nanoseconds| u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        self.now_ns.saturating_sub(clamped(ago)).saturating_add(clamped(ahead))
    }
}
