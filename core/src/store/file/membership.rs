//! Which processes meet in a file, so that a file left by an earlier run is noticed.
//! Knows nothing of users' keys.
//!
//! Every rank that meets others through a file writes who it is: host and PID namespace, process,
//! its start time, and when its joining expires. The rank that makes the group complete seals the
//! file. A newcomer judges what it finds under the lock under which it writes itself down:
//!
//! * nobody is in the file: it joins;
//! * all who are in it are gone, because they closed the store, their processes ended, or (on
//!   other hosts, where processes cannot be seen) their joining of a group that never became
//!   complete has expired: the file is cleared, and the newcomer is the first;
//! * some are gone and some are not, the group is complete, or its own rank is taken: an error
//!   that says so. Neither waiting nor joining could be right.

use std::path::Path;
use std::time::Duration;

use super::FileStore;
use super::log::{LockedLog, OPEN_STORES};
use crate::clock::{SystemTime, UNIX_EPOCH};
use crate::generated::error::{Error, Result};

/// Own keys of the store: the ranks, the number of ranks, and the mark of a complete group.
const MEMBER: &str = "member/";
const WORLD_SIZE: &str = "world_size/";
const SEALED: &str = "sealed/";
/// How far the clocks of two hosts may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Opens the file at `path` as `rank` of `world_size`.
///
/// # Errors
/// [`Error::Rendezvous`] if the file belongs to another run, or `rank` is taken.
pub(crate) fn join(
    path: &Path,
    rank: u32,
    world_size: u32,
    timeout: Duration,
) -> Result<FileStore> {
    FileStore::open(path, Some(world_size), Some(rank), timeout)
}

/// Whether `rank` may join; false if the file was left behind and must be replaced first.
pub(super) fn admit(
    locked: &LockedLog<'_>,
    path: &Path,
    rank: u32,
    world_size: u32,
) -> Result<bool> {
    let path = path.display();
    match judge(&found(locked, since_1970()), rank, world_size) {
        Verdict::Join => Ok(true),
        Verdict::TakeOver => {
            tracing::warn!("'{path}' was left behind by an earlier run; starting it anew");
            Ok(false)
        }
        Verdict::Refuse(why) => Err(Error::Rendezvous {
            message: format!(
                "Error initializing polyrank using file:// rendezvous: '{path}' {why}"
            ),
        }),
    }
}

/// Writes `rank` down, which was admitted under the same lock.
pub(super) fn register(
    locked: &mut LockedLog<'_>,
    rank: u32,
    world_size: u32,
    timeout: Duration,
) -> Result<()> {
    // Without a limit, joining expires after a year.
    let limit = if timeout.is_zero() { Duration::from_secs(31_536_000) } else { timeout };
    let me = Process::this(since_1970().saturating_add(limit));
    locked.write(format!("{MEMBER}{rank}").as_bytes(), me.to_string().as_bytes())?;
    locked.write(WORLD_SIZE.as_bytes(), world_size.to_string().as_bytes())?;
    if locked.log.internal_under(MEMBER).count() >= world_size as usize {
        locked.write(SEALED.as_bytes(), b"1")?;
    }
    Ok(())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Strikes `rank` out.
pub(super) fn leave(locked: &mut LockedLog<'_>, rank: u32) -> Result<()> {
    locked.write(format!("-{MEMBER}{rank}").as_bytes(), b"").map(drop)
}

/// What a file says about those who use it.
#[derive(Debug, Default)]
struct FileContents {
    has_records: bool,
    open_stores: i64,
    members: Vec<Member>,
    world_size: Option<u32>,
    sealed: bool,
}

#[derive(Debug)]
struct Member {
    rank: u32,
    who: String,
    gone: bool,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Join,
    TakeOver,
    Refuse(String),
}

fn found(locked: &LockedLog<'_>, now: Duration) -> FileContents {
    let log = &*locked.log;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let sealed = log.internal(SEALED).is_some();
    let mut members: Vec<Member> = log
        .internal_under(MEMBER)
        .filter_map(|(rank, process)| {
            let process = text(process);
            Some(Member {
                rank: text(rank).parse().ok()?,
                gone: is_gone(&process, sealed, now),
                who: Process::parse(&process)
                    .map_or("unknown process".into(), |process| format!("process {}", process.id)),
            })
        })
        .collect();
    members.sort_by_key(|member| member.rank);
    FileContents {
        has_records: !log.is_empty(),
        open_stores: log.internal_number(OPEN_STORES),
        members,
        world_size: log.internal(WORLD_SIZE).and_then(|size| text(size).parse().ok()),
        sealed,
    }
}

fn judge(found: &FileContents, rank: u32, world_size: u32) -> Verdict {
    if found.open_stores <= 0 {
        return if found.has_records { Verdict::TakeOver } else { Verdict::Join };
    }
    if found.open_stores > found.members.len() as i64 {
        return Verdict::Refuse(
            "is in use, or was left behind, by a program that does not say which ranks it has. \
             Remove the file if nothing uses it, or choose another"
                .into(),
        );
    }
    let gone = found.members.iter().filter(|member| member.gone).count();
    if gone == found.members.len() {
        return Verdict::TakeOver;
    }
    let list = |gone: bool| {
        let members = found.members.iter().filter(|member| member.gone == gone);
        let names: Vec<_> = members.map(|m| format!("rank {} ({})", m.rank, m.who)).collect();
        names.join(", ")
    };
    if gone > 0 {
        return Verdict::Refuse(format!(
            "holds a group that lost {} and that {} may still wait in. End those, or choose \
             another file",
            list(true),
            list(false)
        ));
    }
    if let Some(member) = found.members.iter().find(|member| member.rank == rank) {
        return Verdict::Refuse(format!(
            "has this rank already: rank {rank} joined twice, the \
             first time as {}",
            member.who
        ));
    }
    if found.sealed {
        return Verdict::Refuse(format!(
            "holds a complete group: {}. More processes were started than its world size, or an \
             earlier run goes on; choose another file for another run",
            list(false)
        ));
    }
    match found.world_size {
        Some(size) if size != world_size => Verdict::Refuse(format!(
            "is that of a group of {size} ranks, but rank {rank} was started with world size \
             {world_size}"
        )),
        _ => Verdict::Join,
    }
}

/// A process, as it is written in the file.
#[derive(Debug, PartialEq)]
struct Process {
    /// Boot and PID namespace; "?" where they are not known.
    host: String,
    id: u32,
    /// When it began, in ticks since boot: process numbers are used again.
    began: u64,
    /// When its joining expires, seconds since 1970.
    expires: u64,
}

impl Process {
    fn this(expires: Duration) -> Self {
        let id = crate::clock::process_id();
        let began = state(id).map_or(0, |state| state.began);
        Self { host: host(), id, began, expires: expires.as_secs() }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        Some(Self {
            host: fields.next()?.to_owned(),
            id: fields.next()?.parse().ok()?,
            began: fields.next()?.parse().ok()?,
            expires: fields.next()?.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.host, self.id, self.began, self.expires)
    }
}

/// Whether the process that wrote `text` cannot be waiting any more.
fn is_gone(text: &str, sealed: bool, now: Duration) -> bool {
    let Some(process) = Process::parse(text) else { return false };
    if process.host != "?" && process.host == host() {
        return state(process.id).is_none_or(|state| state.ended || state.began != process.began);
    }
    !sealed && now > Duration::from_secs(process.expires) + CLOCK_SKEW
}

/// This boot of this machine, and the PID namespace.
fn host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{}/{}", boot.trim(), namespace.display()),
        _ => "?".into(),
    }
}

