//! Folders for what tests and their ranks write. Knows nothing of what that is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, gone with all that is in it when this is dropped: also what ranks left there that
/// were killed.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one below the system's folder for temporary files. Its path is short, so that sockets
    /// may have names in it.
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("polyrank-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it, as text.
    pub fn text_of(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is for whoever cleans the system's folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
