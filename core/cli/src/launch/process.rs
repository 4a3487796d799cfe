//! One rank's process: started in its own process group, dying with the launcher, and stopped with
//! everything that it started. Knows nothing of the other ranks.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use std::os::unix::process::CommandExt;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use super::arguments::parts::Part;
use super::listeners::Listeners;
use super::report::ProcessEnd;

/// A started rank.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts `part` as one rank, with `extra` after its arguments.
    pub(crate) fn start(
        part: &Part,
        extra: Option<&OsStr>,
        variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        read_stdin: bool,
    ) -> io::Result<Process> {
        Process::start_in(None, part, extra, variables, read_stdin)
    }

    /// As [`Process::start`], in a folder.
    pub(super) fn start_in(
        folder: Option<&Path>,
        part: &Part,
        extra: Option<&OsStr>,
        variables: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        read_stdin: bool,
    ) -> io::Result<Process> {
        let mut command = Command::new(&part.program);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        command.args(&part.arguments).args(extra);
        command.envs(variables.iter().map(|(name, value)| (name.as_ref(), value)));
        command.stdin(if read_stdin { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        end_with_launcher(&mut command, Signal::KILL);
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Process { child, pid })
    }

    /// The process id, which is also the id of its process group.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The rank's output, which can be taken once.
    pub(crate) fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.stdout.take().zip(self.child.stderr.take())
    }

    /// Sends `signal` to the rank and to everything that it started.
    ///
    /// The system cannot have reused the group's id: the rank stays a zombie until
    /// [`Process::reap`].
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that no process is left in the group, or that they changed their user.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Sends a signal that asks a program for something to the rank, which knows what it means; if
    /// it has no handler for it, to what it started that has one. Whether there was anybody.
    pub(super) fn ask(&self, listeners: &Listeners, signal: Signal) -> bool {
        let sent = listeners.below(self.pid).into_iter();
        // An error means that it has just ended, or that it has changed its user.
        sent.filter(|pid| kill_process(*pid, signal).is_ok()).count() > 0
    }

    /// Kills what is left of the group and forgets the process. It must have ended.
    pub(crate) fn reap(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Waits until the process has ended, and leaves it a zombie.
pub(crate) fn wait_for_end(pid: Pid) -> ProcessEnd {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => {
                let signal = status.terminating_signal().map(ProcessEnd::Signal);
                let code = status.exit_status().map(ProcessEnd::Code);
                return signal.or(code).unwrap_or(ProcessEnd::Code(1));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            // Other code in this process reaped the child; all we know is that it is gone.
            Err(_) => return ProcessEnd::Code(1),
        }
    }
}

/// Lets the kernel send the process `signal` when the launcher is gone, however it went.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn end_with_launcher(command: &mut Command, signal: Signal) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let launcher = getpid();
    let in_child = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The launcher may have died between fork and the call above.
        match getppid() == Some(launcher) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe work is allowed.
    // It makes two system calls and allocates nothing: both kinds of error above are plain numbers.
    unsafe { command.pre_exec(in_child) };
}

/// Other systems cannot do that; there, the ranks see their pipes close.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with_launcher(_command: &mut Command, _signal: Signal) {}
