//! What all ranks of a job remember, gathered through the store into one file. Knows nothing of
//! what they remember.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::questions::Topic;
use super::{Recorder, dump, files, watch};
use crate::generated::error::{Error, Result};
use crate::store::Store;

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
        let mut ranks = vec![(own, dump::dump(own, "it was asked for"))];
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
        ranks.sort_by_key(|(rank, _)| *rank);
        let is_there = |rank: &u32| ranks.iter().any(|(known, _)| known == rank);
        let missing: Vec<u32> = others.into_iter().filter(|rank| !is_there(rank)).collect();
        let dumps: Vec<Value> = ranks.into_iter().map(|(_, dump)| dump).collect();
        let whole = json!({
            "version": "2.10",
            "polyrank": env!("CARGO_PKG_VERSION"),
            "gathered_by": own,
            "missing": missing,
            "obstacle": obstacle,
            "ranks": dumps,
        });
        let path = path.unwrap_or_else(|| files::folder().unwrap_or_default().join(FILE));
        files::write(&path, &whole).map_err(|error| cannot_write(&path, &error))?;
        Ok(path)
    }
}

/// Adds what the `others` answer to `ranks`.
async fn gather(store: &dyn Store, others: &[u32], ranks: &mut Vec<(u32, Value)>) -> Result<()> {
    let (answers, question) = DUMPS.ask(store, others, ANSWER_LIMIT).await?;
    ranks.extend(answers);
    // They may be long, and nobody else looks at them.
    DUMPS.clear(store, others, question).await
}

/// Answers the requests after `answered` as `rank`; the last of them.
///
/// # Errors
/// Those of the store.
pub(super) fn answer(store: &dyn Store, rank: u32, answered: i64) -> Result<i64> {
    DUMPS.answer(store, (rank, answered), || dump::dump(rank, "another rank has asked for it"))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::InvalidArgument { message: format!("dump: cannot write {}: {error}", path.display()) }
}
