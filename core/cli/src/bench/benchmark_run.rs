//! The course of one run: finds and starts the contenders, measures case after case, shows the
//! tables, and keeps what was measured. Knows nothing of the ranks' insides.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::Benchmark;
use super::build::Build;
use super::find::ContenderPrograms;
use super::inputs::Inputs;
use super::library::{Contender, Library, Peer};
use super::local_names::LocalNames;
use super::machine::{self, Machine};
use super::measure::{Interruption, Outcome, measure};
use super::messages::{Answer, Case, Command};
use super::operation::{Extent, Operation};
use super::pattern::Reduction;
use super::peer_settings;
use super::results::{CaseReport, FORMAT, MeasuredCase, MemoryReport, Report, StartReport};
use super::rewritten::{calls_of_burst, start_timing};
use super::scripts::Scripts;
use super::start_timing::StartTiming;
use super::table::{Table, footer, memory_lines, start_lines};
use super::team::{Limits, Team, TeamError};
use polyrank::DType;

use crate::sizes;

/// One run.
pub(super) struct BenchmarkRun {
    benchmark: Benchmark,
    /// The contenders whose programs were found, with these.
    contenders: Vec<(Contender, ContenderPrograms)>,
    terms: Limits,
    report: Report,
    failures: Vec<String>,
    /// Contenders whose programs are missing.
    absent: Vec<String>,
    progress: ProgressBar,
    /// Where the script of Python's ranks lies until the end.
    _scripts: Scripts,
}

/// Why nothing can be measured.
pub(super) enum StartError {
    /// None of the contenders is installed.
    Absence,
    /// Another reason, in words.
    Failure(String),
}

/// The result of a run.
pub(super) struct Measurement {
    pub(super) report: Report,
    /// What went wrong.
    pub(super) failures: Vec<String>,
    /// Contenders that were asked for but are missing.
    pub(super) absent: Vec<String>,
}

/// Most sizes that are named because they differ from those that were asked for.
const MAX_NAMED_SIZES: usize = 4;

/// What a table is about.
#[derive(Clone, Copy)]
struct Topic {
    operation: Operation,
    dtype: DType,
    reduction: Reduction,
    ranks: u32,
}

impl BenchmarkRun {
    /// Finds the programs that are needed, and says which are missing.
    ///
    /// # Errors
    /// Nothing is left to measure.
    pub(super) fn new(
        benchmark: Benchmark,
        interrupted: Arc<AtomicBool>,
    ) -> Result<BenchmarkRun, StartError> {
        let scripts = Scripts::write().map_err(|error| {
            StartError::Failure(format!("cannot write the script of Python's ranks: {error}"))
        })?;
        let (mut contenders, mut missing) = (Vec::new(), BTreeMap::new());
        let mut absent = Vec::new();
        for contender in &benchmark.contenders {
            match benchmark.programs.find(contender) {
                Ok(found) => contenders.push((contender.clone(), found)),
                Err(lack) => {
                    super::say(&format!("missing: {}\n    {}", lack.what, lack.advice));
                    missing.insert(contender.name.clone(), lack.what);
                    absent.push(contender.name.clone());
                }
            }
        }
        let Some((reference, _)) = contenders.first() else {
            return Err(StartError::Absence);
        };
        let report = Report {
            made_by: "polyrank bench",
            format: FORMAT,
            build: Build::here(),
            title: benchmark.title.clone(),
            date: machine::now(),
            machine: Machine::here(),
            load: [machine::load(), None],
            versions: BTreeMap::new(),
            settings: BTreeMap::new(),
            reference: reference.name.clone(),
            missing,
            cases: Vec::new(),
            starts: Vec::new(),
            memory: Vec::new(),
        };
        let terms = Limits {
            limit: benchmark.step_timeout,
            interrupted,
            script: scripts.python(),
            names: LocalNames::prepare(scripts.folder()),
            pinned_cores: benchmark.pinned_cores.clone(),
            offset_bytes: benchmark.offset_bytes,
        };
        let progress = progress(&benchmark);
        let failures = Vec::new();
        Ok(BenchmarkRun {
            benchmark,
            contenders,
            terms,
            report,
            failures,
            absent,
            progress,
            _scripts: scripts,
        })
    }

