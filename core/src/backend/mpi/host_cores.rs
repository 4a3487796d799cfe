//! Where each rank of a group runs: its rank in the MPI job, its host, and the cores that it may
//! use, which decide whether waiting ranks may spin. Launchers bind ranks to cores, so that one
//! core for this process need not mean that others wait for it. Knows the text that ranks publish,
//! not when they do.

use std::ffi::c_int;
use std::fmt;

use crate::transport::host;

/// The host and the cores of one rank, as it publishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostCores {
    /// Its rank in the job, and the job's size.
    pub(super) rank: c_int,
    pub(super) size: u32,
    /// The cores that it may run on, a bit for each; empty if they are not known.
    cores: Vec<u64>,
    host: String,
    /// The name of the job, the same on all its ranks.
    pub(super) job: String,
}

impl HostCores {
    /// Those of this process.
    pub(super) fn here(rank: u32, size: u32, job: &str) -> HostCores {
        let host = host::identity().replace('/', "-");
        HostCores { rank: rank as c_int, size, cores: cores(), host, job: job.to_owned() }
    }

    /// Parses what `Display` writes; `None` for any other text.
    pub(super) fn read(text: &str) -> Option<HostCores> {
        let mut parts = text.splitn(5, '/');
        let rank = parts.next()?.parse().ok()?;
        let size = parts.next()?.parse().ok()?;
        let words = parts.next()?.split('.').filter(|word| !word.is_empty());
        let cores: Result<_, _> = words.map(|word| u64::from_str_radix(word, 16)).collect();
        let host = parts.next()?.to_owned();
        Some(HostCores { rank, size, cores: cores.ok()?, host, job: parts.next()?.to_owned() })
    }

    /// Whether more of `ranks`, which include this one, share its cores than there are cores.
    pub(super) fn is_crowded(&self, ranks: &[HostCores]) -> bool {
        let meets = |other: &&HostCores| {
            let shares = self.cores.iter().zip(&other.cores).any(|(one, other)| one & other != 0);
            self.host == other.host && (shares || self.cores.is_empty() || other.cores.is_empty())
        };
        let cores: u32 = self.cores.iter().map(|word| word.count_ones()).sum();
        ranks.iter().filter(meets).count() > cores as usize
    }
}

impl fmt::Display for HostCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostCores { rank, size, cores, host, job } = self;
        write!(f, "{rank}/{size}/")?;
        for word in cores {
            write!(f, "{word:x}.")?;
        }
        write!(f, "/{host}/{job}")
    }
}

/// The cores that this process may run on.
#[cfg(target_os = "linux")]
fn cores() -> Vec<u64> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    let bit = |word: usize, bit: usize| u64::from(set.is_set(word * 64 + bit)) << bit;
    let words = (0..CpuSet::MAX_CPU / 64).map(|word| (0..64).map(|at| bit(word, at)).sum());
    let mut words: Vec<u64> = words.collect();
    words.truncate(words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1));
    words
}

/// The cores that this process may run on. This system only says how many they are.
#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<u64> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cores.div_ceil(64)).map(|word| u64::MAX >> (64 - (cores - word * 64).min(64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_cores(rank: c_int, cores: &[u64], host: &str) -> HostCores {
        let (host, job) = (host.to_owned(), "job/1".to_owned());
        HostCores { rank, size: 4, cores: cores.to_vec(), host, job }
    }

    #[test]
    fn what_is_published_is_read() {
        for cores in
            [host_cores(3, &[0, 5], "a"), host_cores(0, &[], ""), HostCores::here(1, 2, "x/y")]
        {
            assert_eq!(HostCores::read(&cores.to_string()), Some(cores.clone()), "{cores}");
        }
        for text in ["", "1/2", "1/2/z/host/job", "x/2/1/host/job"] {
            assert_eq!(HostCores::read(text), None, "{text}");
        }
    }

    #[test]
    fn ranks_are_crowded_where_they_share_too_few_cores() {
        let crowded = |cores: [&[u64]; 3]| {
            let all: Vec<HostCores> =
                (0..).zip(cores).map(|(rank, cores)| host_cores(rank, cores, "a")).collect();
            all[0].is_crowded(&all)
        };
        assert!(!crowded([&[1], &[2], &[4]]), "each has its own");
        assert!(!crowded([&[7], &[7], &[7]]), "they share enough");
        assert!(crowded([&[3], &[3], &[3]]));
        assert!(crowded([&[1], &[1], &[4]]));
        assert!(!crowded([&[0, 1], &[1], &[2]]), "a core after the 64th");
        assert!(crowded([&[], &[], &[]]), "nothing is known");
        let apart = [host_cores(0, &[1], "a"), host_cores(1, &[1], "b")];
        assert!(!apart[0].is_crowded(&apart), "on two hosts");
    }
}
