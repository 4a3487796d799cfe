//! `polyrank inspect`: has all ranks of a running job tell what they have called, and writes it to
//! one file. Knows nothing of what the file says; `trace` does.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use polyrank::recorder::report::JobGroup;
use serde_json::Value;

use crate::job_store::JobStore;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank inspect 127.0.0.1:29500
      Asks the ranks that meet in the store at that port (MASTER_ADDR and MASTER_PORT of the job),
      and writes polyrank_trace.json.
  polyrank trace polyrank_trace.json
      Says who waits where, and for whom.
  polyrank inspect 127.0.0.1:29500 -o - | jq '.ranks[].entries[-1].name'
      The last operation of each rank, with another program.

Ranks answer within three seconds, whether they wait or compute, and go on; one that is stopped, or
cannot reach the store, is named. The exit code is 0 if any rank has answered, and 1 if none has.";

/// The options of `polyrank inspect`.
#[derive(Args)]
pub(crate) struct InspectArguments {
    /// Where the ranks meet: HOST:PORT, tcp://HOST:PORT or ws://HOST:PORT
    #[arg(value_name = "STORE_URL")]
    store: String,
    /// Where it is written; - is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "polyrank_trace.json")]
    output: PathBuf,
}

/// Asks and writes; the exit code.
pub(crate) fn run(arguments: &InspectArguments) -> i32 {
    let (text, code) = match inspect(arguments) {
        Ok(said) => (said, 0),
        Err(message) => (message, 1),
    };
    let _ = std::io::stderr().lock().write_all(format!("polyrank inspect: {text}\n").as_bytes());
    code
}

/// What the ranks of the job at `url` have called, as one file; and what there is to say of that.
///
/// # Errors
/// The store cannot be asked, or no rank answers, in words.
pub(crate) fn gather(url: &str) -> Result<(Value, String), String> {
    let groups = JobStore::open(url)?.groups_by_size()?;
    let mut failures = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let whole = group.dump().map_err(|error| error.to_string())?;
        match answered(group, &whole) {
            Ok(said) => return Ok((whole, said + &others(group, &groups[at + 1..]))),
            // It may be one that has ended, of which the store still tells.
            Err(why) => failures.push(why),
        }
    }
    Err(failures.swap_remove(0))
}

/// Those that meet there beside the group that was asked, for people.
fn others(asked: &JobGroup, groups: &[JobGroup]) -> String {
    let names = groups.iter().map(|group| group.name.as_str()).filter(|name| *name != asked.name);
    let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; not asked, as they meet there beside it: {}", names.join(", ")),
    }
}

fn inspect(arguments: &InspectArguments) -> Result<String, String> {
    let (whole, said) = gather(&arguments.store)?;
    let path = &arguments.output;
    if path == Path::new("-") {
        // If the pipe is closed, its reader has read enough.
        let _ = std::io::stdout().lock().write_all(format!("{whole}\n").as_bytes());
        return Ok(said);
    }
    let path = path.display();
    std::fs::write(&arguments.output, whole.to_string())
        .map_err(|error| format!("cannot write {path}: {error}"))?;
    Ok(format!("{said}; it is in {path}: `polyrank trace {path}` says what it means"))
}

/// "group dp: 3 of 4 ranks have told what they have called, not rank 2".
fn answered(group: &JobGroup, whole: &Value) -> Result<String, String> {
    let (name, all) = (&group.name, group.ranks.len());
    let missing = whole["missing"].as_array().map(Vec::as_slice).unwrap_or_default();
    let there = all - missing.len().min(all);
    if there == 0 {
        return Err(format!("group {name}: none of its {all} ranks answers; they may be gone"));
    }
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let not = match missing.as_slice() {
        [] => String::new(),
        [rank] => format!(", not rank {rank}"),
        ranks => format!(", not ranks {}", ranks.join(", ")),
    };
    Ok(format!("group {name}: {there} of {all} ranks have told what they have called{not}"))
}