    /// Measures everything.
    ///
    /// # Errors
    /// The user wants to end; what was measured until then is kept.
    pub(super) fn run(&mut self) -> Result<(), Interruption> {
        self.note_settings();
        self.introduce();
        for ranks in self.benchmark.ranks.clone() {
            let mut teams = self.start(ranks)?;
            self.measure_starts(ranks, &mut teams)?;
            for topic in self.topics(ranks) {
                if !teams.is_empty() {
                    self.measure_topic(topic, &mut teams)?;
                }
            }
            self.measure_memory(ranks, &mut teams);
            for team in teams {
                if let Err(TeamError::Failed(why)) = team.end() {
                    self.failures.push(why);
                }
            }
        }
        Ok(())
    }

    /// What was measured, and what went wrong.
    pub(super) fn finish(mut self) -> Measurement {
        self.progress.finish_and_clear();
        self.report.load[1] = machine::load();
        Measurement { report: self.report, failures: self.failures, absent: self.absent }
    }

    fn topics(&self, ranks: u32) -> Vec<Topic> {
        let Benchmark { operations, dtypes, reductions, .. } = &self.benchmark;
        let mut topics = Vec::new();
        for &operation in operations {
            for &dtype in dtypes {
                // An operation that does not reduce is the same for every reduction.
                let reductions =
                    if operation.reduces() { &reductions[..] } else { &reductions[..1] };
                let topic =
                    |reduction: &_| Topic { operation, dtype, reduction: *reduction, ranks };
                topics.extend(reductions.iter().map(topic));
            }
        }
        topics
    }

    /// Starts every contender's ranks. A contender that does not start is left out.
    fn start(&mut self, ranks: u32) -> Result<Vec<Team>, Interruption> {
        let mut teams = Vec::new();
        for (contender, found) in &self.contenders {
            let message = format!("starting {}: {}", sizes::ranks(ranks), contender.name);
            self.progress.set_message(message);
            match Team::start(contender, found, ranks, &self.terms) {
                Ok(team) => {
                    self.report.versions.insert(contender.name.clone(), team.versions.clone());
                    teams.push(team);
                }
                Err(TeamError::Interrupted) => return Err(Interruption),
                Err(TeamError::Failed(why)) => self.failures.push(why),
            }
        }
        Ok(teams)
    }

    fn measure_topic(&mut self, topic: Topic, teams: &mut Vec<Team>) -> Result<(), Interruption> {
        let Topic { operation, dtype, reduction, ranks } = topic;
        let columns = self.benchmark.columns(operation);
        let widths = teams.iter().map(|team| team.name.chars().count());
        let name_width = if teams.len() > 1 { widths.max().unwrap_or_default() } else { 0 };
        let table = Table { columns: columns.clone(), name_width };
        let reduces = operation.reduces().then(|| format!(", {}", reduction.name()));
        let title = format!(
            "\n# {}, {}, {}{}",
            operation.name(),
            sizes::ranks(ranks),
            dtype.name(),
            reduces.unwrap_or_default()
        );
        let (extents, rounded) = self.extents(topic);
        self.show(&[vec![title], rounded, table.header()].concat());
        let first = self.report.cases.len();
        for extent in extents {
            let begin = self.report.cases.len();
            for column in &columns {
                let case = Case {
                    operation,
                    form: column.form,
                    count: extent.count,
                    dtype: dtype.name().to_owned(),
                    reduction,
                    root: self.benchmark.root,
                    copies: self.copies(column.inputs, extent),
                };
                self.measure_case(case, column.inputs, extent.whole_bytes, teams)?;
            }
            self.show(&table.rows(&self.report.cases[begin..]));
        }
        self.show(&footer(&self.report.cases[first..]));
        Ok(())
    }

    /// How often buffers are made for cases of a size.
    fn copies(&self, inputs: Inputs, extent: Extent) -> u64 {
        let l2_bytes = self.report.machine.processor.l2_bytes;
        match inputs {
            Inputs::Rewritten => {
                calls_of_burst(extent.whole_bytes, l2_bytes, &self.benchmark.turn_settings)
            }
            Inputs::Untouched => 1,
        }
    }