struct ProcessState {
    began: u64,
    ended: bool,
}

/// What the system says about a process; `None` if there is none.
fn state(id: u32) -> Option<ProcessState> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    // The 22nd field of proc(5)'s table; the third was the last one taken.
    let began = fields.nth(18)?.parse().ok()?;
    Some(ProcessState { began, ended })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn members(gone: &[bool]) -> Vec<Member> {
        let member = |(rank, &gone): (usize, &bool)| Member {
            rank: rank as u32,
            who: format!("process {}", 100 + rank),
            gone,
        };
        gone.iter().enumerate().map(member).collect()
    }

    fn verdict(open_stores: i64, gone: &[bool], sealed: bool, rank: u32) -> Verdict {
        let members = members(gone);
        let world_size = Some(3);
        judge(
            &FileContents { has_records: true, open_stores, members, world_size, sealed },
            rank,
            3,
        )
    }

    #[test]
    fn a_newcomer_joins_takes_over_or_is_told_why_not() {
        assert_eq!(judge(&FileContents::default(), 0, 3), Verdict::Join);
        assert_eq!(verdict(2, &[false, false], false, 2), Verdict::Join);
        assert_eq!(verdict(0, &[], true, 0), Verdict::TakeOver);
        assert_eq!(verdict(3, &[true, true, true], true, 0), Verdict::TakeOver);
        let refused = |verdict: Verdict, part: &str| match verdict {
            Verdict::Refuse(why) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        };
        refused(verdict(2, &[false, true], false, 2), "lost rank 1 (process 101)");
        refused(verdict(2, &[false, false], false, 1), "rank 1 joined twice");
        refused(verdict(2, &[false, false], true, 2), "complete group");
        refused(verdict(1, &[], false, 2), "does not say which ranks");
        let two = FileContents {
            has_records: true,
            open_stores: 1,
            members: members(&[false]),
            world_size: Some(2),
            sealed: false,
        };
        refused(judge(&two, 1, 3), "group of 2 ranks");
    }

    #[test]
    fn a_process_is_gone_when_it_ended_or_its_number_is_anothers() {
        let now = Duration::from_secs(1_000_000);
        let me = Process::this(now);
        assert_eq!(Process::parse(&me.to_string()), Some(Process::this(now)));
        assert!(!is_gone(&me.to_string(), false, now * 2));
        if me.host != "?" {
            let reused = Process { began: me.began + 1, ..Process::this(now) };
            assert!(is_gone(&reused.to_string(), true, now));
            let ended = Process { id: u32::MAX, ..Process::this(now) };
            assert!(is_gone(&ended.to_string(), true, now));
        }
        let elsewhere = Process { host: "elsewhere".into(), ..me };
        assert!(!is_gone(&elsewhere.to_string(), false, now));
        assert!(is_gone(&elsewhere.to_string(), false, now * 2));
        assert!(!is_gone(&elsewhere.to_string(), true, now * 2), "a complete group may go on");
    }
}
