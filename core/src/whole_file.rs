//! Files of which a reader finds all or what was there before. Knows nothing of what is in them.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Writes `contents` as JSON; whoever reads the file finds all of it, or what was there before.
pub(crate) fn write(path: &Path, contents: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two threads may write at the same time, and processes of several hosts to one folder.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (crate::clock::process_id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
    let host = host_name();
    let unfinished = folder.join(format!(".{name}.{host}.{process}.{number}"));
    let written = (|| {
        let mut file = io::BufWriter::new(std::fs::File::create(&unfinished)?);
        serde_json::to_writer(&mut file, contents)?;
        file.write_all(b"\n")?;
        file.flush()?;
        std::fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
