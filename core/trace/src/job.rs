//! The dumps of one run brought together: its groups, its collectives by group and number, and who
//! has come to each. Knows no judgement on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::dump::{Dump, Entry, Group};
use crate::error::TraceError;
use crate::read::RecordedFile;

/// What is known of one run of a job.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Which run it is, if its ranks know.
    pub run_id: Option<String>,
    /// How many ranks it has.
    pub world_size: u32,
    /// One dump a rank, in the order of ranks.
    pub dumps: Vec<Dump>,
    /// The ranks without a dump.
    pub missing: Vec<u32>,
    /// Why not all ranks could be asked for theirs.
    pub obstacles: Vec<String>,
    /// Its groups.
    pub groups: Vec<JobGroup>,
    /// Its collectives, in the order of groups and numbers.
    pub operations: Vec<Operation>,
}

/// A group of the job, as its members agree on it.
#[derive(Clone, Debug, Default)]
pub struct JobGroup {
    /// What its user calls it, with what tells it from others that are called so.
    pub title: String,
    /// Its name.
    pub name: String,
    /// What its user says it is; its name where nothing was said.
    pub description: String,
    /// How often its members were replaced.
    pub epoch: u64,
    /// The job's ranks in it, in the order of their ranks in the group.
    pub ranks: Vec<u32>,
    /// Members that know it, each with its place in their dump.
    pub(crate) places: BTreeMap<u32, usize>,
    /// The number of the last collective that each of these issued.
    lasts: BTreeMap<u32, u64>,
}

/// A collective: the calls of the same number in the same group.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// The group, by its place in [`Job::groups`].
    pub group: usize,
    /// Its number there.
    pub sequence: u64,
    /// Who called it: rank, and place in that rank's entries.
    pub calls: BTreeMap<u32, usize>,
}

/// Whether a member has come to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It called it, or something else with this number.
    Came,
    /// It has not got that far.
    NotCome,
    /// It was there, and its recorder has forgotten.
    Forgotten,
    /// Its dump is missing.
    Unknown,
}

impl Job {
    /// Brings files together. Of several dumps of a rank, the latest counts.
    ///
    /// # Errors
    /// If the files are those of different runs, or hold no dump.
    pub fn new(files: Vec<RecordedFile>) -> Result<Job, TraceError> {
        let mut missing: BTreeSet<u32> = BTreeSet::new();
        let mut latest: BTreeMap<u32, Dump> = BTreeMap::new();
        let mut run: Option<(String, String)> = None;
        let mut world_size = 0;
        let mut obstacles = Vec::new();
        for file in files {
            missing.extend(&file.missing);
            obstacles.extend(file.obstacle);
            for dump in file.dumps {
                belongs(&dump, &mut run)?;
                // Ranks of which each knows a part of the job have it together.
                world_size = world_size.max(dump.world_size);
                let known = latest.get(&dump.rank);
                if known.is_none_or(|known| known.dumped_ns <= dump.dumped_ns) {
                    latest.insert(dump.rank, dump);
                }
            }
        }
        if latest.is_empty() {
            return Err(TraceError::Nothing);
        }
        // A rank outside the world is a mistake of who gathered, and of no consequence.
        missing.retain(|rank| *rank < world_size);
        missing.extend(0..world_size);
        let missing = missing.into_iter().filter(|rank| !latest.contains_key(rank)).collect();
        let dumps: Vec<Dump> = latest.into_values().collect();
        let run_id = run.map(|(_, run)| run);
        let mut job = Job { run_id, world_size, dumps, missing, obstacles, ..Job::default() };
        job.gather_groups();
        job.gather_operations();
        Ok(job)
    }

    /// The dump of a rank.
    #[must_use]
    pub fn dump(&self, rank: u32) -> Option<&Dump> {
        let at = self.dumps.binary_search_by_key(&rank, |dump| dump.rank).ok()?;
        self.dumps.get(at)
    }

    /// The calls of an operation, in the order of ranks.
    pub fn calls<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> impl Iterator<Item = (&'a Dump, &'a Entry)> {
        operation.calls.iter().filter_map(|(rank, at)| {
            let dump = self.dump(*rank)?;
            Some((dump, dump.entries.get(*at)?))
        })
    }

    /// The group of a rank's entry.
    #[must_use]
    pub fn group_of(&self, dump: &Dump, entry: &Entry) -> usize {
        let is_it = |group: &JobGroup| group.places.get(&dump.rank) == Some(&entry.group);
        self.groups.iter().position(is_it).unwrap_or(0)
    }

    /// The title of the group of a rank's entry.
    #[must_use]
    pub fn title_of(&self, dump: &Dump, entry: &Entry) -> &str {
        self.groups.get(self.group_of(dump, entry)).map_or("", |group| &group.title)
    }

    /// The collectives of a group, in the order of their numbers.
    pub fn operations_of(&self, group: usize) -> &[Operation] {
        let first = self.operations.partition_point(|operation| operation.group < group);
        let last = self.operations.partition_point(|operation| operation.group <= group);
        &self.operations[first..last]
    }

