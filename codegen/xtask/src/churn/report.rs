//! What a run has found, as tables for people.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::judge::{Episode, Judge};

/// By how much the loss may be larger than that of a run in which nobody was disturbed.
const LOSS_ALLOWED: f64 = 1.05;

/// Shows what the events have cost.
pub(super) fn show(judge: &Judge) {
    let mut kinds: BTreeMap<&str, Vec<&Episode>> = BTreeMap::new();
    for episode in &judge.episodes {
        kinds.entry(episode.event.kind.name()).or_default().push(episode);
    }
    println!("event     times   steps lost: mean  most   without a step: median     most");
    for (name, episodes) in &kinds {
        println!("{}", line(name, episodes));
    }
    println!("{}", line("all", &judge.episodes.iter().collect::<Vec<_>>()));
    println!(
        "{} steps, committed {} times, {} times lost; {} were committed by some and done again by \
         most; {} states taken; longest pause {:.2} s",
        judge.steps(),
        judge.commit_count,
        judge.lost_count,
        judge.taken_back,
        judge.healed_count,
        judge.longest_pause.as_secs_f64()
    );
}

fn line(name: &str, episodes: &[&Episode]) -> String {
    let lost: Vec<u32> = episodes.iter().map(|episode| episode.lost).collect();
    let mean = f64::from(lost.iter().sum::<u32>()) / lost.len().max(1) as f64;
    let most = lost.iter().max().copied().unwrap_or_default();
    let mut pauses: Vec<Duration> = episodes.iter().map(|episode| episode.pause).collect();
    pauses.sort();
    let at = |index: usize| pauses.get(index).map_or(0.0, |pause| pause.as_secs_f64() * 1e3);
    let (median, longest) = (at(pauses.len() / 2), at(pauses.len().saturating_sub(1)));
    let times = episodes.len();
    format!("{name:8} {times:6}   {mean:16.2} {most:5}   {median:18.0} ms {longest:6.0} ms")
}

/// Compares how well the digits were learnt.
///
/// # Errors
/// It is too much worse; one of the runs has no loss.
pub(super) fn compare(churned: &Judge, quiet: &Judge) -> Result<()> {
    let loss = |judge: &Judge| judge.loss().context("no replica has said its loss");
    let (churned, quiet) = (loss(churned)?, loss(quiet)?);
    let ratio = churned / quiet;
    println!("loss {churned:.5}, and {quiet:.5} where nobody was disturbed: {ratio:.4} of it");
    ensure!(ratio <= LOSS_ALLOWED, "the loss is {ratio:.3} of what it was to be");
    Ok(())
}
