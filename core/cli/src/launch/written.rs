//! Says which ranks have written what they have called, when they were asked for it: whether a rank
//! is in a group, the launcher does not know. Knows nothing of what is in their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::report::{of_same_replica, say};

/// How long ranks may take. They look once a second, but a look may have to wait for a store that
/// is slow to answer, and whoever is stopped does not look.
const LIMIT: Duration = Duration::from_secs(15);
/// The time from one look to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The files of ranks in a folder, which other launchers' ranks may have, too.
pub(super) struct WrittenFiles {
    folder: PathBuf,
    /// When each was written before.
    before: BTreeMap<PathBuf, SystemTime>,
}

impl WrittenFiles {
    /// Those of `ranks`, as they are now.
    pub(super) fn now(folder: PathBuf, ranks: impl Iterator<Item = u32>) -> WrittenFiles {
        let paths = ranks.map(|rank| path_of(&folder, rank));
        let before = paths.filter_map(|path| Some((path.clone(), time_of(&path)?))).collect();
        WrittenFiles { folder, before }
    }

    /// Says when the ranks that were `asked` have written their files, or how many of them have
    /// after a while.
    pub(super) fn say_when_written(self, asked: Vec<u32>) {
        let until = Instant::now() + LIMIT;
        thread::spawn(of_same_replica(move || {
            let mut written = self.written(&asked);
            while written < asked.len() && Instant::now() < until {
                thread::sleep(LOOK_INTERVAL);
                written = self.written(&asked);
            }
            say(&self.said(written, asked.len()));
        }));
    }

    fn said(&self, written: usize, asked: usize) -> String {
        let who = match written {
            0 => "no rank has written what it has called".to_owned(),
            1 => "1 rank has written what it has called".to_owned(),
            more => format!("{more} ranks have written what they have called"),
        };
        // Those that are late may write theirs yet.
        let within = match written < asked {
            true => format!(" within {} s", LIMIT.as_secs()),
            false => String::new(),
        };
        let folder = self.folder.display();
        match written {
            0 => format!(
                "{who}{within}: those do, to {folder}, that are in a group, or wait to join one"
            ),
            _ => format!("{who}{within}: `polyrank trace {folder}` reads it"),
        }
    }

    /// How many of these ranks have a file that is new, or was written again.
    fn written(&self, ranks: &[u32]) -> usize {
        let is_new = |rank: &&u32| {
            let path = path_of(&self.folder, **rank);
            time_of(&path).is_some_and(|time| self.before.get(&path) != Some(&time))
        };
        ranks.iter().filter(is_new).count()
    }
}

fn path_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("polyrank_trace_rank_{rank}.json"))
}

/// When a file was written, if it is there.
fn time_of(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_that_were_there_before_and_those_of_other_launchers_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(folder.path().join(name), "{}").unwrap();
        write("polyrank_trace_rank_0.json");
        let all = WrittenFiles::now(folder.path().to_owned(), 0..3);
        write("polyrank_trace_rank_1.json");
        write("polyrank_trace_rank_3.json");
        assert_eq!(all.written(&[0, 1, 2]), 1);
        assert_eq!(all.written(&[0, 2]), 0);
    }

    #[test]
    fn it_is_said_how_long_ranks_were_waited_for_and_where_their_files_are() {
        let all = WrittenFiles::now(PathBuf::from("/traces"), 0..0);
        let reads = "`polyrank trace /traces` reads it";
        let said = [
            format!("3 ranks have written what they have called: {reads}"),
            format!("1 rank has written what it has called within 15 s: {reads}"),
            "no rank has written what it has called within 15 s: those do, to /traces, that are in \
             a group, or wait to join one"
                .to_owned(),
        ];
        assert_eq!([3, 1, 0].map(|written| all.said(written, 3)), said);
    }
}