    /// The sizes that are measured, each once, and a note if they differ from those that were asked
    /// for.
    fn extents(&self, topic: Topic) -> (Vec<Extent>, Vec<String>) {
        let Topic { operation, dtype, ranks, .. } = topic;
        if !operation.has_size() {
            return (vec![operation.extent(0, 1, ranks)], Vec::new());
        }
        let (mut extents, mut rounded) = (Vec::<Extent>::new(), Vec::new());
        for &bytes in &self.benchmark.sizes {
            let extent = operation.extent(bytes, dtype.size_bytes() as u64, ranks);
            if extent.whole_bytes != bytes {
                rounded.push(format!("{bytes} as {}", extent.whole_bytes));
            }
            if extents.last() == Some(&extent) {
                let columns = self.benchmark.columns(operation).len();
                self.progress.inc(u64::from(self.benchmark.turn_settings.turns) * columns as u64);
            } else {
                extents.push(extent);
            }
        }
        if rounded.is_empty() {
            return (extents, rounded);
        }
        let etc = if rounded.len() > MAX_NAMED_SIZES { ", …" } else { "" };
        rounded.truncate(MAX_NAMED_SIZES);
        let line = format!("# sizes (B) in whole elements: {}{etc}", rounded.join(", "));
        (extents, vec![line])
    }

