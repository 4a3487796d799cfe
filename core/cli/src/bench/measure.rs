//! Measures one case: every contender prepares it, and then they take turns, so that whatever else
//! the machine does meets all alike (A B C, C B A, …). Knows nothing of tables or files.

use super::inputs::Inputs;
use super::messages::{Answer, Case, Command, MAX_SINGLE_CALLS, RunTimes};
use super::results::Turns;
use super::rewritten;
use super::team::{Team, TeamError};
use super::turn_settings::TurnSettings;

/// More calls than this in one turn do not improve the result.
const MAX_ITERATIONS: u64 = 20_000;
/// Calls from which a turn's length is estimated.
const TRIAL_CALLS: u64 = 5;

/// Reason where an operation does not have the forced algorithm.
const LACKS_ALGORITHM: &str = "it has no such algorithm";

/// The result of one contender in one case.
pub(super) enum Outcome {
    Measured(Turns),
    /// It cannot do this.
    Unsupported(String),
    /// It cannot continue at all.
    Failed(String),
}

/// Measures `case` on all teams, by one of the two measures; one outcome for each, in order.
///
/// # Errors
/// The user wants to end.
pub(super) fn measure(
    teams: &mut [Team],
    case: &Case,
    inputs: Inputs,
    settings: &TurnSettings,
    mut on_turn: impl FnMut(),
) -> Result<Vec<Outcome>, Interruption> {
    let mut outcomes = Vec::new();
    for team in teams.iter_mut() {
        let prepared = prepare(team, case, inputs, settings);
        outcomes.push(settle(prepared)?);
    }
    for turn in 0..settings.turns {
        let mut order: Vec<usize> = (0..teams.len()).collect();
        // The last of one turn is the first of the next.
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Outcome::Measured(turns) = &mut outcomes[at] else { continue };
            let taken = match inputs {
                Inputs::Rewritten => rewritten::take_turn(&mut teams[at], turns),
                Inputs::Untouched => take_turn(&mut teams[at], turns),
            };
            if let Err(trouble) = taken {
                outcomes[at] = settle(Err(trouble))?;
            }
        }
        on_turn();
    }
    Ok(outcomes)
}

/// The user wants to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interruption;

fn settle(result: Result<Outcome, TeamError>) -> Result<Outcome, Interruption> {
    match result {
        Ok(outcome) => Ok(outcome),
        Err(TeamError::Failed(why)) => Ok(Outcome::Failed(why)),
        Err(TeamError::Interrupted) => Err(Interruption),
    }
}

fn prepare(
    team: &mut Team,
    case: &Case,
    inputs: Inputs,
    settings: &TurnSettings,
) -> Result<Outcome, TeamError> {
    if team.unsupported.contains(&case.operation) {
        return Ok(Outcome::Unsupported(LACKS_ALGORITHM.to_owned()));
    }
    for answer in team.tell(&Command::Prepare(case.clone()))? {
        if let Answer::Unsupported { why } = answer {
            return Ok(Outcome::Unsupported(why));
        }
    }
    let mut turns = Turns::default();
    // The call is needed even without `--check`, because it opens the connections.
    let wrong = team.tell(&Command::Check)?.into_iter().map(|answer| match answer {
        Answer::Checked { wrong } => wrong,
        _ => 0,
    });
    let wrong = wrong.sum();
    turns.wrong = settings.check.then_some(wrong);
    if inputs == Inputs::Rewritten {
        turns.burst = case.copies;
        turns.iterations = rewritten::prepare(team, settings, &mut turns)?;
        return Ok(Outcome::Measured(turns));
    }
    if settings.warmup > 0 {
        run(team, settings.warmup)?;
    }
    turns.iterations = match settings.iterations {
        Some(iterations) => iterations,
        None => {
            let trial = run(team, TRIAL_CALLS)?;
            // A longer trial, because a few calls say little.
            let trial = run(team, fitting(settings.seconds / 10.0, trial.seconds))?;
            fitting(settings.seconds, trial.seconds)
        }
    };
    Ok(Outcome::Measured(turns))
}

fn take_turn(team: &mut Team, turns: &mut Turns) -> Result<(), TeamError> {
    let RunTimes { seconds, cpu_seconds } = run(team, turns.iterations)?;
    turns.seconds.push(seconds);
    turns.cpu_seconds.push(cpu_seconds);
    let iterations = turns.iterations.div_ceil(4).clamp(3, MAX_SINGLE_CALLS);
    let mut slowest = vec![0f64; iterations as usize];
    for answer in team.tell(&Command::Each { iterations })? {
        let Answer::Each { seconds } = answer else { continue };
        for (slowest, seconds) in slowest.iter_mut().zip(seconds) {
            *slowest = slowest.max(seconds);
        }
    }
    turns.single_seconds.extend(slowest);
    Ok(())
}

/// What one call takes: the time of the slowest rank, and the CPU time of all ranks.
fn run(team: &mut Team, iterations: u64) -> Result<RunTimes, TeamError> {
    let (mut slowest, mut cpu) = (0f64, 0.0);
    for answer in team.tell(&Command::Run { iterations })? {
        if let Answer::Ran { seconds, cpu_seconds } = answer {
            slowest = slowest.max(seconds);
            cpu += cpu_seconds;
        }
    }
    let iterations = iterations as f64;
    Ok(RunTimes { seconds: slowest / iterations, cpu_seconds: cpu / iterations })
}

/// How many calls of `each` seconds fit into `seconds`.
fn fitting(seconds: f64, each: f64) -> u64 {
    // If the clock did not move, there may be many.
    let calls = seconds / each.max(1e-9);
    (calls as u64).clamp(1, MAX_ITERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_at_least_one_call_and_an_end() {
        assert_eq!(fitting(0.03, 1e-6), 20_000);
        assert_eq!(fitting(0.03, 1e-4), 300);
        assert_eq!(fitting(0.03, 10.0), 1);
        assert_eq!(fitting(0.03, 0.0), MAX_ITERATIONS);
        assert_eq!(fitting(0.03, f64::NAN), MAX_ITERATIONS);
    }
}
