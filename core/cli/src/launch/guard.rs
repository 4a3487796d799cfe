//! Ends the ranks, with everything that they started, of a launcher that was itself killed.
//!
//! A launcher that gets SIGKILL can do nothing any more. So a shell stands beside it, in a process
//! group of its own, and reads from a pipe which process groups there are. The pipe's other end is
//! the launcher's alone: when it closes without a last word, the shell kills them. On Linux the
//! kernel kills the ranks themselves too (`process::end_with_launcher`), but not what they started.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

/// Reads one number per line up to "end"; if that does not come, kills these process groups.
const SCRIPT: &str = "
groups=
while read -r word; do
  [ \"$word\" = end ] && exit 0
  groups=\"$groups -$word\"
done
for group in $groups; do kill -s KILL -- \"$group\" 2> /dev/null; done
";

/// The shell that runs beside a launcher.
pub(super) struct Guard {
    shell: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts the shell.
    ///
    /// # Errors
    /// There is no shell, or the system starts no more processes.
    pub(super) fn start() -> io::Result<Guard> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).current_dir("/").process_group(0);
        // A program that reads the launcher's output must see its end before the shell ends.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let pipe = shell.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Guard { shell, pipe })
    }

    /// Makes the shell kill the process group `leader` if the launcher is killed.
    ///
    /// # Errors
    /// The shell is gone.
    pub(super) fn add(&mut self, leader: Pid) -> io::Result<()> {
        self.pipe.write_all(format!("{}\n", leader.as_raw_nonzero()).as_bytes())
    }

    /// Ends the shell, before the system can reuse the numbers of the groups.
    pub(super) fn dismiss(mut self) {
        // An error means that the shell is gone; then it kills nothing.
        let _ = self.pipe.write_all(b"end\n");
        drop(self.pipe);
        let _ = self.shell.wait();
    }
}
