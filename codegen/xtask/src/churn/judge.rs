//! What replicas say, and what must hold of it: somebody commits all the time, who commits a step
//! has the same bits as all others that do, and what each of them has computed is in it. Knows no
//! processes.
//!
//! Replicas decide for themselves whether they commit a step, as torchft's do. So some may commit
//! one in which most have failed, and which those do again. Then theirs is taken back: they take
//! the state of the others. Nobody may go on from it: in the step after it all have the same bits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::disturb::Event;
use super::replica::{Line, Replica};

/// So long nothing may be committed.
const HANG: Duration = Duration::from_secs(10);
/// So long a replica that nobody stops may say nothing; it may have to start first.
const SILENCE: Duration = Duration::from_secs(30);

impl Said {
    /// None if something is missing.
    fn of(said: &Value) -> Option<Said> {
        Some(Said {
            hash: said["hash"].as_str()?.to_owned(),
            members: said["members"].as_u64()?,
            of: said["of"].as_u64()?,
            gave: said["gave"].as_f64()?,
            batches: said["batches"].as_i64()?,
        })
    }
}

/// What is known of one process.
#[derive(Default)]
struct Known {
    name: String,
    heard: Option<Instant>,
    last: String,
    /// Steps that it has lost since the last event.
    lost: u32,
    /// Replicas in the last step that it has committed.
    size: usize,
    /// The last step that it has committed.
    step: i64,
    loss: Option<f64>,
}

/// An event, and what came of it before the next.
pub(super) struct Episode {
    pub(super) event: Event,
    /// Who was there, and was not meant.
    survivors: BTreeSet<u32>,
    /// The most steps that one of them has lost.
    pub(super) lost: u32,
    /// The longest time in which nobody committed a step, of those that ended, or began, in it.
    pub(super) pause: Duration,
}

/// A step that was committed.
struct Commit {
    by: u32,
    /// Whether others have done it again.
    is_forked: bool,
    /// What all have to say of it.
    said: Said,
    /// How many have committed it, and how many of them have given a gradient.
    times: u64,
    gave: u64,
}

/// What a replica says of a step that it has committed.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    /// Of its parameters.
    hash: String,
    /// Replicas that were there.
    members: u64,
    /// Those that participated: who is behind does not.
    of: u64,
    /// How many of them have given a gradient: who takes a state has none.
    gave: f64,
    /// Batches in all steps until then.
    batches: i64,
}

#[derive(Default)]
pub(super) struct Judge {
    known: BTreeMap<u32, Known>,
    commits: BTreeMap<i64, Commit>,
    /// Commits of all replicas.
    pub(super) commit_count: u64,
    /// Steps that replicas have lost.
    pub(super) lost_count: u64,
    /// Steps that some have committed and most have not, and have done again.
    pub(super) taken_back: u64,
    /// States that were taken.
    pub(super) healed_count: u64,
    last_commit: Option<Instant>,
    /// The longest time without a commit.
    pub(super) longest_pause: Duration,
    pub(super) episodes: Vec<Episode>,
}

impl Judge {
    /// Another process is to say something.
    pub(super) fn expect(&mut self, id: u32, name: &str) {
        let known =
            Known { name: name.to_owned(), heard: Some(Instant::now()), ..Known::default() };
        self.known.insert(id, known);
    }

    /// An event has happened.
    pub(super) fn happened(&mut self, event: Event, replicas: &[Option<Replica>]) {
        let others = replicas.iter().flatten();
        let others = others.filter(|it| !it.is_held() && it.number != event.number);
        let survivors = others.map(|replica| replica.id).collect();
        self.known.values_mut().for_each(|known| known.lost = 0);
        self.note_pause(Instant::now());
        self.episodes.push(Episode { event, survivors, lost: 0, pause: Duration::ZERO });
    }

    /// Takes a line.
    ///
    /// # Errors
    /// It says what must not be.
    pub(super) fn hear(&mut self, line: Line) -> Result<()> {
        let Some(text) = &line.text else { return Ok(()) };
        let Some(known) = self.known.get_mut(&line.id) else { return Ok(()) };
        known.heard = Some(line.at);
        known.last = text.clone();
        let name = known.name.clone();
        let said: Value =
            serde_json::from_str(text).with_context(|| format!("{name} said {text:?}"))?;
        if let Some(step) = said["step"].as_i64() {
            ensure!(step > known.step, "{name} committed step {step} after step {}", known.step);
            let is_healed = said["since"].as_i64() != Some(step - 1);
            known.step = step;
            known.size = said["members"].as_u64().unwrap_or_default() as usize;
            let gives = said["gives"].as_bool().unwrap_or_default();
            let said = Said::of(&said).with_context(|| format!("{name} said only {text:?}"))?;
            self.healed_count += u64::from(is_healed);
            self.committed(&line, step, said, gives)?;
        } else if !said["lost"].is_null() {
            known.lost += 1;
            let lost = known.lost;
            self.lost_count += 1;
            let episode = self.episodes.last_mut().filter(|it| it.survivors.contains(&line.id));
            if let Some(episode) = episode {
                episode.lost = episode.lost.max(lost);
            }
        } else if let Some(loss) = said["loss"].as_f64() {
            known.loss = Some(loss);
            let (end, last) = (said["end"].as_i64(), self.steps());
            ensure!(end == Some(last), "{name} ended after step {end:?}, and the last is {last}");
        }
        Ok(())
    }

