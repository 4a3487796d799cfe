//! Runs a command and shows that it is running: a moving line on a terminal, plain lines elsewhere.
//! Its output goes into a log. Knows nothing of what the commands do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a line says that a command still runs, if the output is not a terminal.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// A command that prints nothing for so long hangs. How long the whole takes says nothing: machines
/// differ in speed.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// How a command ended.
pub(crate) struct CommandResult {
    /// Whether its exit code was 0.
    pub(crate) success: bool,
    /// Everything that it wrote to stdout and stderr, in order.
    pub(crate) output: String,
    /// How long it took.
    pub(crate) took: Duration,
}

/// Where commands are shown and their output is kept.
pub(crate) struct Progress {
    logs: PathBuf,
    is_terminal: bool,
    /// The lines of the commands that run at the same time.
    bars: MultiProgress,
}

impl Progress {
    /// `logs` is a folder that is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn new(logs: PathBuf) -> Result<Progress> {
        std::fs::create_dir_all(&logs)
            .with_context(|| format!("cannot make {}", logs.display()))?;
        Ok(Progress { logs, is_terminal: io::stderr().is_terminal(), bars: MultiProgress::new() })
    }

    /// The file with the output of the step `name`.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Runs `command` to its end, as part of the step `name`. A command that fails is not an error.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> Result<CommandResult> {
        let started = Instant::now();
        let shown = words(command);
        let bar = self.begin(name, &shown);
        let (reader, writer) = io::pipe().context("cannot make a pipe")?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        // The command holds the writing ends; without this the pipe never ends.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (lines, inbox) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(io::Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut output = format!("$ {shown}\n");
        let ends = self.collect(name, &inbox, bar.as_ref(), started, &mut output);
        if !ends {
            let silence = SILENCE.as_secs();
            output
                .push_str(&format!("stopped: it hangs; it has printed nothing for {silence} s\n"));
            kill_with_descendants(child.id());
        }
        let status = child.wait().with_context(|| format!("cannot wait for {shown}"))?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        self.append(name, &output)?;
        Ok(CommandResult { success: status.success() && ends, output, took: started.elapsed() })
    }

    /// Runs `command` as part of the step `name`, which fails if the command does.
    ///
    /// # Errors
    /// The command cannot be started, or fails: the message holds what it wrote.
    pub(crate) fn demand(&self, name: &str, command: &mut Command) -> Result<()> {
        let finished = self.run(name, command)?;
        ensure!(finished.success, "this failed:\n{}", finished.output.trim_end());
        Ok(())
    }

    /// Empties the log of a step before its first command.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(crate) fn clear(&self, name: &str) -> Result<()> {
        let path = self.log(name);
        std::fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))
    }

    fn begin(&self, name: &str, shown: &str) -> Option<ProgressBar> {
        if !self.is_terminal {
            eprintln!("[{name}] $ {shown}");
            return None;
        }
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed}  {wide_msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        bar.set_message(shown.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Some(bar)
    }

    /// Takes lines until the command closes its output; false if none comes for too long.
    fn collect(
        &self,
        name: &str,
        inbox: &Receiver<String>,
        bar: Option<&ProgressBar>,
        started: Instant,
        output: &mut String,
    ) -> bool {
        let mut next_heartbeat = HEARTBEAT;
        let mut spoke = Instant::now();
        loop {
            match inbox.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    spoke = Instant::now();
                    if let Some(bar) = bar {
                        bar.set_message(line.trim().to_owned());
                    }
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if spoke.elapsed() > SILENCE {
                return false;
            }
            let elapsed = started.elapsed();
            if bar.is_none() && elapsed > next_heartbeat {
                next_heartbeat = elapsed + HEARTBEAT;
                let last = output.lines().last().unwrap_or_default().trim();
                eprintln!("[{name}] {} s: {last}", elapsed.as_secs());
            }
        }
    }

    fn append(&self, name: &str, output: &str) -> Result<()> {
        let path = self.log(name);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(output.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The command as a person would type it, without the folders before the program.
fn words(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy();
    let arguments = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Kills a process and everything that it started, where `/proc` tells which processes those are.
fn kill_with_descendants(root: u32) {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // "pid (name) state parent …", and the name may hold anything.
        let parent =
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let (Some(pid), Some(parent)) = (pid, parent) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut doomed, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = open.pop() {
        if doomed.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    let pids = doomed.iter().map(u32::to_string);
    // Some of them may be gone by now; the error that `kill` prints for these is dropped.
    let _ = Command::new("kill").arg("-9").args(pids).stderr(Stdio::null()).status();
}
