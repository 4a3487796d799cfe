//! Where processes of PyTorch look up the names of hosts. The server of its store asks for the name
//! of every client that comes, in its only thread: where that goes to a DNS server, the time of
//! that one is measured. So these processes run in a mount namespace whose `nsswitch.conf` says
//! `hosts: files`, where the system allows one. Knows nothing of what they run.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The system's table of where to look for names.
const TABLE: &str = "/etc/nsswitch.conf";
/// Covers the table by its first argument, then runs the others.
const SCRIPT: &str = "mount --bind \"$0\" /etc/nsswitch.conf && exec \"$@\"";
/// What makes a mount namespace: for root, and for others where the system lets them be root of a
/// user namespace.
const NAMESPACES: [&[&str]; 2] =
    [&["unshare", "--mount"], &["unshare", "--mount", "--user", "--map-root-user"]];

/// How programs are started so that names come from files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalNames {
    /// The words in front of a program's own.
    pub(super) prefix: Vec<OsString>,
    /// What the results say of it.
    pub(super) setting: String,
}

impl LocalNames {
    /// Finds out how, with `folder` for the table; if there is no way, programs are started as they
    /// are, and the setting says why.
    pub(super) fn prepare(folder: &Path) -> LocalNames {
        let asks_others = |why: &str| LocalNames {
            prefix: Vec::new(),
            setting: format!("names of hosts as the system looks them up ({why})"),
        };
        if !cfg!(target_os = "linux") {
            return asks_others("this system has no mount namespaces");
        }
        let Ok(table) = fs::read_to_string(TABLE) else {
            return asks_others("there is no /etc/nsswitch.conf");
        };
        let from_files = |prefix| LocalNames {
            prefix,
            setting: "names of hosts from files (nsswitch.conf: \"hosts: files\")".to_owned(),
        };
        let Some(table) = of_files(&table) else { return from_files(Vec::new()) };
        let path = folder.join("nsswitch.conf");
        if let Err(error) = fs::write(&path, table) {
            return asks_others(&error.to_string());
        }
        let mut why = String::new();
        for namespace in NAMESPACES {
            let words = namespace.iter().copied().chain(["sh", "-c", SCRIPT]).map(OsString::from);
            let prefix: Vec<OsString> = words.chain([path.clone().into_os_string()]).collect();
            match try_prefix(&prefix) {
                Ok(()) => return from_files(prefix),
                Err(said) => why = said,
            }
        }
        asks_others(&format!("no mount namespace can be made: {why}"))
    }
}

/// The table with files alone for hosts; none if it says so already.
fn of_files(table: &str) -> Option<String> {
    let (mut lines, mut is_changed, mut has_hosts) = (Vec::new(), false, false);
    for line in table.lines() {
        let sources = line.split('#').next().and_then(|line| line.trim().strip_prefix("hosts:"));
        let Some(sources) = sources else {
            lines.push(line);
            continue;
        };
        has_hosts = true;
        is_changed |= sources.trim() != "files";
        lines.push("hosts: files");
    }
    if !has_hosts {
        // The C library's own choice includes DNS.
        lines.push("hosts: files");
    }
    (is_changed || !has_hosts).then(|| lines.join("\n") + "\n")
}

/// Whether a program can be started so; the error is what was said.
fn try_prefix(prefix: &[OsString]) -> Result<(), String> {
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).args(["grep", "-q", "^hosts: files$", TABLE]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hosts_are_looked_up_in_files_alone_and_the_rest_stays() {
        let table =
            "# A table\npasswd: files systemd\nhosts:   files dns # usual\nnetworks: files\n";
        let changed = "# A table\npasswd: files systemd\nhosts: files\nnetworks: files\n";
        assert_eq!(of_files(table).as_deref(), Some(changed));
        assert_eq!(of_files(changed), None);
        assert_eq!(of_files("passwd: files\n").as_deref(), Some("passwd: files\nhosts: files\n"));
    }

    #[test]
    fn programs_run_with_the_table_or_it_is_said_why_not() {
        let made = tempfile::tempdir().unwrap();
        let names = LocalNames::prepare(made.path());
        if names.prefix.is_empty() {
            assert!(names.setting.starts_with("names of hosts "), "{names:?}");
            return;
        }
        let mut command = Command::new(&names.prefix[0]);
        let words = ["sh", "-c", "cat /etc/nsswitch.conf; exit 7"];
        let output = command.args(&names.prefix[1..]).args(words).output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.lines().any(|line| line == "hosts: files"), "{table}");
        assert_eq!(output.status.code(), Some(7));
        // Outside, nothing has changed.
        assert!(of_files(&fs::read_to_string(TABLE).unwrap()).is_some());
    }
}
