//! Finds the files of a trace and reads them, or has a running job tell what would be in them.
//! Knows nothing of what the ranks did.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use polyrank_trace::{MAX_FILE_BYTES, RecordedFile, TraceError};

use crate::inspect;

/// What files hold, and the files of folders.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<RecordedFile>, String> {
    let mut files = Vec::new();
    let mut read = Vec::new();
    for path in paths {
        if let Some(url) = url_of(path) {
            read.push(of_job(url)?);
        } else if path.is_dir() {
            files.extend(of_folder(path)?);
        } else {
            files.push(path.clone());
        }
    }
    for path in files {
        read.push(read_file(&path)?);
    }
    Ok(read)
}

/// The address of a store, if this is one: what is a file is none.
fn url_of(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let names_port = text.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
    (text.contains("://") || (names_port && !path.exists())).then_some(text)
}

/// What the ranks of a running job have called.
fn of_job(url: &str) -> Result<RecordedFile, String> {
    let (whole, said) = inspect::gather(url)?;
    let _ = std::io::stderr().lock().write_all(format!("polyrank trace: {said}\n").as_bytes());
    polyrank_trace::read(url, &whole.to_string()).map_err(|error| error.to_string())
}

/// The files of a folder that are named as recorders name theirs, in the order of their names.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let why = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(why)? {
        let path = entry.map_err(why)?.path();
        if path.extension().is_some_and(|end| end == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!("{} has no file whose name ends with .json", folder.display()));
    }
    Ok(files)
}

fn read_file(path: &Path) -> Result<RecordedFile, String> {
    let name = path.display().to_string();
    let why = |error: std::io::Error| format!("cannot read {name}: {error}");
    let file = File::open(path).map_err(why)?;
    // A pipe has no length that could be asked for: what comes is what counts.
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(why)?;
    let (length, limit) = (bytes.len() as u64, MAX_FILE_BYTES);
    if length > limit {
        return Err(TraceError::TooLarge { file: name, bytes: length, limit }.to_string());
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{name} is not text"))?;
    polyrank_trace::read(&name, &text).map_err(|error| error.to_string())
}
