//! Folders for what tests and their ranks write. Knows nothing of what that is.

use std::path::Path;

use tempfile::TempDir;

use crate::processes::is_rank;

/// A new folder, gone with all that is in it when this is dropped: also what ranks left there that
/// were killed. The test makes it and tells its ranks the path; when a started rank comes through
/// the same lines, nothing is made, since a rank may end without dropping anything.
#[derive(Debug)]
pub struct Folder(Option<TempDir>);

impl Folder {
    /// Makes one below the system's folder for temporary files. Its path is short, so that sockets
    /// may have names in it.
    pub fn new() -> Folder {
        let make = || TempDir::with_prefix("polyrank-test-").expect("a folder can be made");
        Folder((!is_rank()).then(make))
    }

    /// Where it is; empty in a started rank.
    pub fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// The path of something in it, as text.
    pub fn text_of(&self, name: &str) -> String {
        self.path().join(name).to_string_lossy().into_owned()
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}
