//! `cargo xtask churn`: replicas in Python, Rust and Node learn the digits together while one after
//! the other is killed, stopped, slowed and started anew. Whatever happens, training has to go on,
//! with the same bits in all. What a replica does is written in `tests/demo/learner.py` and
//! `learner.mjs` and in `tests/examples/learner.rs`.

mod disturb;
mod judge;
mod replica;
mod report;
mod totals;

use std::fs;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::Progress;
use crate::workspace::Workspace;
use crate::{node, python, setup};
use disturb::{Chance, Disturber, EventKind};
use judge::Judge;
use replica::{Lighthouse, Line, Programs, Replica};
use totals::Totals;

/// How often the judge looks whether something is missing.
const LOOK: Duration = Duration::from_millis(100);
/// How long replicas have to start, and to end together.
const PATIENCE: Duration = Duration::from_secs(90);

/// The options of `cargo xtask churn`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many times something happens to a replica
    #[arg(long, default_value_t = 200)]
    events: u32,
    /// What happens, when and to whom; a run with the same seed has the same events
    #[arg(long)]
    seed: Option<u64>,
    /// Replicas that run the Python program
    #[arg(long, default_value_t = 3)]
    python: u32,
    /// Replicas that run the Rust program
    #[arg(long, default_value_t = 2)]
    rust: u32,
    /// Replicas that run the JavaScript program, in Node
    #[arg(long, default_value_t = 1)]
    node: u32,
    /// How long a step computes at least, in milliseconds
    #[arg(long, default_value_t = 20)]
    pace_ms: u64,
    /// Go on after earlier runs: with the next seed, and with what they found in the totals
    #[arg(long)]
    resume: bool,
    /// Build nothing: the programs are there
    #[arg(long)]
    built: bool,
}

/// Lets things happen to replicas, and judges what they do.
///
/// # Errors
/// A build fails, or a program cannot be started.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let replicas = arguments.python + arguments.rust + arguments.node;
    ensure!(replicas > 1, "--python, --rust and --node: at least two replicas have to be there");
    let workspace = Workspace::find()?;
    if !arguments.built {
        build(&workspace, arguments)?;
    }
    let folder = workspace.target("churn");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let totals = folder.join("totals.json");
    let mut totals = if arguments.resume { Totals::read(totals)? } else { Totals::none(totals) };
    let seed = arguments.seed.or(totals.next_seed()).unwrap_or_else(random_seed);
    let folder = folder.join(seed.to_string());
    // What an earlier run with this seed has left.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    eprintln!("[churn] --seed {seed} --events {}; logs: {}", arguments.events, folder.display());
    let programs = Programs::new(&workspace, &folder, arguments);

    let began = Instant::now();
    let mut churned = Run::start(&programs, "churn", i64::MAX)?;
    let outcome = churned.disturb(Disturber::new(Chance::new(seed), arguments.events));
    let outcome = outcome.and_then(|()| churned.end());
    // Who still runs would only disturb what follows.
    let Run { judge, .. } = churned;
    report::show(&judge);
    let outcome = outcome.and_then(|()| compare(&programs, &judge));
    let failure = outcome.err().map(|error| format!("{error:#}"));
    totals.add(seed, &judge, began.elapsed(), failure.clone())?;
    if arguments.resume {
        println!("{}", totals.summary());
    }
    let Some(failure) = failure else { return Ok(ExitCode::SUCCESS) };
    eprintln!("[churn] FAILED: {failure}");
    eprintln!("[churn] again: cargo xtask churn --seed {seed} --events {}", arguments.events);
    Ok(ExitCode::FAILURE)
}

/// Has replicas train as many steps with nobody disturbed, and compares what came of it.
fn compare(programs: &Programs, judge: &Judge) -> Result<()> {
    let steps = judge.steps();
    eprintln!("[churn] the same {steps} steps with nobody disturbed");
    let unpaced = programs.unpaced();
    let mut quiet = Run::start(&unpaced, "quiet", steps)?;
    quiet.finish().context("nobody was disturbed")?;
    report::compare(judge, &quiet.judge)
}

fn build(workspace: &Workspace, ranks: &Arguments) -> Result<()> {
    let progress = Progress::new(workspace.target("xtask"))?;
    setup::python(workspace, &progress)?;
    setup::node(workspace, &progress)?;
    progress.clear("churn")?;
    progress.demand("churn", &mut workspace.build_for_suites())?;
    if ranks.python > 0 {
        python::place(workspace, "debug")?;
    }
    if ranks.node > 0 {
        node::place(workspace, "debug")?;
    }
    Ok(())
}

