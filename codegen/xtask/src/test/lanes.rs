//! In which order steps run: those that other steps wait for one after the other, and the rest
//! beside them, with what the first leave of the processor. Knows nothing of what a step does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::steps::Step;
use super::{Outcome, Verdict};

/// Runs `steps` with `run`, which is given how those went that the step needs; each runs after
/// those that it needs. The outcomes, in the order of the steps' ends.
pub(super) fn run(
    steps: Vec<Step>,
    run: &(impl Fn(Step, &[Verdict]) -> Outcome + Sync),
) -> Vec<Outcome> {
    let outcomes = Outcomes {
        expected: steps.iter().map(|step| step.name).collect(),
        ended: Mutex::default(),
        changed: Condvar::new(),
    };
    let (beside, steps): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| step.runs_beside);
    thread::scope(|scope| {
        scope.spawn(|| {
            yield_the_processor();
            run_lane(beside, &outcomes, run);
        });
        run_lane(steps, &outcomes, run);
    });
    outcomes.ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_lane(
    steps: Vec<Step>,
    outcomes: &Outcomes,
    run: &(impl Fn(Step, &[Verdict]) -> Outcome + Sync),
) {
    for step in steps {
        for name in step.after.iter().filter(|name| outcomes.expected.contains(name)) {
            outcomes.wait_for(name);
        }
        let before: Vec<Verdict> = step.needs.iter().map(|name| outcomes.wait_for(name)).collect();
        outcomes.add(run(step, &before));
    }
}

/// How steps went, for both lanes.
struct Outcomes {
    /// The names of all steps that run.
    expected: Vec<&'static str>,
    ended: Mutex<Vec<Outcome>>,
    changed: Condvar,
}

impl Outcomes {
    fn add(&self, outcome: Outcome) {
        self.lock().push(outcome);
        self.changed.notify_all();
    }

    /// Waits until the step `name` has ended. It is among the steps, before those that need it.
    fn wait_for(&self, name: &str) -> Verdict {
        let mut ended = self.lock();
        loop {
            if let Some(outcome) = ended.iter().find(|outcome| outcome.name == name) {
                return outcome.verdict;
            }
            ended = self.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives this thread, and all that it starts, what others leave of the processor. Only Linux has
/// that for a thread; elsewhere the lanes are equals.
fn yield_the_processor() {
    #[cfg(target_os = "linux")]
    // Where it is not permitted, the steps run all the same.
    let _ = rustix::process::setpriority_process(None, 19);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::super::TestCounts;
    use super::super::steps::Action;
    use super::*;

    fn step(name: &'static str, needs: &'static [&'static str], runs_beside: bool) -> Step {
        let action = Action::Run(Command::new("true"));
        let after = &["lints", "absent"];
        Step { name, about: "", needs, after, runs_beside, is_long: false, action }
    }

    #[test]
    fn a_step_runs_after_those_that_it_needs_whatever_lane_they_are_in() {
        let steps = vec![
            Step { after: &[], ..step("setup", &[], false) },
            Step { after: &[], ..step("lints", &["setup"], true) },
            step("module", &[], true),
            step("suite", &["module"], false),
        ];
        let outcomes = run(steps, &|step, before: &[Verdict]| {
            assert!(before.iter().all(|verdict| *verdict == Verdict::Passed));
            Outcome::new(step.name, Verdict::Passed, TestCounts::ONE_PASSED, Duration::ZERO)
        });
        let place = |name| outcomes.iter().position(|outcome| outcome.name == name);
        assert_eq!(outcomes.len(), 4);
        let order = ["setup", "lints", "module", "suite"].map(place);
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn a_step_hears_that_what_it_needs_has_failed() {
        let steps = vec![step("setup", &[], false), step("suite", &["setup"], true)];
        let outcomes = run(steps, &|step, before: &[Verdict]| {
            let failed = before.contains(&Verdict::Failed) || step.needs.is_empty();
            let verdict = if failed { Verdict::Failed } else { Verdict::Passed };
            Outcome::new(step.name, verdict, TestCounts::ONE_FAILED, Duration::ZERO)
        });
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Failed));
    }
}
