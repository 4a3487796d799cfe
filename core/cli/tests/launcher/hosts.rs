//! A program that stands in for ssh: each "host" is a name of this one.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::polyrank;

/// What stands in for ssh: it notes its host, and has a shell read the command, as sshd does, in an
/// environment of its own and in another folder. Host "127.0.0.9" cannot be reached.
const DOUBLE: &str = r#"#!/bin/sh
[ "$1 $2" = "-o BatchMode=yes" ] || exit 99
shift 2
echo "$1" >> "FOLDER/hosts"
case "$1" in *127.0.0.9) echo "ssh: no route to host" >&2; exit 255;; esac
[ $# = 2 ] || exit 98
cd /
exec env -i PATH="$PATH" HOME="$HOME" ON_HOST="$1" /bin/sh -c "$2"
"#;

/// Hosts that are all this one, until it is dropped.
pub(crate) struct Hosts {
    folder: tempfile::TempDir,
}

impl Hosts {
    pub(crate) fn new() -> Hosts {
        let folder = tempfile::tempdir().unwrap();
        let text = DOUBLE.replace("FOLDER", folder.path().to_str().unwrap());
        let program = folder.path().join("double");
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Hosts { folder }
    }

    /// `polyrank run` with these words, which reaches them.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = polyrank(words);
        command.env("POLYRANK_SSH", self.folder.path().join("double"));
        command.current_dir(self.place());
        for name in ["POLYRANK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"] {
            command.env_remove(name);
        }
        command
    }

    /// The folder in which the job is started, with signs in its name that shells care for.
    pub(crate) fn place(&self) -> PathBuf {
        let place = self.folder.path().canonicalize().unwrap().join("it's a $(folder)");
        std::fs::create_dir_all(&place).unwrap();
        place
    }

    /// Those that were reached.
    pub(crate) fn reached(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("hosts")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
