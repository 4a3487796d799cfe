//! Turns of calls whose inputs are rewritten before: how many bursts there are, what they took, and
//! what the measure itself takes. Knows nothing of how ranks agree on a start.
//!
//! Small calls take less time than starting together. So the calls of a burst have each their own
//! buffers, all written before the common start: as many as stay in a core's cache after writing.

use super::messages::{Answer, BurstTimes, Command, MAX_SINGLE_CALLS};
use super::results::{Turns, quantile};
use super::start_timing::StartTiming;
use super::team::{Team, TeamError};
use super::turn_settings::TurnSettings;

/// Starts without calls for each lead that is tried.
const EMPTY_STARTS: u64 = 200;
/// Leads that are tried, nanoseconds: each twice the one before.
const MIN_LEAD_NS: u64 = 500;
const MAX_LEAD_NS: u64 = 512_000;
/// The shortest lead where ranks share cores: more than they sleep at a time, twice over.
const MIN_CROWDED_LEAD_NS: u64 = 256_000;
/// How much more than with the best lead ranks may be late: beyond that, some did not know of the
/// start in time.
const TOLERANCE: f64 = 1.5;
/// Bursts from which a turn's length is estimated.
const TRIAL_BURSTS: u64 = 3;
/// Most calls of a burst: with more, starting together is no longer seen in the times.
const MAX_COPIES: u64 = 64;
/// The part of the second-level cache that the buffers of a burst may fill.
const CACHE_SHARE: u64 = 4;

/// One turn, or a trial, of the slowest rank: seconds of a call.
struct TurnTimes {
    /// Of each burst.
    calls_s: Vec<f64>,
    late_s: f64,
    write_s: f64,
    wrong: u64,
}

/// How many calls a burst has whose ranks have buffers of `bytes`, so that what is written to the
/// buffers stays in a cache of `cache_bytes`, where it would be after writing for one call.
pub(super) fn calls_of_burst(bytes: u64, cache_bytes: Option<u64>, settings: &TurnSettings) -> u64 {
    // An input and an output, which begin in lines of their own.
    let of_call = 2 * bytes.max(64);
    let fitting = cache_bytes.map_or(1, |cache_bytes| cache_bytes / CACHE_SHARE / of_call);
    fitting.min(settings.iterations.unwrap_or(MAX_COPIES)).clamp(1, MAX_COPIES)
}

/// Finds the shortest lead with which the ranks of a team start as punctually as they can.
///
/// # Errors
/// A rank that fails.
pub(super) fn start_timing(team: &mut Team) -> Result<StartTiming, TeamError> {
    // The first starts of a process are slower.
    tell(team, &Command::Empty { iterations: EMPTY_STARTS, lead_ns: MAX_LEAD_NS / 8 })?;
    let mut tried = Vec::new();
    let mut lead_ns = if team.is_crowded { MIN_CROWDED_LEAD_NS } else { MIN_LEAD_NS };
    while lead_ns <= MAX_LEAD_NS {
        let times = tell(team, &Command::Empty { iterations: EMPTY_STARTS, lead_ns })?;
        let late_s = quantile(&slowest(&times, |times| &times.late_ns), 0.9);
        let empty_call_s = quantile(&slowest(&times, |times| &times.burst_ns), 0.5);
        tried.push((late_s, StartTiming { lead_ns, empty_call_s }));
        lead_ns *= 2;
    }
    Ok(shortest(&tried))
}

/// The first that is about as good as the best.
fn shortest(tried: &[(f64, StartTiming)]) -> StartTiming {
    let best_s = tried.iter().map(|(late_s, _)| *late_s).fold(f64::INFINITY, f64::min);
    let is_good = |(late_s, _): &&(f64, StartTiming)| *late_s <= TOLERANCE * best_s;
    tried.iter().find(is_good).map(|(_, timing)| *timing).unwrap_or_default()
}

/// How many bursts of a prepared case a turn has, after the first calls.
///
/// # Errors
/// A rank that fails.
pub(super) fn prepare(
    team: &mut Team,
    settings: &TurnSettings,
    turns: &mut Turns,
) -> Result<u64, TeamError> {
    if let Some(calls) = settings.iterations {
        if settings.warmup > 0 {
            let first = run(team, settings.warmup.div_ceil(turns.burst), turns.burst)?;
            note_wrong(turns, first.wrong);
        }
        return Ok(calls.div_ceil(turns.burst));
    }
    let lead_s = team.start_timing.lead_ns as f64 * 1e-9;
    let mut bursts = settings.warmup.div_ceil(turns.burst).max(TRIAL_BURSTS);
    // A longer trial, because a few calls say little.
    for part in [0.1, 1.0] {
        let trial = run(team, bursts, turns.burst)?;
        note_wrong(turns, trial.wrong);
        let call_s = mean(&trial.calls_s) + trial.write_s;
        let burst_s = call_s * turns.burst as f64 + 2.0 * lead_s;
        bursts = ((part * settings.seconds / burst_s.max(1e-9)) as u64).clamp(1, MAX_SINGLE_CALLS);
    }
    Ok(bursts)
}

