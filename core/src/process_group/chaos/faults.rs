//! What faults there are, as text and as values: `delay=5ms@2,kill=1#40`. Pure.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// What is to happen to which rank, and when.
#[derive(Debug)]
pub(in super::super) struct Faults {
    all: Vec<Fault>,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) action: Action,
    /// Its global rank; none: every rank.
    rank: Option<u32>,
    /// Before which of its operations; none: before each.
    number: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It is late, by a time from `least` to `most`.
    Delay { least: Duration, most: Duration },
    /// Its process is killed.
    Kill,
    /// Its process is stopped.
    Stop,
    /// Its connection to a rank is lost.
    Drop { peer: u32 },
}

const DELAY: &str = "delay=TIME@RANK, delay=TIME-TIME@RANK or delay=TIME@RANK#N with times in us, \
                     ms or s and * for every rank, as delay=5ms@2";
const KILL: &str = "kill=RANK#N with N from 1, as kill=1#40";
const STOP: &str = "stop=RANK#N with N from 1, as stop=1#40";
const DROP: &str = "drop=RANK-PEER#N with N from 1, as drop=0-1#40";
const SEED: &str = "seed=NUMBER, as seed=7";
const KINDS: &str = "delay=…, kill=…, stop=…, drop=… and seed=…, with commas between them";

impl Faults {
    /// What `text` asks for; where it does not name the seed of what is random, that is `seed`.
    ///
    /// # Errors
    /// What is wrong with it, and what was expected.
    pub(super) fn parse(text: &str, seed: impl FnOnce() -> u64) -> Result<Faults, String> {
        let (mut all, mut named) = (Vec::new(), None);
        for entry in text.split(',').map(str::trim) {
            let (kind, said) = entry.split_once('=').unwrap_or((entry, ""));
            let (fault, form) = match kind.trim() {
                "delay" => (Fault::delay(said), DELAY),
                "kill" => (Fault::at(said, Action::Kill), KILL),
                "stop" => (Fault::at(said, Action::Stop), STOP),
                "drop" => (Fault::drop(said), DROP),
                "seed" => {
                    let number = said.trim().parse();
                    named = Some(number.map_err(|_| expected(entry, SEED))?);
                    continue;
                }
                _ => (None, KINDS),
            };
            all.push(fault.ok_or_else(|| expected(entry, form))?);
        }
        let is_random = all.iter().any(Fault::is_random);
        let seed = named.unwrap_or_else(|| if is_random { seed() } else { 0 });
        Ok(Faults { all, seed })
    }

    /// Those before operation `number` of `rank`.
    pub(super) fn of(&self, rank: u32, number: u64) -> impl Iterator<Item = &Fault> {
        let is_its = move |fault: &&Fault| {
            fault.rank.is_none_or(|it| it == rank) && fault.number.is_none_or(|it| it == number)
        };
        self.all.iter().filter(is_its)
    }

    /// By how much a fault delays operation `number` of `rank`: the same in every run that has this
    /// seed.
    pub(super) fn delay(&self, fault: &Fault, rank: u32, number: u64) -> Duration {
        let Action::Delay { least, most } = fault.action else { return Duration::ZERO };
        let place = mixed(self.seed ^ mixed(u64::from(rank) ^ mixed(number)));
        let share = place as f64 / u64::MAX as f64;
        least + most.saturating_sub(least).mul_f64(share)
    }
}

impl Fault {
    /// `5ms@2`, `1ms-5ms@*`, `5ms@2#10`
    fn delay(said: &str) -> Option<Fault> {
        let (times, place) = said.split_once('@')?;
        let (least, most) = times.split_once('-').unwrap_or((times, times));
        let (least, most) = (time(least)?, time(most)?);
        let (rank, number) = match place.split_once('#') {
            Some((rank, number)) => (rank, Some(ordinal(number)?)),
            None => (place, None),
        };
        let rank = match rank.trim() {
            "*" => None,
            rank => Some(rank.parse().ok()?),
        };
        (least <= most).then_some(Fault { action: Action::Delay { least, most }, rank, number })
    }

    /// `1#40`
    fn at(said: &str, action: Action) -> Option<Fault> {
        let (rank, number) = said.split_once('#')?;
        let rank = Some(rank.trim().parse().ok()?);
        Some(Fault { action, rank, number: Some(ordinal(number)?) })
    }

    /// `0-1#40`
    fn drop(said: &str) -> Option<Fault> {
        let (ranks, number) = said.split_once('#')?;
        let (rank, peer) = ranks.split_once('-')?;
        let (rank, peer): (u32, u32) = (rank.trim().parse().ok()?, peer.trim().parse().ok()?);
        let number = Some(ordinal(number)?);
        (rank != peer).then_some(Fault { action: Action::Drop { peer }, rank: Some(rank), number })
    }

    fn is_random(&self) -> bool {
        matches!(self.action, Action::Delay { least, most } if least < most)
    }
}

