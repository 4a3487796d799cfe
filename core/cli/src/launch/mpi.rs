//! `polyrank run --with-mpi`: the same command line for ranks that MPI's own launcher starts. Knows
//! the launchers' options; nothing of MPI.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::arguments::job::Job;
use super::arguments::options::Binding;
use super::environment::PLACE;
use super::orphan_watchdog;
use super::report::say;
use polyrank::env::variable::{self, Variable};

/// The variable that names MPI's launcher, if it is neither that of the program's environment nor
/// the first in the path.
const VARIABLE: Variable = variable::POLYRANK_MPIEXEC;
/// MPI's launcher, by its name in the MPI standard.
const LAUNCHER: &str = "mpiexec";
/// A file or folder that a Python environment has beside its folder of programs.
const ENVIRONMENTS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];

/// Up to this many ranks, Open MPI's non-blocking allreduce sends every tensor to one rank and
/// back, which takes twice as long as a ring and saves no message. The launcher chooses the ring,
/// because all ranks of a job must choose alike. A larger job is left to Open MPI's own choice.
const FEW_RANKS: u32 = 3;
const RING: (Variable, &str) = (variable::OMPI_MCA_coll_libnbc_iallreduce_algorithm, "ring");

/// Becomes MPI's launcher of the job; returns only if that cannot be started, with an exit code.
pub(super) fn run(job: &Job) -> i32 {
    let program = job.parts.first().map(|part| part.program.as_os_str());
    let launcher = VARIABLE.value().or_else(|| of_environment(Path::new(program?)));
    let launcher = launcher.unwrap_or_else(|| LAUNCHER.into());
    let said = Command::new(&launcher).arg("--version").stdin(Stdio::null()).output();
    let version = match (refusal(job), said) {
        (Some(message), _) => {
            say(&message);
            return super::EXIT_USAGE;
        }
        (None, Err(error)) => {
            say(&format!(
                "cannot start MPI's launcher '{}': {error}. Install Open MPI or MPICH, or name its \
                 mpiexec in {VARIABLE}",
                launcher.to_string_lossy()
            ));
            return 127;
        }
        (None, Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let before_program = orphan_watchdog::start().unwrap_or_else(|error| {
        say(&format!("what the ranks start outlives MPI's launcher if it is killed: {error}"));
        Vec::new()
    });
    let mut command = Command::new(&launcher);
    if job.output.prefix {
        command.args(prefix(&version));
    }
    command.args(words(job, &before_program));
    // What ranks of another launcher find in their environment, and these must not.
    for variable in PLACE {
        command.env_remove(variable.name());
    }
    // The user may start more ranks than there are cores, as without MPI.
    let mut unless_set = vec![
        (variable::PYTHONUNBUFFERED, "1"),
        (variable::OMPI_MCA_rmaps_base_oversubscribe, "1"),
        (variable::PRTE_MCA_rmaps_default_mapping_policy, ":oversubscribe"),
    ];
    if job.local_world_size() > 1 {
        unless_set.push((variable::OMP_NUM_THREADS, "1"));
    }
    if job.local_world_size() <= FEW_RANKS {
        unless_set.push(RING);
    }
    unless_set.retain(|(variable, _)| !variable.is_set());
    let unless_set = unless_set.into_iter().map(|(variable, value)| (variable.name(), value));
    command.envs(unless_set).envs(job.variables.iter().map(|(name, value)| (name, value)));
    if let Some(folder) = &job.wdir {
        command.current_dir(folder);
    }
    let error = command.exec();
    say(&format!("cannot start MPI's launcher '{}': {error}", launcher.to_string_lossy()));
    126
}

/// The launcher of the environment, made by venv or conda, of which `program` is the interpreter;
/// none if it is another program, or the environment has no MPI of its own.
fn of_environment(program: &Path) -> Option<OsString> {
    let folder = program.parent()?;
    let root = folder.parent()?;
    let launcher = folder.join(LAUNCHER);
    let has_launcher = ENVIRONMENTS.iter().any(|mark| root.join(mark).exists());
    (has_launcher && launcher.is_file()).then(|| launcher.into_os_string())
}

/// The option by which a launcher of this version marks each line with its rank.
fn prefix(version: &str) -> &'static [&'static str] {
    if version.contains("HYDRA") {
        return &["-prepend-rank"];
    }
    // "mpirun (Open MPI) 5.0.11", or "mpiexec.openmpi (OpenRTE) 4.1.4".
    let opened = version.split_once("(Open").map(|(_, rest)| rest);
    let number = opened.and_then(|rest| Some(rest.split_once(") ")?.1));
    match number.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok()) {
        Some(major) if major >= 5 => &["--output", "tag"],
        Some(_) => &["--tag-output"],
        None => &[],
    }
}

/// Why MPI's launcher cannot run the job.
fn refusal(job: &Job) -> Option<String> {
    let refused = [
        (job.node_count > 1, "--nnodes"),
        (job.external_count > 0, "--external"),
        (job.keep_going, "--keep-going"),
        (job.pass_local_rank, "--pass-local-rank"),
        (job.max_restarts > 0, "--max-restarts"),
        (job.timeout.is_some(), "--timeout"),
        (job.record.is_some(), "--record"),
        (job.output.has_logs(), "--log-dir, --redirects and --tee"),
        (job.output.filter.is_some(), "--local-ranks-filter"),
        (job.output.timestamps, "--timestamps"),
        (job.binding != Binding::None, "--bind-to"),
    ];
    let (_, option) = refused.iter().find(|(given, _)| *given)?;
    Some(format!(
        "{option} is not for --with-mpi, where MPI's launcher starts the ranks; for its own option \
         call mpiexec itself, as in mpiexec -n 8 --hostfile hosts python train.py"
    ))
}

/// The parts of the job as all launchers of MPI take them, each with `before_program` in front of
/// its program.
fn words(job: &Job, before_program: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::new();
    for (place, part) in job.parts.iter().enumerate() {
        words.extend((place > 0).then(|| OsString::from(":")));
        words.extend([OsString::from("-n"), part.rank_count.to_string().into()]);
        words.extend(before_program.iter().chain([&part.program]).chain(&part.arguments).cloned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launcher_has_its_own_words_for_a_prefix() {
        assert_eq!(prefix("mpiexec.openmpi (OpenRTE) 4.1.4\n"), ["--tag-output"]);
        assert_eq!(prefix("mpirun (Open MPI) 4.1.4\n"), ["--tag-output"]);
        assert!(prefix("another launcher 1.0").is_empty());
        assert_eq!(prefix("mpirun (Open MPI) 5.0.11\n"), ["--output", "tag"]);
        assert_eq!(prefix("HYDRA build details:\n    Version: 4.0.2"), ["-prepend-rank"]);
    }
}
