//! What earlier runs have found, in a file, so that hours of it can be had in parts. Knows not what
//! happened in a run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::judge::Judge;

/// All runs so far, the last one last.
pub(super) struct Totals {
    path: PathBuf,
    runs: Vec<Value>,
}

impl Totals {
    /// Those of the file; none if it is missing.
    ///
    /// # Errors
    /// It is there and is none of ours.
    pub(super) fn read(path: PathBuf) -> Result<Totals> {
        let runs = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is not a list of runs", path.display()))?,
            Err(_) => Vec::new(),
        };
        Ok(Totals { path, runs })
    }

    /// None, to be kept in this file.
    pub(super) fn none(path: PathBuf) -> Totals {
        Totals { path, runs: Vec::new() }
    }

    /// The seed of the run after the last; none if there was none.
    pub(super) fn next_seed(&self) -> Option<u64> {
        self.runs.last()?["seed"].as_u64().map(|seed| seed.wrapping_add(1))
    }

    /// Adds a run, and keeps all of them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(
        &mut self,
        seed: u64,
        judge: &Judge,
        took: Duration,
        failure: Option<String>,
    ) -> Result<()> {
        self.runs.push(json!({
            "seed": seed,
            "seconds": took.as_secs(),
            "events": judge.episodes.len(),
            "steps": judge.steps(),
            "steps_lost": judge.episodes.iter().map(|episode| u64::from(episode.lost)).sum::<u64>(),
            "steps_taken_back": judge.taken_back,
            "states_taken": judge.healed_count,
            "longest_pause_s": judge.longest_pause.as_secs_f64(),
            "failure": failure,
        }));
        let text = serde_json::to_string_pretty(&self.runs)?;
        fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// All runs in a line.
    pub(super) fn summary(&self) -> String {
        let sum = |name: &str| self.runs.iter().filter_map(|run| run[name].as_u64()).sum::<u64>();
        let (runs, events, lost) = (self.runs.len(), sum("events"), sum("steps_lost"));
        let pauses = self.runs.iter().filter_map(|run| run["longest_pause_s"].as_f64());
        let failed = self.runs.iter().filter(|run| !run["failure"].is_null()).count();
        format!(
            "all {runs} runs: {:.2} hours, {events} events, {:.2} steps lost by each, {} states \
             taken, longest pause {:.2} s; {failed} failed",
            sum("seconds") as f64 / 3600.0,
            lost as f64 / events.max(1) as f64,
            sum("states_taken"),
            pauses.fold(0.0, f64::max)
        )
    }
}
