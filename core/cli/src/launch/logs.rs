//! The files of a job: the ranks' output, and their replies (TORCHELASTIC_ERROR_FILE).
//!
//! ```text
//!  LOG_DIR/NAME_6f3a…/attempt_0/LOCAL_RANK/stdout.log, stderr.log, error.json
//!                           /traces/       what ranks write on SIGUSR1
//! ```
//!
//! Folders are those of torchrun. Knows nothing of processes.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::arguments::job::Output;
use super::arguments::streams::Stream;
use crate::random;

/// The name of the folders of what ranks write on SIGUSR1.
const TRACES: &str = "traces";

/// The folder of this launcher's files.
pub(super) struct Logs {
    folder: PathBuf,
    /// Whether nobody wants them after the job.
    is_temporary: bool,
}

/// The files of one rank.
pub(super) struct RankFiles {
    pub(super) stdout: Option<File>,
    pub(super) stderr: Option<File>,
    pub(super) error_file: PathBuf,
}

impl Logs {
    /// Makes the folder of a job's files: below that for logs, or else among the temporary ones.
    ///
    /// # Errors
    /// The folder cannot be made; the text names it.
    pub(super) fn new(output: &Output, run_id: &str) -> Result<Logs, String> {
        let random = random::bytes::<4>().map_err(|error| error.to_string())?;
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_plain = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
        let name: String =
            run_id.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
        let parent = output.log_dir.clone().unwrap_or_else(std::env::temp_dir);
        let name = match output.log_dir {
            Some(_) => format!("{name}_{random}"),
            None => format!("polyrank-run_{name}_{random}"),
        };
        let folder = parent.join(name);
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&parent).map_err(failed)?;
        // What ranks write is their user's alone where others have their files too.
        let mode = if output.log_dir.is_some() { 0o777 } else { 0o700 };
        DirBuilder::new().mode(mode).create(&folder).map_err(failed)?;
        // Ranks may run in another folder.
        let folder = folder.canonicalize().map_err(failed)?;
        Ok(Logs { folder, is_temporary: !output.has_logs() })
    }

    /// Where they are, unless nobody wants them.
    pub(super) fn folder(&self) -> Option<&Path> {
        (!self.is_temporary).then_some(self.folder.as_path())
    }

    /// The folder for what ranks of one start say of stalls.
    pub(super) fn stalls(&self, restart: u32) -> PathBuf {
        self.folder.join(format!("attempt_{restart}")).join("stalls")
    }

    /// The folder for what ranks of one start write on SIGUSR1, which makes it.
    pub(super) fn traces(&self, restart: u32) -> PathBuf {
        self.folder.join(format!("attempt_{restart}")).join(TRACES)
    }

    /// Opens the files of a rank for one start.
    ///
    /// # Errors
    /// A file cannot be made.
    pub(super) fn of_rank(
        &self,
        output: &Output,
        restart: u32,
        local_rank: u32,
    ) -> io::Result<RankFiles> {
        let folder = self.folder.join(format!("attempt_{restart}")).join(local_rank.to_string());
        fs::create_dir_all(&folder)?;
        let open = |stream, name| match output.is_kept(local_rank, stream) {
            true => File::create(folder.join(name)).map(Some),
            false => Ok(None),
        };
        Ok(RankFiles {
            stdout: open(Stream::Stdout, "stdout.log")?,
            stderr: open(Stream::Stderr, "stderr.log")?,
            error_file: folder.join("error.json"),
        })
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if !self.is_temporary {
            return;
        }
        // What somebody has asked for is read when the job has ended, too. An error leaves a folder
        // among the temporary ones.
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        for attempt in entries(&self.folder) {
            for entry in entries(&attempt.path()).filter(|entry| entry.file_name() != TRACES) {
                let _ = fs::remove_dir_all(entry.path());
            }
            // Neither it nor the folder of all goes if there is something left in it.
            let _ = fs::remove_dir(attempt.path());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
