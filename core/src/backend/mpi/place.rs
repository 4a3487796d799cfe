//! Where each rank of a group is: its rank in the MPI job, and the cores that it may run on, which
//! say whether waiting ranks may spin. Launchers bind ranks to cores, so that one core for this
//! process need not mean that others wait for it. Knows how to tell the others, not when.

use std::ffi::c_int;
use std::fmt;

use crate::transport::host;

/// Where one rank is, as it tells the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its rank in the job, and the job's size.
    pub(super) rank: c_int,
    pub(super) size: u32,
    /// The cores that it may run on, a bit for each; none if that is not known.
    cores: Vec<u64>,
    host: String,
    /// What all ranks of the job have in common.
    pub(super) job: String,
}

impl Place {
    /// That of this process.
    pub(super) fn here(rank: u32, size: u32, job: &str) -> Place {
        let host = host::identity().replace('/', "-");
        Place { rank: rank as c_int, size, cores: cores(), host, job: job.to_owned() }
    }

    /// Reads what [`Place`] writes; none if it is something else.
    pub(super) fn read(text: &str) -> Option<Place> {
        let mut parts = text.splitn(5, '/');
        let rank = parts.next()?.parse().ok()?;
        let size = parts.next()?.parse().ok()?;
        let words = parts.next()?.split('.').filter(|word| !word.is_empty());
        let cores: Result<_, _> = words.map(|word| u64::from_str_radix(word, 16)).collect();
        let host = parts.next()?.to_owned();
        Some(Place { rank, size, cores: cores.ok()?, host, job: parts.next()?.to_owned() })
    }

    /// Whether more of `ranks`, which this is one of, share its cores than there are.
    pub(super) fn is_crowded(&self, ranks: &[Place]) -> bool {
        let meets = |other: &&Place| {
            let shares = self.cores.iter().zip(&other.cores).any(|(one, other)| one & other != 0);
            self.host == other.host && (shares || self.cores.is_empty() || other.cores.is_empty())
        };
        let cores: u32 = self.cores.iter().map(|word| word.count_ones()).sum();
        ranks.iter().filter(meets).count() > cores as usize
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { rank, size, cores, host, job } = self;
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

/// The cores that this process may run on: which they are is not known here, but how many.
#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<u64> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cores.div_ceil(64)).map(|word| u64::MAX >> (64 - (cores - word * 64).min(64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rank: c_int, cores: &[u64], host: &str) -> Place {
        let (host, job) = (host.to_owned(), "job/1".to_owned());
        Place { rank, size: 4, cores: cores.to_vec(), host, job }
    }

    #[test]
    fn what_is_told_is_read() {
        for place in [place(3, &[0, 5], "a"), place(0, &[], ""), Place::here(1, 2, "x/y")] {
            assert_eq!(Place::read(&place.to_string()), Some(place.clone()), "{place}");
        }
        for text in ["", "1/2", "1/2/z/host/job", "x/2/1/host/job"] {
            assert_eq!(Place::read(text), None, "{text}");
        }
    }

    #[test]
    fn ranks_are_crowded_where_they_share_too_few_cores() {
        let crowded = |cores: [&[u64]; 3]| {
            let all: Vec<Place> =
                (0..).zip(cores).map(|(rank, cores)| place(rank, cores, "a")).collect();
            all[0].is_crowded(&all)
        };
        assert!(!crowded([&[1], &[2], &[4]]), "each has its own");
        assert!(!crowded([&[7], &[7], &[7]]), "they share enough");
        assert!(crowded([&[3], &[3], &[3]]));
        assert!(crowded([&[1], &[1], &[4]]));
        assert!(!crowded([&[0, 1], &[1], &[2]]), "a core behind the 64th");
        assert!(crowded([&[], &[], &[]]), "nothing is known");
        let apart = [place(0, &[1], "a"), place(1, &[1], "b")];
        assert!(!apart[0].is_crowded(&apart), "on two hosts");
    }
}
