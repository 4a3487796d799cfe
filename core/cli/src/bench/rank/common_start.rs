//! The moment at which all ranks make their next call: agreed through a small file that the
//! benchmark makes for them, never through the library that is measured. The scripts of the other
//! languages do the same, with the same clock. Knows nothing of what is called.
//!
//! ```text
//!  rank 0  writes its inputs ─▶ record 0: "ready at t0" ─┐  all records read:
//!  rank 1  writes its inputs ──────▶ record 1: "… t1" ───┴─▶ start = max(t0, t1) + lead ─▶ call
//! ```
//!
//! All ranks of a host share the monotonic clock, so every rank computes the same moment and waits
//! for it by reading the clock. The lead is the time that the slowest rank needs to read the
//! records; the benchmark measures it. Records of odd and of even rounds lie apart: a rank that is
//! a round ahead changes nothing that another still has to read, and cannot be two ahead.
//!
//! With a core for each rank, ranks that wait do so busily. With fewer, they make room for those
//! that still work: they yield, and soon sleep; the lead is then longer than they sleep.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Bytes of a record: nanoseconds, and their complement. A read may see half of a write, and then
/// the halves do not match.
const RECORD_BYTES: usize = 16;

/// Where ranks share cores: how often one looks and yields before it sleeps, and for how long it
/// does so at a time.
const YIELDS: u32 = 16;
const SLEEP_NS: u64 = 50_000;

/// Bytes of the file of a number of ranks.
pub(in crate::bench) fn file_bytes(ranks: u32) -> u64 {
    2 * u64::from(ranks) * RECORD_BYTES as u64
}

/// The system's monotonic clock, nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Counted from the start of the machine.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One rank's side of the agreement.
pub(super) struct CommonStart {
    file: File,
    rank: usize,
    /// What was read last: the records of one round.
    records: Vec<u8>,
    round: u64,
    /// The moment of the round before.
    last_ns: u64,
    /// Whether there are more ranks than cores, so that one that waits makes room.
    yields: bool,
    limit_ns: u64,
}

/// When a call was to start, and when this rank did start it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) agreed_ns: u64,
    pub(super) begun_ns: u64,
}

impl CommonStart {
    /// Opens the file of `ranks` ranks; a rank that does not come within `limit_s` is an error.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(
        path: &Path,
        rank: u32,
        ranks: u32,
        yields: bool,
        limit_s: u64,
    ) -> Result<CommonStart, String> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        Ok(CommonStart {
            file,
            rank: rank as usize,
            records: vec![0; ranks as usize * RECORD_BYTES],
            round: 0,
            last_ns: 0,
            yields,
            limit_ns: limit_s.saturating_mul(1_000_000_000),
        })
    }

    /// Says that this rank is ready, and returns when the agreed moment has come.
    ///
    /// # Errors
    /// A rank that is not ready in time, or a file that cannot be read.
    pub(super) fn wait(&mut self, lead_ns: u64) -> Result<Moment, String> {
        let at = (self.round % 2) * self.records.len() as u64;
        let ready_ns = monotonic_ns().max(self.last_ns + 1);
        let own = at + (self.rank * RECORD_BYTES) as u64;
        self.file.write_all_at(&record(ready_ns), own).map_err(cannot_agree)?;
        let mut looks = 0;
        let agreed_ns = loop {
            self.file.read_exact_at(&mut self.records, at).map_err(cannot_agree)?;
            match latest(&self.records, self.last_ns) {
                Ok(latest_ns) => break latest_ns + lead_ns,
                Err(rank) if monotonic_ns() - ready_ns > self.limit_ns => {
                    let seconds = self.limit_ns / 1_000_000_000;
                    return Err(format!(
                        "rank {rank} was not ready for the next call in {seconds} s"
                    ));
                }
                Err(_) => self.pause(looks >= YIELDS),
            }
            looks += 1;
        };
        self.round += 1;
        self.last_ns = agreed_ns;
        loop {
            let begun_ns = monotonic_ns();
            if begun_ns >= agreed_ns {
                return Ok(Moment { agreed_ns, begun_ns });
            }
            self.pause(agreed_ns - begun_ns > 2 * SLEEP_NS);
        }
    }

    /// Makes room where ranks share cores.
    fn pause(&self, is_long: bool) {
        match (self.yields, is_long) {
            (false, _) => {}
            (true, false) => thread::yield_now(),
            (true, true) => thread::sleep(Duration::from_nanos(SLEEP_NS)),
        }
    }
}

fn record(ready_ns: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&ready_ns.to_le_bytes());
    bytes[8..].copy_from_slice(&(!ready_ns).to_le_bytes());
    bytes
}

/// The latest of the ranks' times, or the first rank that has no record of this round yet. Every
/// record of this round is later than the start of the round before, and older ones are not.
fn latest(records: &[u8], last_ns: u64) -> Result<u64, usize> {
    let mut latest_ns = 0;
    for (rank, record) in records.chunks_exact(RECORD_BYTES).enumerate() {
        let (time, complement) = record.split_at(8);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let ready_ns = number(time);
        if ready_ns <= last_ns || number(complement) != !ready_ns {
            return Err(rank);
        }
        latest_ns = ready_ns.max(latest_ns);
    }
    Ok(latest_ns)
}

fn cannot_agree(error: std::io::Error) -> String {
    format!("the ranks cannot agree on when to start: {error}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn all_ranks_start_at_one_moment_which_nobody_precedes() {
        for ranks in [1u32, 2, 5] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(file_bytes(ranks)).unwrap();
            let path = file.path();
            let of_rank = |rank| {
                let mut start = CommonStart::open(path, rank, ranks, true, 60).unwrap();
                let round = |number: u64| {
                    // Another rank is the last one in each round.
                    for _ in 0..(number + u64::from(rank)) % 3 {
                        thread::yield_now();
                    }
                    let ready_ns = monotonic_ns();
                    let moment = start.wait(1000).unwrap();
                    assert!(moment.begun_ns >= moment.agreed_ns, "{moment:?}");
                    (ready_ns, moment.agreed_ns)
                };
                (0..200).map(round).collect::<Vec<_>>()
            };
            let rounds: Vec<_> = thread::scope(|scope| {
                let ranks: Vec<_> =
                    (0..ranks).map(|rank| scope.spawn(move || of_rank(rank))).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            for number in 0..200 {
                let agreed_ns = rounds[0][number].1;
                for of_rank in &rounds {
                    let (ready_ns, agreed) = of_rank[number];
                    assert_eq!(agreed, agreed_ns, "round {number} of {ranks} ranks");
                    assert!(ready_ns + 1000 <= agreed_ns, "round {number} of {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn half_a_record_and_one_of_an_older_round_do_not_count() {
        let mut records = [record(500), record(700)].concat();
        assert_eq!(latest(&records, 499), Ok(700));
        assert_eq!(latest(&records, 500), Err(0));
        records[RECORD_BYTES] ^= 1;
        assert_eq!(latest(&records, 499), Err(1));
        assert_eq!(latest(&[0; RECORD_BYTES], 0), Err(0));
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(file_bytes(2)).unwrap();
        let mut start = CommonStart::open(file.path(), 0, 2, true, 0).unwrap();
        assert_eq!(start.wait(0).unwrap_err(), "rank 1 was not ready for the next call in 0 s");
    }
}
