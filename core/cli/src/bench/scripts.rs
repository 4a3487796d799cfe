//! The script of Python's ranks as a file, for as long as the benchmark runs: launchers of MPI take
//! the name of a program. Knows nothing of what is in it.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};

/// The ranks of Python, whatever the library.
const PYTHON: &str = include_str!("ranks/rank.py");
/// What the script imports, by their names.
const MODULES: [(&str, &str); 3] = [
    ("bench_libraries.py", include_str!("ranks/bench_libraries.py")),
    ("bench_pattern.py", include_str!("ranks/bench_pattern.py")),
    ("bench_start.py", include_str!("ranks/bench_start.py")),
];

/// What folders' names begin with; the number of the process and something random follow.
const PREFIX: &str = "polyrank-bench-";

/// The script's name in such a folder.
const SCRIPT: &str = "rank.py";

/// A folder that nobody else can write to, gone when this is dropped.
pub(super) struct Scripts {
    folder: PathBuf,
    /// The script, locked: a process that can lock it knows that its benchmark is over. A process
    /// id alone says nothing in another container.
    _held: File,
}

impl Scripts {
    /// Writes the script, and removes what runs left that were killed.
    ///
    /// # Errors
    /// The system's folder for temporary files cannot be written to.
    pub(super) fn write() -> io::Result<Scripts> {
        sweep(&std::env::temp_dir());
        let random = crate::random::bytes::<8>()?;
        let random = u64::from_le_bytes(random);
        let name = format!("{PREFIX}{}-{random:016x}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let written = write_all(&folder);
        match written {
            Ok(held) => Ok(Scripts { folder, _held: held }),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// The folder, for other files of this run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The script of Python's ranks.
    pub(super) fn python(&self) -> PathBuf {
        self.folder.join(SCRIPT)
    }
}

/// Writes the script, which is locked, and its modules.
fn write_all(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut script = options.open(folder.join(SCRIPT))?;
    script.lock()?;
    script.write_all(PYTHON.as_bytes())?;
    for (name, text) in MODULES {
        options.open(folder.join(name))?.write_all(text.as_bytes())?;
    }
    Ok(script)
}

/// Removes the folders of this user's processes that are gone. What cannot be removed stays.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten().filter(is_abandoned) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn is_abandoned(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let owner = || {
        let (owner, random) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
        let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        Pid::from_raw(owner.parse().ok().filter(|_| is_random)?)
    };
    let Some(owner) = owner() else { return false };
    // Of the entry itself: a link leads elsewhere.
    let is_ours = entry
        .metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw());
    let is_free = || File::open(entry.path().join(SCRIPT)).is_ok_and(|it| it.try_lock().is_ok());
    is_ours && test_kill_process(owner) == Err(rustix::io::Errno::SRCH) && is_free()
}

impl Drop for Scripts {
    fn drop(&mut self) {
        // What cannot be removed is left to the clean-up of the system's temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn nothing_is_left() {
        let scripts = Scripts::write().unwrap();
        let path = scripts.python();
        assert_eq!(fs::read_to_string(&path).unwrap(), PYTHON);
        drop(scripts);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn folders_of_processes_that_are_gone_are_removed() {
        let made = tempfile::tempdir().unwrap();
        let place = made.path();
        // It has ended, and its number is not given to another so soon.
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        let gone_id = gone.id();
        gone.wait().unwrap();
        let random = "0123456789abcdef";
        let abandoned = place.join(format!("polyrank-bench-{gone_id}-{random}"));
        let alive = format!("polyrank-bench-{}-{random}", std::process::id());
        let elsewhere = format!("polyrank-bench-{gone_id}-fedcba9876543210");
        let others =
            [&alive, &elsewhere, "polyrank-bench-test-1", "polyrank-bench-99999999", "elsewhere"];
        for folder in others.map(|name| place.join(name)).iter().chain([&abandoned]) {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("rank.py"), "").unwrap();
        }
        // As the benchmark of another container has it.
        let held = File::open(place.join(&elsewhere).join("rank.py")).unwrap();
        held.lock().unwrap();
        sweep(place);
        drop(held);
        assert!(!abandoned.exists());
        assert!(others.iter().all(|name| place.join(name).join("rank.py").exists()));
    }
}