/// Adds a turn to `turns`.
///
/// # Errors
/// A rank that fails.
pub(super) fn take_turn(team: &mut Team, turns: &mut Turns) -> Result<(), TeamError> {
    let mut left = turns.iterations;
    let mut all = TurnTimes { calls_s: Vec::new(), late_s: 0.0, write_s: 0.0, wrong: 0 };
    while left > 0 {
        let bursts = left.min(MAX_SINGLE_CALLS);
        let part = run(team, bursts, turns.burst)?;
        let share = bursts as f64 / turns.iterations as f64;
        all.calls_s.extend(part.calls_s);
        all.late_s += part.late_s * share;
        all.write_s += part.write_s * share;
        all.wrong += part.wrong;
        left -= bursts;
    }
    // Some bursts meet an interruption of a rank that waits for the start, which lasts as long as a
    // hundred small calls: their mean would tell of those.
    turns.seconds.push(quantile(&all.calls_s, 0.5));
    turns.single_seconds.extend(all.calls_s);
    turns.late_seconds.push(all.late_s);
    turns.write_seconds.push(all.write_s);
    note_wrong(turns, all.wrong);
    Ok(())
}

fn note_wrong(turns: &mut Turns, wrong: u64) {
    turns.wrong = turns.wrong.map(|known| known + wrong);
}

/// Runs bursts of so many calls, as many as one answer holds at most.
fn run(team: &mut Team, bursts: u64, calls: u64) -> Result<TurnTimes, TeamError> {
    let (lead_ns, iterations) = (team.start_timing.lead_ns, bursts.min(MAX_SINGLE_CALLS));
    let times = tell(team, &Command::Bursts { iterations, lead_ns })?;
    let write_ns = times.iter().map(|times| times.write_ns).max().unwrap_or_default();
    let bursts_s = slowest(&times, |times| &times.burst_ns);
    Ok(TurnTimes {
        calls_s: bursts_s.iter().map(|seconds| seconds / calls as f64).collect(),
        late_s: quantile(&slowest(&times, |times| &times.late_ns), 0.5),
        write_s: write_ns as f64 * 1e-9 / (iterations * calls) as f64,
        wrong: times.iter().map(|times| times.wrong).sum(),
    })
}

fn tell(team: &mut Team, command: &Command) -> Result<Vec<BurstTimes>, TeamError> {
    let times = team.tell(command)?.into_iter().filter_map(|answer| match answer {
        Answer::Bursts(times) | Answer::Empty(times) => Some(times),
        _ => None,
    });
    Ok(times.collect())
}

/// Of each call, the time of the rank that took longest, seconds.
fn slowest(ranks: &[BurstTimes], pick: fn(&BurstTimes) -> &[u64]) -> Vec<f64> {
    let calls = ranks.iter().map(|times| pick(times).len()).min().unwrap_or_default();
    let of_call = |call| ranks.iter().map(|times| pick(times)[call]).max().unwrap_or_default();
    (0..calls).map(|call| of_call(call) as f64 * 1e-9).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_burst_writes_stays_in_the_cache() {
        let settings =
            TurnSettings { turns: 1, iterations: None, seconds: 0.1, warmup: 0, check: true };
        let calls = |bytes| calls_of_burst(bytes, Some(1 << 20), &settings);
        assert_eq!([4, 4 << 10, 64 << 10, 1 << 20].map(calls), [64, 32, 2, 1]);
        assert_eq!(calls_of_burst(4, None, &settings), 1);
        let few = TurnSettings { iterations: Some(5), ..settings };
        assert_eq!(calls_of_burst(4, Some(1 << 20), &few), 5);
    }

    #[test]
    fn a_call_takes_until_its_last_rank_has_ended() {
        let of_rank =
            |burst_ns: &[u64]| BurstTimes { burst_ns: burst_ns.to_vec(), ..BurstTimes::default() };
        let ranks = [of_rank(&[500, 900, 100]), of_rank(&[700, 200, 100])];
        let calls_ns: Vec<f64> =
            slowest(&ranks, |times| &times.burst_ns).iter().map(|s| (s * 1e9).round()).collect();
        assert_eq!(calls_ns, [700.0, 900.0, 100.0]);
        assert!(slowest(&[], |times| &times.burst_ns).is_empty());
    }

    #[test]
    fn the_lead_is_the_shortest_that_lets_ranks_be_punctual() {
        let timing = |lead_ns| StartTiming { lead_ns, empty_call_s: 0.0 };
        let tried = [(9e-6, 500), (3e-6, 1000), (7e-8, 2000), (5e-8, 4000), (6e-8, 8000)];
        let tried = tried.map(|(late_s, lead_ns)| (late_s, timing(lead_ns)));
        assert_eq!(shortest(&tried), timing(2000));
        assert_eq!(shortest(&[]), StartTiming::default());
    }
}
