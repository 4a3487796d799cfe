//! The command line that starts a launcher on another host, as ssh takes it: one text, which a
//! shell there reads. Knows nothing of processes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::arguments::hosts::Host;
use super::arguments::job::Job;
use super::arguments::options::Binding;

/// Goes to the folder `$1`, and becomes the command that follows `$2`: `$2` words of it are those
/// of this command itself, the first a program. Where that is not there, `polyrank` of the path is.
const SCRIPT: &str = r#"
if ! cd "$1"; then
  echo "polyrank run: $0 has no folder $1; name another one, as in --wdir /tmp" >&2
  exit 1
fi
count=$2
shift 2
if ! command -v "$1" > /dev/null; then
  if ! command -v polyrank > /dev/null; then
    echo "polyrank run: $0 has neither $1 nor polyrank on its path; install it there as here" >&2
    exit 127
  fi
  shift "$count"
  set -- polyrank "$@"
fi
exec "$@"
"#;

/// Where the launchers meet, and which of them this is.
pub(super) struct RemotePlace<'run> {
    pub(super) host: &'run Host,
    pub(super) node_rank: usize,
    pub(super) node_count: usize,
    /// The host of node 0, and the port of its rendezvous; 0 for node 0, which picks one.
    pub(super) endpoint: (&'run str, u16),
    pub(super) run_id: &'run str,
}

/// The text that starts a launcher on a host, in `folder`; `itself` are the words of this command.
pub(super) fn text(
    job: &Job,
    place: &RemotePlace<'_>,
    itself: &[OsString],
    folder: &Path,
    passed_on: &[(OsString, OsString)],
) -> OsString {
    let mut words: Vec<OsString> = vec!["exec".into(), "/bin/sh".into(), "-c".into()];
    words.push(quoted(SCRIPT.as_ref()));
    words.push(quoted(place.host.target.as_ref()));
    words.push(quoted(folder.as_os_str()));
    words.push(itself.len().to_string().into());
    words.extend(itself.iter().map(|word| quoted(word)));
    words.push("run".into());
    words.extend(options(job, place, passed_on).iter().map(|word| quoted(word)));
    for (index, part) in job.parts.iter().enumerate() {
        // A job of one program may have other ranks on each host.
        let count = match job.parts.len() {
            1 => place.host.rank_count,
            _ => part.rank_count,
        };
        words.extend((index > 0).then(|| ":".into()));
        words.push(format!("-n {count} --no-python --").into());
        words.push(quoted(&part.program));
        words.extend(part.arguments.iter().map(|word| quoted(word)));
    }
    words.join(OsStr::new(" "))
}

/// The options of the launcher there, which are those of this one but for its place.
fn options(
    job: &Job,
    place: &RemotePlace<'_>,
    passed_on: &[(OsString, OsString)],
) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        options.push(word);
    };
    add("agent", place.host.name().into());
    add("run-id", place.run_id.into());
    if place.node_count > 1 {
        let (host, port) = place.endpoint;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        add("nnodes", place.node_count.to_string().into());
        add("node-rank", place.node_rank.to_string().into());
        add("rdzv-backend", "c10d".into());
        add("rdzv-endpoint", format!("{host}:{port}").into());
        add("rdzv-conf", format!("is_host={}", place.node_rank == 0).into());
    }
    if job.master_port > 0 {
        add("master-port", job.master_port.to_string().into());
    }
    add("external", job.external_count.to_string().into());
    add("role", job.role.clone().into());
    add("max-restarts", job.max_restarts.to_string().into());
    add("grace", job.grace.as_secs_f64().to_string().into());
    let binding = match job.binding {
        Binding::Core => "core",
        Binding::Socket => "socket",
        Binding::Numa => "numa",
        Binding::None => "none",
    };
    add("bind-to", binding.into());
    if let Some(limit) = job.timeout {
        add("timeout", limit.as_secs_f64().to_string().into());
    }
    if let Some(address) = job.metrics {
        add("metrics-host", address.ip().to_string().into());
        add("metrics-port", address.port().to_string().into());
    }
    output_options(job, &mut add);
    let flags = [("--pass-local-rank", job.pass_local_rank), ("--keep-going", job.keep_going)];
    // --max-restarts and --keep-going exclude each other, whatever the number.
    options.retain(|word| !job.keep_going || word != "--max-restarts=0");
    options.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).into()));
    for (flag, given) in
        [("--no-prefix", !job.output.prefix), ("--timestamps", job.output.timestamps)]
    {
        options.extend(given.then(|| flag.into()));
    }
    for (name, value) in passed_on.iter().chain(&job.variables) {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        options.extend(["-x".into(), pair]);
    }
    options
}

fn output_options(job: &Job, add: &mut impl FnMut(&str, OsString)) {
    let output = &job.output;
    if let Some(folder) = &output.log_dir {
        add("log-dir", folder.clone().into());
    }
    add("redirects", output.redirects.to_string().into());
    add("tee", output.tee.to_string().into());
    if let Some(ranks) = &output.filter {
        let ranks: Vec<String> = ranks.0.iter().map(u32::to_string).collect();
        add("local-ranks-filter", ranks.join(",").into());
    }
}

/// A word as every shell reads it: in single quotes, with each of its own outside of them.
fn quoted(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => bytes.extend(b"'\\''"),
            other => bytes.push(other),
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}
