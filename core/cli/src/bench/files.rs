//! What a benchmark writes: its tables on stdout, its files at the end. Knows nothing of their
//! content.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Writes text to stdout. If that is closed, its reader wants no more; the files are written all
/// the same.
pub(super) fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Checks, before minutes of measuring, whether files can be written afterwards. Existing files
/// stay as they are.
///
/// # Errors
/// Names the first file that cannot be written.
pub(super) fn check<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), String> {
    for path in paths {
        if path == Path::new("-") {
            let advice = "name a file, or /dev/stdout for what the table goes to, too";
            return Err(format!("cannot write \"-\": {advice}"));
        }
        let is_new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| cannot_write(path, &error))?;
        if is_new {
            // A benchmark that ends early leaves no empty file.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let made = tempfile::tempdir().unwrap();
        let folder = made.path();
        let (new, old) = (folder.join("new"), folder.join("old"));
        fs::write(&old, "text").unwrap();
        check([new.as_path(), old.as_path()]).unwrap();
        assert!(!new.exists(), "nothing is left of the look");
        assert_eq!(fs::read_to_string(&old).unwrap(), "text");
        for wrong in [folder, &folder.join("no such folder/file"), Path::new("-")] {
            let message = check([wrong]).unwrap_err();
            assert!(message.starts_with("cannot write "), "{message}");
        }
    }
}
