//! `cargo xtask test`: every check and every suite, in their order, and a table at the end.
//! Knows how the tools count; nothing of what they test. The steps are in `test/steps.rs`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::progress::Progress;
use crate::workspace::Workspace;

mod failures;
mod lanes;
mod skips;
mod steps;

use steps::{Action, Step, steps};

/// Lines of a failed step's output that are shown; the whole of it is in its log.
const SHOWN_LINES: usize = 200;

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only this step (and what it needs); may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run what takes longer, too, as before a release: more ways to build the crate, and suites
    /// over MPI in all sizes and languages
    #[arg(long)]
    all: bool,
    /// Show the steps and end
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// How many tests of a step passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TestCounts {
    passed: u64,
    failed: u64,
}

impl TestCounts {
    const ONE_PASSED: TestCounts = TestCounts { passed: 1, failed: 0 };
    const ONE_FAILED: TestCounts = TestCounts { passed: 0, failed: 1 };
}

/// How one step went.
struct Outcome {
    name: &'static str,
    verdict: Verdict,
    counts: TestCounts,
    /// The tests that were skipped, by name, with the reason.
    skipped: BTreeSet<String>,
    /// What the tests that failed said first.
    failures: Vec<String>,
    took: Duration,
    note: String,
}

impl Outcome {
    fn new(name: &'static str, verdict: Verdict, counts: TestCounts, took: Duration) -> Outcome {
        let (skipped, failures) = (BTreeSet::new(), Vec::new());
        Outcome { name, verdict, counts, skipped, failures, took, note: String::new() }
    }
}

/// Runs the steps; the exit code is 0 if nothing failed.
///
/// # Errors
/// An unknown step, or logs that cannot be written. A step that fails is not an error but a line of
/// the table.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let steps = steps(&workspace, arguments.all)?;
    if arguments.list {
        for step in &steps {
            let when = if step.is_long { " (with --all)" } else { "" };
            println!("{:12} {}{when}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&steps, arguments)?;
    let left_out = steps.iter().filter(|step| step.is_long && !chosen.contains(&step.name));
    let left_out: Vec<_> = left_out.map(|step| step.name).collect();
    let progress = Progress::new(workspace.target("xtask"))?;
    let steps = steps.into_iter().filter(|step| chosen.contains(&step.name));
    let started = Instant::now();
    let run = |step: Step, before: &[Verdict]| run_step(step, before, &workspace, &progress);
    let outcomes = lanes::run(steps.collect(), &run);
    let code = summarise(&outcomes, started.elapsed());
    if arguments.only.is_empty() && !arguments.all {
        println!("not run without --all: {}, and the longest tests of rust", left_out.join(", "));
    }
    Ok(code)
}

/// The steps to run: all but long ones, all, or those asked for with the steps that they need.
fn choose(steps: &[Step], Arguments { only, all, .. }: &Arguments) -> Result<Vec<&'static str>> {
    if only.is_empty() {
        let steps = steps.iter().filter(|step| *all || !step.is_long);
        return Ok(steps.map(|step| step.name).collect());
    }
    let mut chosen = Vec::new();
    let mut open: Vec<&str> = only.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let Some(step) = steps.iter().find(|step| step.name == name) else {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            bail!("no step is called {name:?}; expected one of {}", names.join(", "));
        };
        if !chosen.contains(&step.name) {
            chosen.push(step.name);
            open.extend(step.needs);
        }
    }
    Ok(chosen)
}

/// Runs a step to its end, if the steps that it needs have passed, and shows its outcome.
fn run_step(step: Step, before: &[Verdict], workspace: &Workspace, progress: &Progress) -> Outcome {
    let name = step.name;
    let needed = step.needs.iter().zip(before).find(|(_, verdict)| **verdict != Verdict::Passed);
    let outcome = match needed {
        Some((needed, _)) => {
            let note = format!("needs {needed}");
            Outcome {
                note,
                ..Outcome::new(name, Verdict::Failed, TestCounts::ONE_FAILED, Duration::ZERO)
            }
        }
        None => outcome_of(step, workspace, progress),
    };
    eprintln!("{}", row(&outcome));
    outcome
}

