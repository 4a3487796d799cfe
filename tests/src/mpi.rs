//! Ranks of MPI jobs: which launchers there are here, and a test that starts itself again under
//! them. Knows nothing of what the ranks do.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use polyrank::ProcessGroup;
use polyrank::distributed::{
    InitOptions, destroy_process_group, init_process_group, is_initialized,
};

use super::folder::Folder;
use super::languages::{Language, Program, built, say_skipped};
use super::launch::{self, LaunchEnd};

/// Which test a started process is to be a rank of.
pub const ROLE: &str = "POLYRANK_TEST_ROLE";
/// Where ranks are told the file for their reports.
const REPORTS: &str = "POLYRANK_TEST_REPORTS";
/// A job that is not over by then hangs; s.
const LIMIT_S: &str = "120";
/// What `timeout` returns for a job that it ended.
pub const HUNG: i32 = 124;

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// The system's Open MPI, with its mpirun.
    OpenMpi,
    /// The system's MPICH, with its own ABI and its mpiexec, Hydra.
    Mpich,
    /// The standard ABI of MPI 5: MPICH 5 as a Python package, with its mpiexec. Its ranks are told
    /// to use that of its libraries, by `POLYRANK_MPI_LIBRARY`.
    Standard,
    /// Open MPI 5 as a Python package, with its mpirun, which is PRRTE's.
    OpenMpi5,
}

/// How a job ended.
#[derive(Debug)]
pub struct Job {
    /// The launcher's exit code.
    pub code: Option<i32>,
    /// What ranks told with [`report`], or printed as lines of that form: rank and text, in the
    /// order of their coming.
    pub reports: Vec<(u32, String)>,
    /// All that was printed, for messages.
    pub output: String,
}

impl Job {
    /// What a rank reported.
    pub fn of(&self, rank: u32) -> Vec<&str> {
        let own = self.reports.iter().filter(|(from, _)| *from == rank);
        own.map(|(_, text)| text.as_str()).collect()
    }
}

impl Mpi {
    /// All of them.
    pub const ALL: [Mpi; 4] = [Mpi::OpenMpi, Mpi::Mpich, Mpi::Standard, Mpi::OpenMpi5];

    /// Its launcher, if it is here: what its variable names (`POLYRANK_OPEN_MPI`, `POLYRANK_MPICH`,
    /// `POLYRANK_MPI_5`, `POLYRANK_OPEN_MPI_5`), one of the usual names, or that of the environment
    /// that `cargo xtask setup` makes.
    pub fn launcher(self) -> Option<OsString> {
        let (variable, names, says): (_, &[&str], _) = match self {
            // "mpirun (Open MPI) 5.0.11", "mpirun.openmpi (OpenRTE) 4.1.4".
            Mpi::OpenMpi => ("POLYRANK_OPEN_MPI", &["mpirun.openmpi", "mpirun"], "(Open"),
            Mpi::Mpich => {
                ("POLYRANK_MPICH", &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], "HYDRA")
            }
            Mpi::Standard => ("POLYRANK_MPI_5", &["../.venv-mpich/bin/mpiexec"], "HYDRA"),
            Mpi::OpenMpi5 => ("POLYRANK_OPEN_MPI_5", &["../.venv-openmpi/bin/mpirun"], "(Open"),
        };
        if let Some(named) = std::env::var_os(variable) {
            return Some(named);
        }
        let is_it = |name: &OsString| {
            let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(says))
        };
        let place = |name: &&str| match name.strip_prefix("../") {
            Some(inside) => {
                let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
                tests.parent().unwrap_or(tests).join(inside).into_os_string()
            }
            None => OsString::from(name),
        };
        names.iter().map(place).find(is_it)
    }

    /// The library that its launcher's ranks are given.
    pub fn library(self) -> OsString {
        let beside = |name: &str| {
            let launcher = self.launcher().map(PathBuf::from);
            let root = launcher.as_deref().and_then(|it| it.parent()?.parent());
            root.map_or_else(|| name.into(), |root| root.join("lib").join(name).into_os_string())
        };
        match self {
            Mpi::OpenMpi => "libmpi.so.40".into(),
            Mpi::Mpich => "libmpich.so.12".into(),
            Mpi::Standard => beside("libmpi_abi.so.1"),
            Mpi::OpenMpi5 => beside("libmpi.so.40"),
        }
    }

    /// The library that ranks take which are not told another: of those that it brings, the one
    /// that other parts of a program are built for.
    pub fn usual_library(self) -> OsString {
        let library = PathBuf::from(self.library());
        match self {
            Mpi::Standard => library.with_file_name("libmpi.so.12").into_os_string(),
            _ => library.into_os_string(),
        }
    }

    /// Whether it is one of Open MPI's, whose launcher speaks PMIx.
    pub fn is_open_mpi(self) -> bool {
        matches!(self, Mpi::OpenMpi | Mpi::OpenMpi5)
    }

    /// A folder in which MPICH's library has its usual name, for programs that know no other, where
    /// it is installed under Debian's alone.
    pub fn usual_name(self) -> Option<Folder> {
        let list = Command::new("/sbin/ldconfig").arg("-p").output().ok()?.stdout;
        let list = String::from_utf8_lossy(&list).into_owned();
        let find = |name: &str| list.lines().find(|line| line.trim_start().starts_with(name));
        if self != Mpi::Mpich || find("libmpi.so.12 ").is_some() {
            return None;
        }
        let (_, path) = find("libmpich.so.12 ")?.split_once("=> ")?;
        let folder = Folder::new();
        std::os::unix::fs::symlink(path, folder.path().join("libmpi.so.12")).ok()?;
        Some(folder)
    }

    /// As [`Mpi::launcher`], which says that the test is skipped where there is none.
    pub fn launcher_or_skip(self) -> Option<OsString> {
        let launcher = self.launcher();
        if launcher.is_none() {
            say_skipped(&format!("{self:?}: its launcher is not installed; run cargo xtask setup"));
        }
        launcher
    }

    /// A command that starts `size` ranks of what is added to it; none, after saying so, where the
    /// implementation is missing.
    pub fn command(self, size: u32) -> Option<Command> {
        let launcher = self.launcher_or_skip()?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT_S]).arg(launcher);
        match self {
            Mpi::OpenMpi => command.args(["--allow-run-as-root", "--oversubscribe"]).args([
                "--mca",
                "btl_tcp_if_include",
                "lo",
                "--mca",
                "oob_tcp_if_include",
                "lo",
            ]),
            // It finds no network where it is told to look at the loopback interface only.
            Mpi::OpenMpi5 => command
                .args(["--allow-run-as-root", "--map-by", ":oversubscribe"])
                .args(["--mca", "btl", "self,sm"]),
            Mpi::Mpich => command.args(["-iface", "lo"]),
            Mpi::Standard => {
                command.args(["-iface", "lo"]).env("POLYRANK_MPI_LIBRARY", self.library())
            }
        };
        command.args(["-n", &size.to_string()]);
        // What a launcher of other tests said is not for these ranks.
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"] {
            command.env_remove(name);
        }
        Some(command)
    }
}

