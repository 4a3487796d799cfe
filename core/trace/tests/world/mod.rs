//! A world of ranks that are imagined: each has a list of calls, and waits in each until all
//! members have come to it. What they would have recorded is the tests' input. Knows nothing of
//! what reads it.

#![allow(dead_code, reason = "each suite uses some of it")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(crate) const START_NS: i64 = 1_700_000_000_000_000_000;
pub(crate) const MS: i64 = 1_000_000;

/// One call of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) group: usize,
    /// The method, and what the recorder calls the operation.
    pub(crate) name: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) size: u64,
    pub(crate) dtype: &'static str,
    pub(crate) reduce_op: Option<&'static str>,
    pub(crate) root: Option<u32>,
    pub(crate) tag: Option<i64>,
    /// Sender and receiver, ranks of the group.
    pub(crate) message: Option<(u32, u32)>,
    pub(crate) from_any: bool,
    pub(crate) waits: bool,
    /// What the rank does before it.
    pub(crate) before_ns: i64,
    pub(crate) line: u64,
}

pub(crate) fn collective(group: usize, name: &'static str, line: u64) -> Call {
    let operation = match name {
        "allreduce" => "all_reduce",
        "allgather" => "all_gather",
        "alltoall_base" => "all_to_all_single",
        name => name,
    };
    let is_reduction = name == "allreduce" || name == "reduce";
    Call {
        group,
        name,
        operation,
        size: if name == "barrier" { 0 } else { 1024 },
        dtype: "Float",
        reduce_op: is_reduction.then_some("SUM"),
        root: (name == "broadcast" || name == "reduce").then_some(0),
        tag: None,
        message: None,
        from_any: false,
        waits: true,
        before_ns: MS,
        line,
    }
}

pub(crate) fn message(group: usize, from: u32, to: u32, is_send: bool) -> Call {
    let (name, operation) = if is_send { ("send", "send") } else { ("recv", "recv") };
    Call {
        operation,
        tag: Some(0),
        message: Some((from, to)),
        reduce_op: None,
        ..collective(group, name, 70)
    }
}

/// A step of a usual training loop.
pub(crate) fn step() -> Vec<Call> {
    vec![
        collective(0, "allreduce", 40),
        collective(0, "barrier", 41),
        collective(0, "broadcast", 42),
    ]
}

pub(crate) struct World {
    pub(crate) groups: Vec<(&'static str, Vec<u32>)>,
    pub(crate) calls: Vec<Vec<Call>>,
    /// How long all wait until their files are written.
    pub(crate) waited_ns: i64,
}

struct Recorded {
    call: Call,
    number: u64,
    created: i64,
    completed: Option<i64>,
}

impl World {
    /// As many ranks in one group, each with the same calls.
    pub(crate) fn new(size: u32, calls: &[Call]) -> World {
        World {
            groups: vec![("default_pg", (0..size).collect())],
            calls: (0..size).map(|_| calls.to_vec()).collect(),
            waited_ns: 12_000 * MS,
        }
    }

    /// The dumps of all ranks.
    pub(crate) fn dumps(&self) -> Vec<Value> {
        let mut recorded: Vec<Vec<Recorded>> = self.calls.iter().map(|_| Vec::new()).collect();
        let mut clocks = vec![START_NS; self.calls.len()];
        loop {
            let issued = self.issue(&mut recorded, &mut clocks);
            let ended = self.complete(&mut recorded);
            if !issued && !ended {
                break;
            }
        }
        let times = recorded.iter().flatten().map(|it| it.completed.unwrap_or(it.created));
        let end = times.max().unwrap_or(START_NS) + self.waited_ns;
        let ranks = recorded.iter().enumerate();
        ranks.map(|(rank, recorded)| self.dump(rank as u32, recorded, end)).collect()
    }

    /// One file of what was gathered from all ranks but some.
    pub(crate) fn gathered(&self, missing: &[u32]) -> Value {
        let dumps = self.dumps();
        let is_there = |dump: &Value| !missing.contains(&(dump["rank"].as_u64().unwrap() as u32));
        let dumps: Vec<Value> = dumps.into_iter().filter(is_there).collect();
        json!({
            "version": "2.10", "polyrank": "0.1.0", "gathered_by": 0, "missing": missing,
            "ranks": dumps,
        })
    }

    fn issue(&self, recorded: &mut [Vec<Recorded>], clocks: &mut [i64]) -> bool {
        let mut any = false;
        for (rank, calls) in self.calls.iter().enumerate() {
            let mine = &mut recorded[rank];
            while let Some(call) = calls.get(mine.len()) {
                let last = mine.last();
                match last.map(|it| (it.call.waits, it.completed)) {
                    Some((true, None)) => break,
                    Some((true, Some(completed))) => clocks[rank] = clocks[rank].max(completed),
                    _ => {}
                }
                let before = mine.iter().filter(|it| {
                    it.call.group == call.group
                        && it.call.message.is_some() == call.message.is_some()
                });
                let number = before.count() as u64;
                clocks[rank] += call.before_ns;
                let created = clocks[rank];
                mine.push(Recorded { call: call.clone(), number, created, completed: None });
                any = true;
            }
        }
        any
    }

