//! Which processes have a handler for a signal that ends all others, and which are stopped; what is
//! said of ranks that have no handler. Knows nothing of what they do when it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, Signal};

use super::report::signal_name;
use super::stopped::StoppedProcess;

/// Most ranks that are named.
const MAX_NAMED: usize = 8;

/// The processes of this host, and what a signal does to them.
#[derive(Default)]
pub(super) struct Listeners {
    /// By the process that started them.
    children: BTreeMap<i32, Vec<i32>>,
    /// Those that it would end.
    without_handler: BTreeSet<i32>,
    stopped: BTreeSet<i32>,
}

impl Listeners {
    /// Those of now. There are none where the system has no `/proc`.
    pub(super) fn now(signal: Signal) -> Listeners {
        let mut all = Listeners::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may have ended meanwhile.
            let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
            let parent = field(&status, "PPid").and_then(|text| text.parse().ok());
            if let Some(parent) = parent {
                all.children.entry(parent).or_default().push(pid);
            }
            if has_no_handler(&status, signal) {
                all.without_handler.insert(pid);
            }
            if field(&status, "State").is_some_and(|state| state.starts_with('T')) {
                all.stopped.insert(pid);
            }
        }
        all
    }

    /// Who of `process` and what it started is to get the signal: on each way from it the first
    /// that listens. A process of which that is not known gets it.
    pub(super) fn below(&self, process: Pid) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut open = vec![process];
        while let Some(process) = open.pop() {
            let pid = process.as_raw_nonzero().get();
            if !self.without_handler.contains(&pid) {
                found.push(process);
                continue;
            }
            open.extend(self.children_of(pid));
        }
        found
    }

    /// Of `process` and what it started, one that is stopped: rather the rank, as far as it is
    /// known by its handler, than what is beside it.
    pub(super) fn stopped_below(&self, process: Pid) -> Option<StoppedProcess> {
        let pid_of = |process: &Pid| process.as_raw_nonzero().get();
        let is_stopped = |pid: &i32| self.stopped.contains(pid);
        let ranks = self.below(process);
        if let Some(pid) = ranks.iter().map(pid_of).find(is_stopped) {
            return Some(StoppedProcess { pid, is_rank: true });
        }
        let mut all = vec![process];
        let mut at = 0;
        while let Some(next) = all.get(at) {
            let children: Vec<_> = self.children_of(pid_of(next)).collect();
            all.extend(children);
            at += 1;
        }
        let pid = all.iter().map(pid_of).find(is_stopped)?;
        Some(StoppedProcess { pid, is_rank: ranks.is_empty() })
    }

    fn children_of(&self, pid: i32) -> impl Iterator<Item = Pid> {
        let children = self.children.get(&pid).into_iter().flatten();
        children.filter_map(|child| Pid::from_raw(*child))
    }
}

/// Whether a process with this `/proc/PID/status` has no handler for the signal; not if that is not
/// known. One that holds it back waits for it in another way, as `sigwait` does; one that holds all
/// back does so for a moment, as shells do until a program that they start is there.
fn has_no_handler(status: &str, signal: Signal) -> bool {
    let mask = |name| u64::from_str_radix(field(status, name)?, 16).ok();
    let bit = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
    let Some((caught, held)) = mask("SigCgt").zip(mask("SigBlk")) else { return false };
    let holds_all = held & bit(Signal::SEGV) != 0 && held & bit(Signal::TERM) != 0;
    let waits = held & bit(signal) != 0 && !holds_all;
    caught & bit(signal) == 0 && !waits
}

fn field<'status>(status: &'status str, name: &str) -> Option<&'status str> {
    let line = |line: &'status str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(line).map(str::trim)
}

/// What the launcher answers to a signal that it has passed on to as many ranks as were `asked`,
/// and not to those that were `spared`.
pub(super) fn answer(signal: Signal, asked: usize, spared: &[u32]) -> String {
    let ranks = match asked {
        0 => "no rank".to_owned(),
        1 => "1 rank".to_owned(),
        more => format!("{more} ranks"),
    };
    let mut text = format!("{}: passed on to {ranks}", signal_name(signal.as_raw()));
    if !spared.is_empty() {
        let (noun, verb) = if spared.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        // Whoever begins to join a group gets one for what is written then.
        let why = match signal == Signal::USR1 {
            true => "not begun to join a group, and no handler of its own",
            false => "no handler for it",
        };
        let named = named(spared);
        text.push_str(&format!("; not to {noun} {named}, which {verb} {why}"));
    }
    text
}