    /// Whether a member of its group has come to an operation.
    pub(crate) fn standing(&self, operation: &Operation, rank: u32) -> Standing {
        if operation.calls.contains_key(&rank) {
            return Standing::Came;
        }
        if self.dump(rank).is_none() {
            return Standing::Unknown;
        }
        match self.groups[operation.group].lasts.get(&rank) {
            Some(last) if *last >= operation.sequence => Standing::Forgotten,
            _ => Standing::NotCome,
        }
    }

    /// When the first operation was issued, and when the last dump was written.
    #[must_use]
    pub fn span(&self) -> (i64, i64) {
        let entries = || self.dumps.iter().flat_map(|dump| &dump.entries);
        let meetings = self.dumps.iter().flat_map(|dump| &dump.rendezvous);
        let began = entries().map(|entry| entry.created_ns);
        let first = began.chain(meetings.map(|it| it.since_ns)).min();
        let ends = entries().map(|entry| entry.completed_ns.unwrap_or(entry.created_ns));
        let dumped = self.dumps.iter().map(|dump| dump.dumped_ns).max().unwrap_or(0);
        let last = ends.max().unwrap_or(dumped).max(dumped);
        (first.unwrap_or(last), last)
    }

    fn gather_groups(&mut self) {
        let mut found: BTreeMap<(String, u64, Vec<u32>), BTreeMap<u32, usize>> = BTreeMap::new();
        for dump in &self.dumps {
            for (at, group) in dump.groups.iter().enumerate() {
                let key = (group.name.clone(), group.epoch, group.ranks.clone());
                found.entry(key).or_default().entry(dump.rank).or_insert(at);
            }
        }
        let group = |((name, epoch, ranks), places): ((String, u64, Vec<u32>), BTreeMap<_, _>)| {
            let first = places.iter().find_map(|(rank, at)| self.dump(*rank)?.groups.get(*at));
            let description = first.map_or(&name, |group: &Group| &group.title).clone();
            let (title, lasts) = (String::new(), BTreeMap::new());
            JobGroup { title, name, description, epoch, ranks, places, lasts }
        };
        let mut groups: Vec<JobGroup> = found.into_iter().map(group).collect();
        let titles: Vec<String> = groups.iter().map(|it| title(it, &groups)).collect();
        groups.iter_mut().zip(titles).for_each(|(group, title)| group.title = title);
        self.groups = groups;
    }

    fn gather_operations(&mut self) {
        let mut found: BTreeMap<(usize, u64), BTreeMap<u32, usize>> = BTreeMap::new();
        for dump in &self.dumps {
            // The place of a group within the job, for each of the dump's own.
            let places: Vec<usize> = (0..dump.groups.len())
                .map(|at| {
                    let is_it = |group: &JobGroup| group.places.get(&dump.rank) == Some(&at);
                    self.groups.iter().position(is_it).unwrap_or(0)
                })
                .collect();
            let mut note = |group: usize, sequence: u64| {
                let last = self.groups[group].lasts.entry(dump.rank).or_insert(sequence);
                *last = (*last).max(sequence);
            };
            for (place, group) in places.iter().zip(&dump.groups) {
                group.last_enqueued.into_iter().for_each(|last| note(*place, last));
            }
            for (at, entry) in dump.entries.iter().enumerate() {
                if entry.is_collective {
                    note(places[entry.group], entry.sequence);
                    let calls = found.entry((places[entry.group], entry.sequence)).or_default();
                    calls.entry(dump.rank).or_insert(at);
                }
            }
        }
        let operation = |((group, sequence), calls)| Operation { group, sequence, calls };
        self.operations = found.into_iter().map(operation).collect();
    }
}

impl JobGroup {
    /// Whether it is the one, or one of those, that are called so.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        [&self.name, &self.title, &self.description].into_iter().any(|it| it == name)
    }
}

/// What tells a group from `others`, itself among them.
fn title(group: &JobGroup, others: &[JobGroup]) -> String {
    let JobGroup { name, description, epoch, ranks, .. } = group;
    let same = || others.iter().filter(|other| other.description == *description);
    let is_twin = |other: &&JobGroup| other.ranks == *ranks && other.name != *name;
    let replaced = match epoch {
        0 => String::new(),
        epoch => format!(" (members replaced {epoch} times)"),
    };
    match same().count() > 1 {
        false => description.clone(),
        true if same().any(|other| is_twin(&other)) => format!("{description} ({name}){replaced}"),
        true => format!("{description} {ranks:?}{replaced}"),
    }
}

/// Checks that a dump is of the same run as those before it.
fn belongs(dump: &Dump, run: &mut Option<(String, String)>) -> Result<(), TraceError> {
    if let Some(id) = &dump.run_id {
        let (file, known) = run.get_or_insert_with(|| (dump.file.clone(), id.clone()));
        if known != id {
            let one = (file.clone(), known.clone());
            return Err(TraceError::TwoRuns { one, other: (dump.file.clone(), id.clone()) });
        }
    }
    Ok(())
}