/// Reports an error of a rank, on one line.
pub fn tell(rank: u32, error: &polyrank::Error) {
    report(rank, format!("{}: {}", error.kind(), error.to_string().replace('\n', " ")));
}

/// The one thing that a rank reported.
pub fn only(job: &Job, rank: u32) -> &str {
    let said = job.of(rank);
    let [line] = said.as_slice() else { panic!("rank {rank} said {said:?}\n{}", job.output) };
    line
}

/// Tells the starting test a line, which it will find in [`Job::reports`]: in a file, since
/// launchers drop what they have not read of a rank when its job is aborted.
pub fn report(rank: u32, line: impl std::fmt::Display) {
    let path = std::env::var_os(REPORTS).expect("the starting test names the file");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let line = format!("REPORT {rank} {line}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file can be written");
}

/// Runs `rank_main` on `size` ranks of one job with the default group over MPI. `test` is the full
/// name of the calling test. In a started process this does not return. `None` where the
/// implementation is missing.
pub fn ranks(
    mpi: Mpi,
    test: &str,
    size: u32,
    variables: &[(&str, &str)],
    rank_main: impl FnOnce(ProcessGroup),
) -> Option<Job> {
    bare_ranks(mpi, test, size, variables, || {
        let options = InitOptions::default().backend("mpi").timeout(super::LIMIT);
        let group = init_process_group(options).expect("the group is made");
        rank_main(group);
        if is_initialized() {
            destroy_process_group(None).expect("the group is destroyed");
        }
    })
}

/// As [`ranks`], without a group.
pub fn bare_ranks(
    mpi: Mpi,
    test: &str,
    size: u32,
    variables: &[(&str, &str)],
    rank_main: impl FnOnce(),
) -> Option<Job> {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        rank_main();
        std::process::exit(0);
    }
    let mut command = mpi.command(size)?;
    command.arg(std::env::current_exe().expect("the test has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, test).envs(variables.iter().copied());
    Some(run(command))
}

/// As [`bare_ranks`], started by `polyrank run --with-mpi`.
pub fn launched(mpi: Mpi, test: &str, size: u32, rank_main: impl FnOnce()) -> Option<Job> {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        rank_main();
        std::process::exit(0);
    }
    let launcher = mpi.launcher_or_skip()?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_S]).arg(built("polyrank"));
    command.args(["run", "--with-mpi", "--no-prefix", "-n", &size.to_string()]);
    command.arg(std::env::current_exe().expect("the test has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, test).env("POLYRANK_MPIEXEC", launcher);
    if mpi == Mpi::Standard {
        command.env("POLYRANK_MPI_LIBRARY", mpi.library());
    }
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    Some(run(command))
}

/// Runs a program of another language on `size` ranks. `None` where something is missing.
pub fn program(mpi: Mpi, language: Language, program: Program, size: u32) -> Option<Job> {
    let words = match language.command(program) {
        Ok(words) => words,
        Err(missing) => {
            say_skipped(&format!("{language:?}: {missing}"));
            return None;
        }
    };
    let mut command = mpi.command(size)?;
    command.args(words).env("POLYRANK_TEST_BACKEND", "mpi");
    Some(run(command))
}

/// Runs a job to its end. What launcher and ranks leave below the system's folder for temporary
/// files, also where they are killed, goes with it.
pub fn run(mut command: Command) -> Job {
    // Jobs side by side would have more ranks than there are cores, and ranks of MPI never sleep.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let told = folder.path().join("reports");
    command.env(REPORTS, &told);
    let LaunchEnd { code, stdout: said, stderr } = launch::to_its_end(&mut command, &folder);
    let told = std::fs::read_to_string(told).unwrap_or_default();
    let reports = told.lines().chain(said.lines()).filter_map(|line| {
        let (rank, text) = line.strip_prefix("REPORT ")?.split_once(' ')?;
        Some((rank.parse().ok()?, text.to_owned()))
    });
    let reports = reports.collect();
    Job { code, reports, output: format!("{told}\n{said}\n{stderr}") }
}