    fn complete(&self, recorded: &mut [Vec<Recorded>]) -> bool {
        let mut ended: Vec<(usize, usize, i64)> = Vec::new();
        let mut collectives: BTreeMap<(usize, u64), Vec<(usize, usize)>> = BTreeMap::new();
        let mut messages: BTreeMap<_, [Vec<(usize, usize)>; 2]> = BTreeMap::new();
        for (rank, mine) in recorded.iter().enumerate() {
            // Both ends of a message, and all calls of a collective, are completed together.
            let open = mine.iter().enumerate().filter(|(_, it)| it.completed.is_none());
            for (at, it) in open {
                match it.call.message {
                    None => {
                        collectives.entry((it.call.group, it.number)).or_default().push((rank, at))
                    }
                    Some((from, to)) => {
                        let ends = messages.entry((it.call.group, from, to, it.call.tag));
                        let is_send = usize::from(it.call.name == "send");
                        ends.or_default()[is_send].push((rank, at));
                    }
                }
            }
        }
        let created = |&(rank, at): &(usize, usize)| recorded[rank][at].created;
        for ((group, _), calls) in collectives {
            let key = |&(rank, at): &(usize, usize)| {
                let call: &Call = &recorded[rank][at].call;
                (call.operation, call.size, call.dtype, call.reduce_op, call.root)
            };
            let is_same = calls.iter().all(|call| key(call) == key(&calls[0]));
            if calls.len() == self.groups[group].1.len() && is_same {
                let end = calls.iter().map(created).max().unwrap() + MS / 20;
                ended.extend(calls.iter().map(|&(rank, at)| (rank, at, end)));
            }
        }
        for [receives, sends] in messages.into_values() {
            for (receive, send) in receives.iter().zip(&sends) {
                let end = created(receive).max(created(send)) + MS / 50;
                ended.extend([receive, send].map(|&(rank, at)| (rank, at, end)));
            }
        }
        let mut any = false;
        for (rank, at, end) in ended {
            let completed = &mut recorded[rank][at].completed;
            any |= completed.is_none();
            completed.get_or_insert(end);
        }
        any
    }

    fn dump(&self, rank: u32, recorded: &[Recorded], end: i64) -> Value {
        let mut config = BTreeMap::new();
        let mut status = BTreeMap::new();
        for (at, (name, ranks)) in self.groups.iter().enumerate() {
            if ranks.contains(&rank) {
                let of_group = recorded.iter().filter(|it| it.call.group == at);
                let last = of_group.filter(|it| it.call.message.is_none()).map(|it| it.number);
                config.insert(
                    at.to_string(),
                    json!({
                        "name": name, "desc": name, "ranks": format!("{ranks:?}"),
                        "backend": "tcp", "epoch": 0,
                    }),
                );
                let last = json!({ "last_enqueued_collective": last.max(), "failure": null });
                status.insert(at.to_string(), last);
            }
        }
        let entries: Vec<Value> =
            recorded.iter().enumerate().map(|(at, it)| self.entry(at, it)).collect();
        json!({
            "version": "2.10", "polyrank": "0.1.0", "rank": rank, "world_size": self.calls.len(),
            "hostname": "a", "pid": 100 + rank, "run_id": "run-1", "reason": "the signal SIGUSR1",
            "dumped_at_ns": end, "clock_offset_ns": 0, "pg_config": config, "pg_status": status,
            "entries": entries,
        })
    }

    fn entry(&self, at: usize, it: &Recorded) -> Value {
        let Recorded { call, number, created, completed } = it;
        let (name, ranks) = &self.groups[call.group];
        let profiling = match call.message {
            None => format!("polyrank:{}", call.operation),
            Some((from, to)) if call.name == "send" => format!("polyrank:send {from}->{to}"),
            Some((_, to)) if call.from_any => format!("polyrank:recv {to}<-?"),
            Some((from, to)) => format!("polyrank:recv {to}<-{from}"),
        };
        let gathers = call.operation == "all_gather";
        let sizes = if call.size == 0 { vec![] } else { vec![vec![call.size]] };
        let dtypes = vec![call.dtype; sizes.len()];
        let outputs = if gathers { vec![vec![call.size]; ranks.len()] } else { sizes.clone() };
        let is_message = call.message.is_some();
        json!({
            "record_id": at, "pg_id": call.group, "process_group": [name, name],
            "collective_seq_id": if is_message { 0 } else { *number },
            "p2p_seq_id": if is_message { *number } else { 0 }, "op_id": at,
            "profiling_name": profiling, "name": call.name, "comm_name": null, "root": call.root,
            "reduce_op": call.reduce_op, "tag": call.tag, "bytes": call.size * 4,
            "input_sizes": sizes, "output_sizes": outputs,
            "input_dtypes": dtypes, "output_dtypes": dtypes,
            "time_created_ns": created, "time_discovered_started_ns": created,
            "time_discovered_completed_ns": completed, "duration_ms": null,
            "state": if completed.is_some() { "completed" } else { "started" }, "failed": null,
            "retired": completed.is_some(), "timeout_ms": 1_800_000, "is_p2p": is_message,
            "waits_for": [],
            "frames": [{ "name": "step", "filename": "/src/train.py", "line": call.line }],
        })
    }
}
