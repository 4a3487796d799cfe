//! The script of Python's ranks as a file, for as long as the benchmark runs: launchers of MPI take
//! the name of a program. Knows nothing of what is in it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The ranks of Python, whatever the library.
const PYTHON: &str = include_str!("ranks/rank.py");

/// A folder that nobody else can write to, gone when this is dropped.
pub(super) struct Scripts {
    folder: PathBuf,
}

impl Scripts {
    /// Writes the script.
    ///
    /// # Errors
    /// The system's folder for temporary files cannot be written to.
    pub(super) fn write() -> io::Result<Scripts> {
        let random = crate::random::bytes::<8>().map_err(io::Error::other)?;
        let name = format!("polyrank-bench-{:016x}", u64::from_le_bytes(random));
        let folder = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let scripts = Scripts { folder };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(scripts.python())?.write_all(PYTHON.as_bytes())?;
        Ok(scripts)
    }

    /// The script of Python's ranks.
    pub(super) fn python(&self) -> PathBuf {
        Path::new(&self.folder).join("rank.py")
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        // What cannot be removed is for whoever cleans the system's folder.
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
}