    fn measure_case(
        &mut self,
        case: Case,
        inputs: Inputs,
        bytes: u64,
        teams: &mut Vec<Team>,
    ) -> Result<(), Interruption> {
        let (operation, Some(ranks)) = (case.operation, teams.first().map(Team::ranks)) else {
            return Ok(());
        };
        let message = format!("{} {}", operation.name(), sizes::show(bytes));
        self.progress.set_message(message);
        let settings = self.benchmark.turn_settings;
        let outcomes = measure(teams, &case, inputs, &settings, || self.progress.inc(1))?;
        let mut results = Vec::new();
        let mut failed = Vec::new();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let name = &teams[at].name;
            match outcome {
                Outcome::Measured(turns) => {
                    let factor = self.bus_factor(name, operation, ranks);
                    results.push(MeasuredCase::new(name, operation, factor, bytes, &turns));
                }
                Outcome::Unsupported(why) => {
                    let what = format!("{name}: {}", operation.name());
                    // For algorithms, a note was printed at the beginning.
                    let is_told = teams[at].unsupported.contains(&operation);
                    let known = self.report.missing.insert(what.clone(), why.clone());
                    if !is_told && known.as_deref() != Some(&why) {
                        let line = format!("left out: {what}: {why}");
                        self.progress.suspend(|| super::say(&line));
                    }
                }
                Outcome::Failed(why) => {
                    self.failures.push(why);
                    failed.push(at);
                }
            }
        }
        // A group that failed is broken; the other groups continue.
        for at in failed.into_iter().rev() {
            teams.remove(at);
        }
        let mut report = CaseReport {
            operation,
            form: case.form,
            inputs,
            ranks,
            bytes,
            count: case.count,
            dtype: case.dtype,
            reduction: operation.reduces().then_some(case.reduction),
            root: case.root.filter(|_| operation.has_root()),
            results,
        };
        report.compare(&self.report.reference);
        self.report.cases.push(report);
        Ok(())
    }

    /// A copy moves every byte once, whatever operation it is compared with.
    fn bus_factor(&self, name: &str, operation: Operation, ranks: u32) -> f64 {
        let is_copy = name == Peer::Memcpy.name();
        if is_copy { 1.0 } else { operation.bus_factor(ranks) }
    }

    /// The lines above the first table: what runs, and on which machine.
    fn introduce(&self) {
        let Machine { cpu, processor, cores, system, .. } = &self.report.machine;
        let load = self.report.load[0].map_or(String::new(), |load| format!(", load {load:.2}"));
        let build = Build::here().in_words();
        let settings = &self.benchmark.turn_settings;
        let mut lines = vec![
            format!("# polyrank bench {build}, {}", self.report.date),
            format!("# {cpu} ({}), {cores} cores, {system}{load}", processor.in_words()),
        ];
        for (name, settings) in &self.report.settings {
            lines.push(format!("# {name}: {}", settings.join("; ")));
        }
        let names: Vec<&str> = self.contenders.iter().map(|(one, _)| one.name.as_str()).collect();
        lines.push(format!("# {} turns in alternation: {}", settings.turns, names.join(", ")));
        let is_polyrank = |contender: &Contender| matches!(contender.library, Library::Polyrank(_));
        if names.len() > 1 && is_polyrank(&self.contenders[0].0) {
            lines.push(format!("# ratio below 1: {} takes less time", names[0]));
        }
        self.show(&lines);
    }

    /// Notes how each contender is started, and what is the same for all.
    fn note_settings(&mut self) {
        let Limits { names, pinned_cores, offset_bytes, .. } = &self.terms;
        for (contender, _) in &self.contenders {
            let mut said = Vec::new();
            if let Library::Peer(peer) = contender.library {
                for &ranks in &self.benchmark.ranks {
                    let placement = self.terms.placement(ranks);
                    said.extend(peer_settings::settings(peer, placement, &names.setting));
                }
            }
            if !pinned_cores.is_empty() {
                let cores: Vec<String> = pinned_cores.iter().map(usize::to_string).collect();
                said.push(format!("ranks pinned to cores {} in turn", cores.join(", ")));
            }
            if *offset_bytes > 0 {
                said.push(format!("tensors begin {offset_bytes} B after a cache line's beginning"));
            }
            let mut once = Vec::new();
            for text in said {
                if !once.contains(&text) {
                    once.push(text);
                }
            }
            if !once.is_empty() {
                self.report.settings.insert(contender.name.clone(), once);
            }
        }
    }

    /// Measures how the ranks of each team start together, where inputs are rewritten. A team that
    /// fails is left out.
    fn measure_starts(&mut self, ranks: u32, teams: &mut Vec<Team>) -> Result<(), Interruption> {
        if !self.benchmark.inputs.contains(&Inputs::Rewritten) {
            return Ok(());
        }
        let mut failed = Vec::new();
        for (at, team) in teams.iter_mut().enumerate() {
            match start_timing(team) {
                Ok(timing) => {
                    let StartTiming { lead_ns, empty_call_s } = timing;
                    team.start_timing = timing;
                    self.report.starts.push(StartReport {
                        contender: team.name.clone(),
                        ranks,
                        lead_us: lead_ns as f64 * 1e-3,
                        empty_call_us: empty_call_s * 1e6,
                    });
                }
                Err(TeamError::Interrupted) => return Err(Interruption),
                Err(TeamError::Failed(why)) => {
                    self.failures.push(why);
                    failed.push(at);
                }
            }
        }
        for at in failed.into_iter().rev() {
            teams.remove(at);
        }
        Ok(())
    }

    /// Asks how much memory the ranks hold beside their buffers, after their work.
    fn measure_memory(&mut self, ranks: u32, teams: &mut [Team]) {
        for team in teams {
            let answers = match team.tell(&Command::Memory) {
                Ok(answers) => answers,
                Err(TeamError::Interrupted) => return,
                Err(TeamError::Failed(why)) => {
                    self.failures.push(why);
                    continue;
                }
            };
            let of_rank = |answer: &Answer| match answer {
                Answer::Memory { bytes } => *bytes,
                _ => None,
            };
            let Some(most_bytes) = answers.iter().filter_map(of_rank).max() else { continue };
            let contender = team.name.clone();
            self.report.memory.push(MemoryReport { contender, ranks, most_bytes });
        }
        let starts = self.report.starts.iter().filter(|report| report.ranks == ranks);
        let memory = self.report.memory.iter().filter(|report| report.ranks == ranks);
        self.show(&[start_lines(starts), memory_lines(memory)].concat());
    }

    /// Shows lines on stdout without disturbing the progress bar on stderr.
    fn show(&self, lines: &[String]) {
        self.progress.suspend(|| {
            let mut out = std::io::stdout().lock();
            for line in lines {
                // If stdout is closed, its reader wants no more; the files are written all the
                // same.
                let _ = writeln!(out, "{line}");
            }
            let _ = out.flush();
        });
    }
}

/// The bar on stderr; nothing where that is not a terminal.
fn progress(benchmark: &Benchmark) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let of_operation = |operation: &Operation| {
        let columns = benchmark.columns(*operation).len();
        let sizes = if operation.has_size() { benchmark.sizes.len() } else { 1 };
        let reductions = if operation.reduces() { benchmark.reductions.len() } else { 1 };
        columns * sizes * reductions * benchmark.dtypes.len()
    };
    let cases: usize = benchmark.operations.iter().map(of_operation).sum();
    let turns = cases * benchmark.ranks.len() * benchmark.turn_settings.turns as usize;
    let bar = ProgressBar::new(turns as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {eta:>4} left  {msg}") {
        bar.set_style(style);
    }
    bar
}