/// A lighthouse with its replicas, by their numbers; a number may have none just now.
pub(crate) struct Run<'programs> {
    programs: &'programs Programs,
    lighthouse: Lighthouse,
    replicas: Vec<Option<Replica>>,
    lines: Receiver<Line>,
    judge: Judge,
    bar: Option<ProgressBar>,
}

impl<'programs> Run<'programs> {
    /// Starts all of them, and waits until they train together. They end after `steps`.
    fn start(programs: &'programs Programs, name: &str, steps: i64) -> Result<Run<'programs>> {
        let (sender, lines) = channel();
        let lighthouse = Lighthouse::start(programs, name, steps, sender)?;
        let replicas = programs.numbers().map(|_| None).collect();
        let (judge, bar) = (Judge::default(), bar());
        let mut run = Run { programs, lighthouse, replicas, lines, judge, bar };
        for number in programs.numbers() {
            run.add(number)?;
        }
        let size = run.replicas.len();
        run.until("all train together", |run| run.together() == size)?;
        Ok(run)
    }

    /// Starts the replica of this number.
    fn add(&mut self, number: usize) -> Result<()> {
        let replica = self.programs.start(number, &self.lighthouse)?;
        self.judge.expect(replica.id, &replica.name);
        self.replicas[number] = Some(replica);
        Ok(())
    }

    /// Lets everything happen that the disturber thinks of.
    fn disturb(&mut self, mut disturber: Disturber) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_length(disturber.events().into());
        }
        while let Some(at) = disturber.next() {
            self.listen_until(at)?;
            let Some(event) = disturber.act(&mut self.replicas)? else { continue };
            if event.kind == EventKind::Add {
                self.add(event.number)?;
            }
            self.judge.happened(event, &self.replicas);
            let (kind, number) = (event.kind.name(), event.number);
            match &self.bar {
                Some(bar) => bar.inc(1),
                None => eprintln!("[churn] {kind} {number}; {}", self.judge.summary()),
            }
        }
        Ok(())
    }

    /// How many train together, as all see it that are there.
    fn together(&self) -> usize {
        self.judge.largest(self.replicas.iter().flatten().map(|replica| replica.id))
    }

    /// Has all of them train together once more, and end after the same step.
    fn end(&mut self) -> Result<()> {
        for number in 0..self.replicas.len() {
            if self.replicas[number].is_none() {
                self.add(number)?;
            }
        }
        let size = self.replicas.len();
        self.until("all train together at the end", |run| run.together() == size)?;
        for replica in self.replicas.iter_mut().flatten() {
            replica.order("stop");
        }
        self.finish()
    }

    /// Waits until all have ended.
    fn finish(&mut self) -> Result<()> {
        let size = self.replicas.len();
        while self.judge.ended() < size {
            self.listen(LOOK)?;
            let silence = self.judge.silence().as_secs();
            ensure!(silence < PATIENCE.as_secs(), "some do not end\n{}", self.judge.last_words());
        }
        for replica in self.replicas.iter_mut().flatten() {
            replica.finish(PATIENCE)?;
        }
        Ok(())
    }

    /// Takes lines until then.
    fn listen_until(&mut self, at: Instant) -> Result<()> {
        while let Some(rest) = at.checked_duration_since(Instant::now()) {
            self.listen(rest.min(LOOK))?;
        }
        Ok(())
    }

    /// Takes lines until `is_so`.
    fn until(&mut self, what: &str, is_so: impl Fn(&Run<'_>) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            if Instant::now() > deadline {
                bail!("not within {} s: {what}\n{}", PATIENCE.as_secs(), self.judge.last_words());
            }
            self.listen(LOOK)?;
        }
        Ok(())
    }

    /// Takes what is said within `time`, and judges it.
    fn listen(&mut self, time: Duration) -> Result<()> {
        match self.lines.recv_timeout(time) {
            Ok(line) => {
                let is_end = line.text.is_none();
                let id = line.id;
                self.judge.hear(line)?;
                if is_end {
                    self.check_end(id)?;
                }
                if let Some(bar) = &self.bar {
                    bar.set_message(self.judge.summary());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("all replicas are gone"),
        }
        self.judge.check_silence(&self.replicas)
    }

    /// A replica's output has ended: nobody else but us may have ended it.
    fn check_end(&mut self, id: u32) -> Result<()> {
        let found = self.replicas.iter_mut().flatten().find(|replica| replica.id == id);
        let Some(replica) = found else { return Ok(()) };
        if self.judge.has_ended(id) {
            return Ok(());
        }
        let name = replica.name.clone();
        let status = replica.wait(PATIENCE)?;
        let log = replica.log.display();
        bail!("{name} was not touched, and ended with {status}; what it wrote is in {log}")
    }
}

/// Another one each time, short enough to be typed.
fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos())
}

fn bar() -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    Some(bar)
}
