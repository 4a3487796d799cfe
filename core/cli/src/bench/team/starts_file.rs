//! The file through which the ranks of a team agree on when to start. Knows nothing of what is in
//! it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where files lie in memory, if the system has such a place.
const MEMORY: &str = "/dev/shm";

/// A file that nobody else can open, gone when this is dropped. Ranks that have opened it keep it.
pub(super) struct StartsFile {
    path: PathBuf,
}

impl StartsFile {
    /// Makes a file of `bytes` zeros.
    ///
    /// # Errors
    /// There is no place to write to.
    pub(super) fn create(bytes: u64) -> io::Result<StartsFile> {
        let random = u64::from_le_bytes(crate::random::bytes::<8>()?);
        let name = format!("polyrank-starts-{}-{random:016x}", std::process::id());
        StartsFile::create_in(Path::new(MEMORY), &name, bytes)
            .or_else(|_| StartsFile::create_in(&std::env::temp_dir(), &name, bytes))
    }

    fn create_in(place: &Path, name: &str, bytes: u64) -> io::Result<StartsFile> {
        let path = place.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        let made = StartsFile { path };
        file.set_len(bytes)?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StartsFile {
    fn drop(&mut self) {
        // What cannot be removed is left to the clean-up of the system.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_of_zeros_is_there_until_it_is_dropped() {
        let made = StartsFile::create(64).unwrap();
        let path = made.path().to_owned();
        assert_eq!(fs::read(&path).unwrap(), [0; 64]);
        assert_ne!(StartsFile::create(64).unwrap().path(), path);
        drop(made);
        assert!(!path.exists());
    }
}
