//! A watchdog that kills the remaining ranks of an MPI launcher, however that launcher ended.
//!
//! MPI's launcher replaces this process by `exec` and starts the ranks itself, so nobody here sees
//! it end. Each rank therefore adds itself to a list before it becomes the user's program, and a
//! shell beside the launcher, which gets a signal from the kernel when the launcher ends, kills the
//! process groups of the list: MPI launchers create one for each rank. Ranks on other hosts find no
//! list there.
//!
//! Only Linux sends that signal; elsewhere there is no watchdog.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::process::end_with_launcher;
use crate::random;

/// Appends `/proc/PID/stat` of this process to the file `$0`, and becomes the program. It is one
/// line, because launchers differ in how they pass words to other hosts.
const REGISTER_SCRIPT: &str = "\
    { read -r line < /proc/$$/stat && echo \"$line\" >> \"$0\"; } 2> /dev/null; exec \"$@\"";

/// Waits for SIGTERM, and then kills the process groups of the list in the folder `$0`. If the
/// leader's start time differs, the PID was reused and the group is left alone. Start time is field
/// 22 of `/proc/PID/stat`, the twentieth after the name of the program.
const WATCHDOG_SCRIPT: &str = "
ended=
sleeper=
trap 'ended=1; [ -z \"$sleeper\" ] || kill \"$sleeper\"' TERM
sleep 2147483647 &
sleeper=$!
[ -z \"$ended\" ] || kill \"$sleeper\"
echo ready
wait \"$sleeper\"
started_at() {
  set -- ${1##*) }
  shift 19
  started=$1
}
[ -n \"$ended\" ] && [ -e \"$0/ranks\" ] && while read -r rank; do
  leader=${rank%% *}
  started_at \"$rank\"
  expected=$started
  now=
  read -r now < \"/proc/$leader/stat\"
  [ -z \"$now\" ] || started_at \"$now\"
  [ \"$started\" != \"$expected\" ] || kill -s KILL -- \"-$leader\"
done < \"$0/ranks\"
rm -r \"$0\"
";

/// Starts the watchdog; it survives `exec` of this process and ends with it. Returns the command
/// prefix that registers a rank; it is empty where the system cannot signal the end of a process.
///
/// # Errors
/// The shell cannot be started, or the list cannot be created.
pub(super) fn start() -> io::Result<Vec<OsString>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let name = u64::from_le_bytes(random::bytes()?);
    let folder = std::env::temp_dir().join(format!("polyrank-ranks-{name:016x}"));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", WATCHDOG_SCRIPT]).arg(&folder).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    end_with_launcher(&mut command, Signal::TERM);
    let mut shell = command.spawn()?;
    // Until it reports ready, its trap is not set and SIGTERM would kill it.
    let said = shell.stdout.take().map(BufReader::new).and_then(|said| said.lines().next());
    said.transpose()?.ok_or(io::ErrorKind::BrokenPipe)?;
    let list = folder.join("ranks").into_os_string();
    Ok(vec!["/bin/sh".into(), "-c".into(), REGISTER_SCRIPT.into(), list])
}
