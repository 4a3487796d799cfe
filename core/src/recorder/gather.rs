//! What all ranks of a job remember, gathered through the store into one file. Knows nothing of
//! what they remember.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::questions::Topic;
use super::report::JobGroup;
use super::{Recorder, dump, files, watch};
use crate::blocking::{block_on, unblock};
use crate::generated::error::{Error, Result};
use crate::store::Store;
use crate::whole_file;

/// What the file is called, where that is not said.
const FILE: &str = "polyrank_trace.json";
const DUMPS: Topic = Topic { questions: "dump requests", answers: "dump" };
/// How long ranks may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

impl Recorder {
    /// Writes what all ranks of the job remember to `path`, or to `polyrank_trace.json` in the
    /// folder of traces, or in the present one. The path.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the file cannot be written.
    pub(crate) async fn gather(&self, path: Option<PathBuf>) -> Result<PathBuf> {
        let group = self.group();
        let own = group.global_rank();
        let mut ranks = vec![(own, dump::dump_with_call_site(own, "it was asked for"))];
        let root = watch::root_of(&group);
        let nobody = "the ranks meet in no store that this one could ask".to_owned();
        let mut obstacle = (root.is_none() && group.members.len() > 1).then_some(nobody);
        let members = root.as_ref().map_or(&group.members, |(root, _)| &root.members);
        let others: Vec<u32> = members.iter().copied().filter(|rank| *rank != own).collect();
        // What this rank remembers is written, whatever becomes of the store.
        if let Some((_, store)) = &root {
            obstacle =
                gather(&**store, &others, &mut ranks).await.err().map(|error| error.to_string());
        }
        let whole = whole(Some(own), members, ranks, obstacle);
        let path = path.unwrap_or_else(|| files::folder().unwrap_or_default().join(FILE));
        whole_file::write(&path, &whole).map_err(|error| cannot_write(&path, &error))?;
        Ok(path)
    }
}

impl JobGroup {
    /// What its ranks remember that answer within some seconds, as one file, asked by who is none
    /// of them.
    ///
    /// # Errors
    /// Those of the store.
    pub fn dump(&self) -> Result<Value> {
        let mut answers = Vec::new();
        block_on(gather(&self.store, &self.ranks, &mut answers))?;
        Ok(whole(None, &self.ranks, answers, None))
    }
}

/// Adds what `ranks` answer to `answers`.
async fn gather(store: &dyn Store, ranks: &[u32], answers: &mut Vec<(u32, Value)>) -> Result<()> {
    let (told, question) = DUMPS.ask(store, ranks, ANSWER_LIMIT).await?;
    answers.extend(told);
    // They may be long, and nobody else looks at them.
    DUMPS.clear(store, ranks, question).await
}

/// The file of what these of the `members` remember.
fn whole(
    gathered_by: Option<u32>,
    members: &[u32],
    mut ranks: Vec<(u32, Value)>,
    obstacle: Option<String>,
) -> Value {
    ranks.sort_by_key(|(rank, _)| *rank);
    let is_there = |rank: &u32| ranks.iter().any(|(known, _)| known == rank);
    let missing: Vec<u32> = members.iter().copied().filter(|rank| !is_there(rank)).collect();
    let dumps: Vec<Value> = ranks.into_iter().map(|(_, dump)| dump).collect();
    json!({
        "version": "2.10",
        "polyrank": env!("CARGO_PKG_VERSION"),
        "gathered_by": gathered_by,
        "missing": missing,
        "obstacle": obstacle,
        "ranks": dumps,
    })
}

/// Answers the requests after `answered` as `rank`; the last of them.
///
/// # Errors
/// Those of the store.
pub(super) async fn answer(place: (&dyn Store, &str), rank: u32, answered: i64) -> Result<i64> {
    // On a thread of its own: it is the program that tells where it stands.
    let dump = move || Ok(dump::dump_with_call_site(rank, "all ranks were asked for it"));
    let dump = async { unblock(dump).await.unwrap_or_default() };
    DUMPS.answer(place, (rank, answered), dump).await
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::InvalidArgument { message: format!("dump: cannot write {}: {error}", path.display()) }
}
