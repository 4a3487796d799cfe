//! Ends what is left of the ranks that MPI's launcher started, however that launcher ended.
//!
//! MPI's launcher starts the ranks itself, and takes the place of this process, so that nobody here
//! sees it end. Each rank therefore writes itself into a list before it becomes the user's program,
//! and a shell beside the launcher, which the kernel tells of its end, kills the process groups of
//! the list: launchers of MPI give one to each rank. Ranks on other hosts find no list there.
//!
//! Only Linux tells; elsewhere there is no list.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::process::end_with_launcher;
use crate::random;

/// Writes what the system says of this process to the file `$0`, and becomes the program. It is one
/// line, as launchers pass words on to other hosts in their own ways.
const REGISTER: &str = "\
    { read -r line < /proc/$$/stat && echo \"$line\" >> \"$0\"; } 2> /dev/null; exec \"$@\"";

/// Waits for SIGTERM, and then kills the process groups of the list in the folder `$0`. One whose
/// leader started at another time than the rank has only its number in common with it: the time is
/// the twentieth word behind the name of the program.
const SCRIPT: &str = "
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

/// Starts the shell, which ends when this process does, whatever program it is then. The words that
/// stand before a program so that it is in the list; none where the system cannot tell.
///
/// # Errors
/// There is no shell, or no room for it or for the list.
pub(super) fn start() -> io::Result<Vec<OsString>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let name = u64::from_le_bytes(random::bytes()?);
    let folder = std::env::temp_dir().join(format!("polyrank-ranks-{name:016x}"));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).arg(&folder).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    end_with_launcher(&mut command, Signal::TERM);
    let mut shell = command.spawn()?;
    // Before that, the signal would end the shell.
    let said = shell.stdout.take().map(BufReader::new).and_then(|said| said.lines().next());
    said.transpose()?.ok_or(io::ErrorKind::BrokenPipe)?;
    let list = folder.join("ranks").into_os_string();
    Ok(vec!["/bin/sh".into(), "-c".into(), REGISTER.into(), list])
}