fn outcome_of(step: Step, workspace: &Workspace, progress: &Progress) -> Outcome {
    let name = step.name;
    let started = Instant::now();
    let failed = |error: &anyhow::Error| {
        eprintln!("{error:#}");
        Outcome::new(name, Verdict::Failed, TestCounts::ONE_FAILED, started.elapsed())
    };
    if let Err(error) = progress.clear(name) {
        return failed(&error);
    }
    let mut command = match step.action {
        Action::Prepare(prepare) => {
            return match prepare(workspace, progress) {
                Ok(()) => {
                    Outcome::new(name, Verdict::Passed, TestCounts::ONE_PASSED, started.elapsed())
                }
                Err(error) => failed(&error),
            };
        }
        Action::Run(command) => command,
        Action::RunIf(command, mut probe) => {
            if !probe.output().is_ok_and(|output| output.status.success()) {
                let note = format!("what {name} needs is not to be had here");
                let skipped = BTreeSet::from([format!("the whole step: {note}")]);
                let counts = TestCounts::default();
                let outcome = Outcome::new(name, Verdict::Skipped, counts, started.elapsed());
                return Outcome { skipped, note, ..outcome };
            }
            command
        }
    };
    let finished = match progress.run(name, &mut command) {
        Ok(finished) => finished,
        Err(error) => return failed(&error),
    };
    let mut counts = totals(&finished.output, finished.success);
    // Our own tests cannot tell cargo that they were skipped: it counts them as passed.
    counts.passed = counts.passed.saturating_sub(skips::counted_as_passed(&finished.output));
    let skipped = skips::skipped(&finished.output);
    let verdict = if finished.success { Verdict::Passed } else { Verdict::Failed };
    let outcome = Outcome { skipped, ..Outcome::new(name, verdict, counts, finished.took) };
    if finished.success {
        return outcome;
    }
    show_failure(name, &finished.output);
    let failures = failures::in_short(&finished.output);
    Outcome { failures, note: format!("see {}", progress.log(name).display()), ..outcome }
}

fn show_failure(name: &str, output: &str) {
    let lines: Vec<&str> = output.lines().collect();
    let reports = failures::reports(&lines);
    if !reports.is_empty() {
        eprintln!("---- {name} failed; what its tests said:\n{}\n----", reports.join("\n"));
        return;
    }
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    eprintln!("---- {name} failed; the last {} lines of its output:", shown.len());
    eprintln!("{}\n----", shown.join("\n"));
}

/// Adds up what the tools counted; a tool that counts nothing is one check.
fn totals(output: &str, success: bool) -> TestCounts {
    let mut total = TestCounts::default();
    for TestCounts { passed, failed } in output.lines().filter_map(counted) {
        total.passed += passed;
        total.failed += failed;
    }
    match success {
        true if total == TestCounts::default() => TestCounts::ONE_PASSED,
        true => total,
        // A suite that does not compile, or dies, has failed whatever was counted.
        false => TestCounts { failed: total.failed.max(1), ..total },
    }
}

/// Reads "test result: ok. 3 passed; 1 failed; …" (cargo), "3 passed, 1 error in 0.2s" (pytest),
/// "3 passed, 1 failed" (ours), and the two lines "# pass 3" and "# fail 1" (Node).
fn counted(line: &str) -> Option<TestCounts> {
    if let Some((word, count)) = line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) {
        let count = count.parse().ok()?;
        return match word {
            "pass" => Some(TestCounts { passed: count, failed: 0 }),
            "fail" => Some(TestCounts { passed: 0, failed: count }),
            _ => None,
        };
    }
    let line = line.trim_matches(['=', ' ']);
    let line = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1,
        None => line,
    };
    if !line.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let (mut passed, mut failed, mut found) = (0, 0, false);
    for entry in line.split([',', ';']) {
        let mut words = entry.split_whitespace();
        let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        match words.next() {
            Some("passed") => (passed, found) = (passed + count, true),
            Some("failed" | "error" | "errors") => (failed, found) = (failed + count, true),
            _ => {}
        }
    }
    found.then_some(TestCounts { passed, failed })
}