fn named(ranks: &[u32]) -> String {
    let shown: Vec<_> = ranks.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let shown = shown.join(", ");
    match ranks.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_signal_is_for_the_first_that_listen() {
        // 2 is a shell that has started 3 and 4; 3 has started 5.
        let children = BTreeMap::from([(1, vec![2]), (2, vec![3, 4]), (3, vec![5])]);
        let below = |listening: &[i32]| {
            let without_handler = (2..=5).filter(|pid| !listening.contains(pid)).collect();
            let children = children.clone();
            let all = Listeners { children, without_handler, ..Listeners::default() };
            let found = all.below(Pid::from_raw(2).unwrap()).into_iter();
            found.map(|pid| pid.as_raw_nonzero().get()).collect::<BTreeSet<_>>()
        };
        assert_eq!(below(&[2, 3]), [2].into());
        assert_eq!(below(&[4, 5]), [4, 5].into());
        assert_eq!(below(&[3, 5]), [3].into());
        assert!(below(&[]).is_empty());
    }

    #[test]
    fn a_rank_is_stopped_if_what_listens_is() {
        // 2 is a shell that has started the rank 3, which has started 4.
        let children = BTreeMap::from([(2, vec![3]), (3, vec![4])]);
        let stopped = |listening: &[i32], stopped: i32| {
            let without_handler = (2..=4).filter(|pid| !listening.contains(pid)).collect();
            let stopped = [stopped].into();
            let all = Listeners { children: children.clone(), without_handler, stopped };
            all.stopped_below(Pid::from_raw(2).unwrap()).map(|it| (it.pid, it.is_rank))
        };
        assert_eq!(stopped(&[3], 3), Some((3, true)));
        // The shell, or what the rank has started.
        assert_eq!(stopped(&[3], 2), Some((2, false)));
        assert_eq!(stopped(&[3], 4), Some((4, false)));
        // Nobody has begun to join a group.
        assert_eq!(stopped(&[], 2), Some((2, true)));
        assert_eq!(stopped(&[], 3), Some((3, true)));
        assert_eq!(stopped(&[3], 7), None);
    }

    #[test]
    fn what_listens_is_in_its_status() {
        // SIGUSR1 is 10 where Linux runs on most processors: the tenth bit.
        let bit = 1_u64 << (Signal::USR1.as_raw() - 1);
        let status = |caught: u64, blocked: u64| {
            format!("Name:\tx\nPPid:\t7\nSigBlk:\t{blocked:016x}\nSigCgt:\t{caught:016x}\n")
        };
        let is_ended = |text: &str| has_no_handler(text, Signal::USR1);
        assert!(!is_ended(&status(bit, 0)));
        assert!(!is_ended(&status(0, bit)));
        assert!(is_ended(&status(!bit, !bit)));
        assert!(is_ended(&status(0, u64::MAX)));
        assert!(!is_ended("Name:\tx\n"));
    }

    #[test]
    fn the_answer_names_who_did_not_get_it() {
        assert_eq!(answer(Signal::USR1, 2, &[]), "SIGUSR1: passed on to 2 ranks");
        let why = "which has not begun to join a group, and no handler of its own";
        let expected = format!("SIGUSR1: passed on to 1 rank; not to rank 3, {why}");
        assert_eq!(answer(Signal::USR1, 1, &[3]), expected);
        let many: Vec<u32> = (0..10).collect();
        let why = "which have no handler for it";
        let ranks = "0, 1, 2, 3, 4, 5, 6, 7 and 2 more";
        let expected = format!("SIGUSR2: passed on to no rank; not to ranks {ranks}, {why}");
        assert_eq!(answer(Signal::USR2, 0, &many), expected);
    }
}
