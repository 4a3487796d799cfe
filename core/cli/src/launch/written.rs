//! Says which ranks have written what they have called, when they were asked for it: whether a rank
//! is in a group, the launcher does not know. Knows nothing of what is in their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::report::say;

/// How long ranks may take: they look once a second.
const LIMIT: Duration = Duration::from_secs(4);
/// The time from one look to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A folder of ranks' files, as it was.
pub(super) struct WrittenFiles {
    folder: PathBuf,
    before: BTreeMap<PathBuf, SystemTime>,
}

impl WrittenFiles {
    /// As it is now.
    pub(super) fn now(folder: PathBuf) -> WrittenFiles {
        let before = files(&folder);
        WrittenFiles { folder, before }
    }

    /// Says when as many ranks as were `asked` have written their files, or how many have after a
    /// while.
    pub(super) fn say_when_written(self, asked: usize) {
        let until = Instant::now() + LIMIT;
        thread::spawn(move || {
            let mut written = self.written();
            while written < asked && Instant::now() < until {
                thread::sleep(LOOK_INTERVAL);
                written = self.written();
            }
            say(&self.said(written));
        });
    }

    fn said(&self, written: usize) -> String {
        let folder = self.folder.display();
        let who = match written {
            0 => {
                return "no rank has written what it has called: those do that are in a group, or \
                        wait to join one"
                    .to_owned();
            }
            1 => "1 rank has written what it has called".to_owned(),
            more => format!("{more} ranks have written what they have called"),
        };
        format!("{who}: `polyrank trace {folder}` reads it")
    }

    /// How many files are new, or were written again.
    fn written(&self) -> usize {
        let is_new = |(path, time): &(PathBuf, SystemTime)| self.before.get(path) != Some(time);
        files(&self.folder).into_iter().filter(is_new).count()
    }
}

/// The files of ranks in a folder, and when each was written.
fn files(folder: &PathBuf) -> BTreeMap<PathBuf, SystemTime> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_rank = |name: &str| name.starts_with("polyrank_trace_rank_") && name.ends_with(".json");
    let ranks = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_rank));
    let time = |entry: fs::DirEntry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?));
    ranks.filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_that_were_there_before_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("polyrank_trace_rank_0.json"), "{}").unwrap();
        let all = WrittenFiles::now(folder.path().to_owned());
        fs::write(path("polyrank_trace_rank_1.json"), "{}").unwrap();
        fs::write(path("notes.json"), "{}").unwrap();
        assert_eq!(all.written(), 1);
        let reads = format!(": `polyrank trace {}` reads it", folder.path().display());
        assert_eq!(all.said(1), format!("1 rank has written what it has called{reads}"));
        assert_eq!(all.said(3), format!("3 ranks have written what they have called{reads}"));
        assert!(all.said(0).starts_with("no rank has written what it has called: "));
    }
}