fn expected(entry: &str, form: &str) -> String {
    format!("'{entry}' is not a fault; expected {form}")
}

/// The number of an operation, from 1.
fn ordinal(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&number| number > 0)
}

/// `5ms`, `0.5s`, `200us`
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) =
        units.into_iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, seconds)))?;
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// A number that looks random (SplitMix64's mixer).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Display for Faults {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.all.iter().map(Fault::to_string).collect();
        f.write_str(&all.join("; "))?;
        match self.all.iter().any(Fault::is_random) {
            true => write!(f, "; with seed={}", self.seed),
            false => Ok(()),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let who = self.rank.map_or_else(|| "every rank".to_owned(), |rank| format!("rank {rank}"));
        match self.action {
            Action::Delay { least, most } if least == most => write!(f, "{who} is {least:?} late")?,
            Action::Delay { least, most } => write!(f, "{who} is {least:?} to {most:?} late")?,
            Action::Kill => write!(f, "{who} is killed")?,
            Action::Stop => write!(f, "{who} is stopped")?,
            Action::Drop { peer } => write!(f, "{who} loses its connection to rank {peer}")?,
        }
        match self.number {
            Some(number) => write!(f, " before its operation {number}"),
            None => write!(f, " before each operation"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(text: &str) -> Result<Faults, String> {
        Faults::parse(text, || 99)
    }

    #[test]
    fn what_is_asked_for_is_said() {
        for (text, said) in [
            ("delay=5ms@2", "rank 2 is 5ms late before each operation"),
            ("delay=0.5s@*", "every rank is 500ms late before each operation"),
            ("delay=200us@0#3", "rank 0 is 200µs late before its operation 3"),
            (
                "delay=1ms-5ms@*",
                "every rank is 1ms to 5ms late before each operation; with seed=99",
            ),
            (
                "delay=1ms-5ms@1, seed=7",
                "rank 1 is 1ms to 5ms late before each operation; with seed=7",
            ),
            (
                "kill=1#40,stop=2#1",
                "rank 1 is killed before its operation 40; rank 2 is stopped before its \
                 operation 1",
            ),
            ("drop=0-1#4", "rank 0 loses its connection to rank 1 before its operation 4"),
        ] {
            assert_eq!(parsed(text).unwrap().to_string(), said);
        }
    }

    #[test]
    fn what_was_expected_is_said() {
        for (text, entry, form) in [
            ("kill=1", "kill=1", KILL),
            ("kill=1#0", "kill=1#0", KILL),
            ("kill=*#4", "kill=*#4", KILL),
            ("stop=#4", "stop=#4", STOP),
            ("delay=5@2", "delay=5@2", DELAY),
            ("delay=5ms", "delay=5ms", DELAY),
            ("delay=5ms-1ms@2", "delay=5ms-1ms@2", DELAY),
            ("delay=-5ms@2", "delay=-5ms@2", DELAY),
            ("delay=infs@2", "delay=infs@2", DELAY),
            ("drop=1-1#4", "drop=1-1#4", DROP),
            ("seed=x", "seed=x", SEED),
            ("kill=1#2,,", "", KINDS),
            ("explode=1#2", "explode=1#2", KINDS),
        ] {
            let expected = format!("'{entry}' is not a fault; expected {form}");
            assert_eq!(parsed(text).map(|faults| faults.to_string()), Err(expected), "{text}");
        }
    }

    #[test]
    fn faults_are_those_of_their_rank_and_operation() {
        let faults = parsed("kill=1#40,delay=5ms@*,stop=2#40").unwrap();
        let actions = |rank, number| -> Vec<Action> {
            faults.of(rank, number).map(|fault| fault.action).collect()
        };
        let time = Duration::from_millis(5);
        let late = Action::Delay { least: time, most: time };
        assert_eq!(actions(1, 40), [Action::Kill, late]);
        assert_eq!(actions(1, 39), [late]);
        assert_eq!(actions(2, 40), [late, Action::Stop]);
    }

    #[test]
    fn random_delays_are_within_their_bounds_and_the_same_with_the_same_seed() {
        let delays = |text: &str| -> Vec<Duration> {
            let faults = parsed(text).unwrap();
            let of = |number| faults.delay(&faults.all[0], 3, number);
            (1..200).map(of).collect()
        };
        let some = delays("delay=1ms-5ms@*,seed=7");
        assert_eq!(some, delays("seed=7,delay=1ms-5ms@*"));
        assert_ne!(some, delays("seed=8,delay=1ms-5ms@*"));
        let bounds = Duration::from_millis(1)..=Duration::from_millis(5);
        assert!(some.iter().all(|delay| bounds.contains(delay)), "{some:?}");
        let early = some.iter().filter(|delay| **delay < Duration::from_millis(3)).count();
        // Of 199, where each half is as likely: within ten standard deviations.
        assert!((30..170).contains(&early), "{early}");
    }
}
