//! A process with something of torchft's in it, for the suites in Rust that try both together; each
//! takes this file by its path.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::NamedTempFile;

/// A process with something of torchft's in it; it is killed if a test fails.
pub(crate) struct Peer {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
    /// Where it writes its log, and what it fails with.
    pub(crate) log: NamedTempFile,
}

impl Peer {
    /// With these words for `peers.py`; none where torchft is not installed, which is said.
    pub(crate) fn start(test: &str, words: &[&str]) -> Option<Peer> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python: PathBuf = root.join(".venv-torchft/bin/python");
        if !python.exists() {
            let reason = "torchft is not installed: cargo xtask setup";
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
            return None;
        }
        let mut command = Command::new(python);
        command.arg(root.join("tests/torchft/peers.py")).args(words);
        let log = NamedTempFile::new().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.reopen().unwrap());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Peer { child, output, log })
    }

    /// The next line that it says.
    pub(crate) fn said(&mut self) -> Value {
        let mut line = String::new();
        while !line.trim_start().starts_with(['{', '[']) {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                panic!("it has ended: {}", std::fs::read_to_string(self.log.path()).unwrap());
            }
        }
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
