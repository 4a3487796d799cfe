//! The values of `--redirects`, `--tee` and `--local-ranks-filter`: which streams of which ranks.
//! Knows nothing of files.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// One of the two streams of a rank, and the launcher's own of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Its bit in torchrun's numbers.
    fn bit(self) -> u8 {
        match self {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        }
    }
}

/// Streams of the ranks of a host, as torchrun writes them: one number for all ranks (0: none,
/// 1: stdout, 2: stderr, 3: both), or a number for each of some ranks, as in `0:3,1:1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamSet {
    All(u8),
    Some(BTreeMap<u32, u8>),
}

impl StreamSet {
    /// Whether `stream` of the rank of this number on its host is one of them.
    pub(crate) fn contains(&self, local_rank: u32, stream: Stream) -> bool {
        let bits = match self {
            StreamSet::All(bits) => *bits,
            StreamSet::Some(of_rank) => of_rank.get(&local_rank).copied().unwrap_or(0),
        };
        bits & stream.bit() != 0
    }
}

impl FromStr for StreamSet {
    type Err = String;

    fn from_str(text: &str) -> Result<StreamSet, String> {
        let wrong = || {
            "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all ranks or for some of \
             this host, as in 0:3,1:1"
                .to_owned()
        };
        let bits = |text: &str| text.parse().ok().filter(|bits| *bits <= 3).ok_or_else(wrong);
        if !text.contains(':') {
            return bits(text).map(StreamSet::All);
        }
        let pairs = text.split(',').map(|pair| {
            let (rank, value) = pair.split_once(':').ok_or_else(wrong)?;
            Ok((rank.trim().parse().map_err(|_| wrong())?, bits(value)?))
        });
        pairs.collect::<Result<_, String>>().map(StreamSet::Some)
    }
}

impl std::fmt::Display for StreamSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamSet::All(bits) => write!(formatter, "{bits}"),
            StreamSet::Some(of_rank) => {
                let pairs: Vec<_> =
                    of_rank.iter().map(|(rank, bits)| format!("{rank}:{bits}")).collect();
                formatter.write_str(&pairs.join(","))
            }
        }
    }
}

/// Some ranks of a host, as in `0,2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalRanks(pub(crate) BTreeSet<u32>);

impl FromStr for LocalRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<LocalRanks, String> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        let wrong = |_| "expected ranks of this host, as in 0,2".to_owned();
        numbers.collect::<Result<_, _>>().map(LocalRanks).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn streams_are_chosen_as_torchrun_chooses_them() {
        let streams = |text: &str, rank| {
            let set: StreamSet = text.parse().unwrap();
            assert_eq!(set.to_string(), text);
            [Stream::Stdout, Stream::Stderr].map(|stream| set.contains(rank, stream))
        };
        assert_eq!(streams("0", 5), [false, false]);
        assert_eq!(streams("1", 5), [true, false]);
        assert_eq!(streams("2", 5), [false, true]);
        assert_eq!(streams("3", 5), [true, true]);
        assert_eq!(streams("0:3,1:2", 0), [true, true]);
        assert_eq!(streams("0:3,1:2", 1), [false, true]);
        assert_eq!(streams("0:3,1:2", 2), [false, false]);
        for wrong in ["4", "", "0:4", "0:3,", "a:1", "0:3,2"] {
            assert!(wrong.parse::<StreamSet>().unwrap_err().contains("0:3,1:1"), "{wrong}");
        }
    }
}