    fn committed(&mut self, line: &Line, step: i64, said: Said, gives: bool) -> Result<()> {
        self.commit_count += 1;
        self.note_pause(line.at);
        self.last_commit = Some(line.at);
        let commit = self.commits.entry(step).or_insert_with(|| Commit {
            by: line.id,
            is_forked: false,
            said: said.clone(),
            times: 0,
            gave: 0,
        });
        if commit.said != said {
            let name = |id| self.known.get(&id).map_or("?", |known: &Known| known.name.as_str());
            let (ours, first) = (name(line.id), name(commit.by));
            let what =
                format!("step {step} is {said:?} in {ours}, and {:?} in {first}", commit.said);
            self.taken_back += u64::from(!commit.is_forked);
            commit.is_forked = true;
            let is_forked = |step: i64| self.commits.get(&step).is_some_and(|it| it.is_forked);
            ensure!(!is_forked(step - 1) && !is_forked(step + 1), "two histories: {what}");
            eprintln!("[churn] taken back: {what}");
            return Ok(());
        }
        commit.times += 1;
        commit.gave += u64::from(gives);
        // Of those that were killed meanwhile it is not known whether they gave something.
        let gave = commit.gave;
        if commit.times == said.members && said.gave != gave as f64 {
            bail!("in step {step} {gave} replicas gave a gradient, and the sum says {said:?}");
        }
        Ok(())
    }

    /// Nobody has committed a step from the last one until then.
    fn note_pause(&mut self, until: Instant) {
        let Some(last) = self.last_commit else { return };
        let pause = until.saturating_duration_since(last);
        self.longest_pause = self.longest_pause.max(pause);
        if let Some(episode) = self.episodes.last_mut() {
            episode.pause = episode.pause.max(pause);
        }
    }

    /// What has not been said for too long.
    ///
    /// # Errors
    /// Nobody commits, or somebody says nothing.
    pub(super) fn check_silence(&self, replicas: &[Option<Replica>]) -> Result<()> {
        let pause = self.silence();
        let words = || self.last_words();
        let goes_on = pause < HANG || self.ended() > 0;
        ensure!(goes_on, "no step was committed for {} s\n{}", pause.as_secs(), words());
        for replica in replicas.iter().flatten().filter(|replica| !replica.is_stopped()) {
            let Some(known) = self.known.get(&replica.id) else { continue };
            let since = known.heard.max(Some(replica.free_since));
            let silence = since.map_or(Duration::ZERO, |since| since.elapsed());
            let log = replica.log.display();
            ensure!(
                silence < SILENCE || known.loss.is_some(),
                "{} has said nothing for {} s; its log: {log}\n{}",
                known.name,
                silence.as_secs(),
                words()
            );
        }
        Ok(())
    }

    /// How long ago somebody committed a step.
    pub(super) fn silence(&self) -> Duration {
        self.last_commit.map_or(Duration::ZERO, |last| last.elapsed())
    }

    /// How many trained together in the last steps, by those who are there.
    pub(super) fn largest(&self, ids: impl Iterator<Item = u32>) -> usize {
        let sizes = ids.map(|id| self.known.get(&id).map_or(0, |known| known.size));
        sizes.min().unwrap_or_default()
    }

    /// How many have ended as they were to.
    pub(super) fn ended(&self) -> usize {
        self.known.values().filter(|known| known.loss.is_some()).count()
    }

    pub(super) fn has_ended(&self, id: u32) -> bool {
        self.known.get(&id).is_some_and(|known| known.loss.is_some())
    }

    /// The last step that was committed.
    pub(super) fn steps(&self) -> i64 {
        self.commits.last_key_value().map_or(0, |(step, _)| *step)
    }

    /// The loss at the end, of the replica that has the largest.
    pub(super) fn loss(&self) -> Option<f64> {
        self.known.values().filter_map(|known| known.loss).reduce(f64::max)
    }

    pub(super) fn summary(&self) -> String {
        let (steps, lost, healed) = (self.steps(), self.lost_count, self.healed_count);
        let pause = self.longest_pause.as_secs_f64();
        format!("step {steps}, {lost} lost, {healed} healed, longest pause {pause:.1} s")
    }

    /// What each said last.
    pub(super) fn last_words(&self) -> String {
        let said = |known: &Known| {
            let ago = known.heard.map_or(Duration::ZERO, |heard| heard.elapsed());
            format!("  {} {:.1} s ago: {}", known.name, ago.as_secs_f64(), known.last)
        };
        let all: Vec<String> = self.known.values().map(said).collect();
        all.join("\n")
    }
}
