//! What all ranks of a group say alike before they join it. Knows nothing of what it is for.

use std::time::Duration;

use super::join::{Keys, fail_joining};
use super::refusal::refuse;
use crate::generated::error::{Error, Result};
use crate::store::Store;

/// Compares what this rank says of a group, line by line, with what the first one said that came: a
/// line is a subject, `=` and what is to be the same on all ranks that say something of it. If one
/// differs, this rank does not join, and the others are told.
///
/// # Errors
/// [`Error::Rendezvous`] saying which rank says what; those of the store.
pub(crate) async fn agree(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    lines: &[String],
    timeout: Duration,
) -> Result<()> {
    if world_size == 1 {
        return Ok(());
    }
    let key = Keys { group_name }.of("agreed");
    let ours = format!("{rank}\n{}", lines.join("\n"));
    let first = match store.compare_set_async(&key, b"", ours.as_bytes()).await {
        Ok(first) => first,
        Err(why) => {
            fail_joining(store, group_name, rank, &why).await;
            return Err(why);
        }
    };
    let first = String::from_utf8_lossy(&first);
    let mut theirs = first.lines();
    let other = theirs.next().unwrap_or_default().to_owned();
    let theirs: Vec<&str> = theirs.collect();
    let subject = |line: &str| line.split_once('=').map(|(subject, _)| subject.to_owned());
    let differing = lines.iter().find_map(|line| {
        let same_subject = |other: &&&str| subject(other) == subject(line);
        theirs.iter().find(same_subject).filter(|other| **other != line).map(|other| (line, other))
    });
    let Some((ours, theirs)) = differing else { return Ok(()) };
    let said = |line: &str| line.replacen('=', " ", 1);
    let message = format!(
        "the ranks of group '{group_name}' do not agree: rank {other} has {}, rank {rank} has {}",
        said(theirs),
        said(ours)
    );
    let why = Error::Rendezvous { message };
    refuse(store, group_name, (rank, world_size), &why, timeout).await;
    Err(why)
}