fn row(outcome: &Outcome) -> String {
    let verdict = match outcome.verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    };
    let Outcome { name, counts, skipped, took, note, .. } = outcome;
    let TestCounts { passed, failed } = counts;
    let (skipped, seconds) = (skipped.len(), took.as_secs_f64());
    let counts = format!("{passed:>7} {failed:>7} {skipped:>8}");
    let line = format!("{name:12} {verdict:8} {counts} {seconds:>8.1} s  {note}");
    line.trim_end().to_owned()
}

/// Prints the table and the closing line.
fn summarise(outcomes: &[Outcome], took: Duration) -> ExitCode {
    let counts = format!("{:>7} {:>7} {:>8}", "passed", "failed", "skipped");
    println!("\n{:12} {:8} {counts} {:>10}", "step", "result", "time");
    for outcome in outcomes {
        println!("{}", row(outcome));
    }
    let sum = |value: fn(&Outcome) -> u64| outcomes.iter().map(value).sum::<u64>();
    let passed = sum(|outcome| outcome.counts.passed);
    let failed = sum(|outcome| outcome.counts.failed);
    println!("{:12} {:44.1} s", "", took.as_secs_f64());
    list("skipped", outcomes.iter().flat_map(|it| it.skipped.iter().map(|what| (it.name, what))));
    list("failed", outcomes.iter().flat_map(|it| it.failures.iter().map(|what| (it.name, what))));
    let skips: usize = outcomes.iter().map(|outcome| outcome.skipped.len()).sum();
    println!("\n{passed} passed, {failed} failed, {skips} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what steps have to say below a title, if anything.
fn list<'a>(title: &str, told: impl Iterator<Item = (&'static str, &'a String)>) {
    let mut told = told.peekable();
    if told.peek().is_some() {
        println!("\n{title}:");
    }
    told.for_each(|(step, what)| println!("  {step}: {what}"));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_tools_own_counts_are_read() {
        let counted = |line| counted(line).map(|counts| (counts.passed, counts.failed));
        let cargo = "test result: FAILED. 18 passed; 2 failed; 1 ignored; 0 measured; finished";
        assert_eq!(counted(cargo), Some((18, 2)));
        assert_eq!(counted("=== 3 failed, 12 passed, 1 error in 0.50s ==="), Some((12, 4)));
        assert_eq!(counted("12 passed in 0.50s"), Some((12, 0)));
        assert_eq!(counted("17 passed, 0 failed"), Some((17, 0)));
        assert_eq!(counted("# pass 5"), Some((5, 0)));
        assert_eq!(counted("# fail 1"), Some((0, 1)));
        assert_eq!(counted("# tests 6"), None);
        assert_eq!(counted("test a_test_that ... ok"), None);
        assert_eq!(counted("0 errors, 0 warnings, 0 informations"), Some((0, 0)));
    }

    #[test]
    fn a_step_counts_at_least_once() {
        let totals = |output, success| {
            let TestCounts { passed, failed } = totals(output, success);
            (passed, failed)
        };
        assert_eq!(totals("nothing", true), (1, 0));
        assert_eq!(totals("nothing", false), (0, 1));
        assert_eq!(totals("3 passed\n4 passed, 2 failed", false), (7, 2));
        assert_eq!(totals("3 passed", false), (3, 1));
    }

    #[test]
    fn steps_bring_what_they_need_in_order() {
        let steps = steps(&Workspace::find().unwrap(), false).unwrap();
        let only = |name: &str| Arguments { only: vec![name.into()], all: false, list: false };
        let chosen = choose(&steps, &only("pytest")).unwrap();
        assert_eq!(chosen, ["pytest", "build", "setup", "extension"]);
        assert!(choose(&steps, &only("nonsense")).is_err());
        // Long steps run when they are asked for.
        assert_eq!(choose(&steps, &only("misuse")).unwrap(), ["misuse"]);
        let usual = choose(&steps, &Arguments { only: vec![], all: false, list: false }).unwrap();
        assert!(usual.contains(&"rust") && !usual.contains(&"misuse"));
        let all = choose(&steps, &Arguments { only: vec![], all: true, list: false }).unwrap();
        assert_eq!(all.len(), steps.len());
        for (index, step) in steps.iter().enumerate() {
            for need in step.needs {
                let before = &steps[..index];
                assert!(before.iter().any(|other| other.name == *need), "{} {need}", step.name);
            }
        }
    }
}
