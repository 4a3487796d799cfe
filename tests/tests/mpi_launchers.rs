//! The mpi backend under what other launchers than `mpirun` set, as Slurm's `srun` does: with an
//! interface for MPI a job is made, and without one there is an error that says what to do. Slurm
//! itself is not here: its variables are. And which launcher and library ranks use of several, so
//! that mpi4py beside polyrank uses the same.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank_tests::folder::Folder;
use polyrank_tests::languages::{Language, Program, built, say_skipped};
use polyrank_tests::mpi::{Job, Mpi, ROLE, bare_ranks, report, run};

/// What `srun -n 2` sets for every process of a step, besides what its interface for MPI sets.
const STEP: [&str; 3] = ["SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"];

/// Starts this test again by `command`, with the variables of `words` (those of `env`).
fn again(mut command: Command, test: &str, words: &[&str]) -> Job {
    command.arg("env").args(words);
    command.arg(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, test);
    run(command)
}

/// Whether this process was started by [`again`]; then it is a rank, and reports the result.
fn is_rank(test: &str) -> bool {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        match init_process_group(InitOptions::default().backend("mpi")) {
            Ok(group) => {
                let mut sum = [group.rank() + 1];
                group.allreduce(&mut sum, ()).unwrap();
                report(group.rank(), format!("{} of {}", sum[0], group.size()));
                destroy_process_group(None).unwrap();
            }
            Err(error) => report(0, error.to_string().replace('\n', " ")),
        }
        std::process::exit(0);
    }
    false
}

/// One process, as a launcher starts it that speaks no interface for MPI.
fn alone(test: &str, words: &[&str]) -> Option<String> {
    if is_rank(test) {
        return None;
    }
    if Mpi::ALL.iter().all(|mpi| mpi.launcher().is_none()) {
        say_skipped("there is no MPI library");
        return None;
    }
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]);
    let job = again(command, test, words);
    assert_eq!(job.code, Some(0), "{}", job.output);
    Some(job.of(0).concat())
}

#[test]
fn each_launchers_ranks_use_its_own_library() {
    for mpi in Mpi::ALL {
        let untold = [("POLYRANK_MPI_LIBRARY", "")];
        let job = bare_ranks(mpi, "each_launchers_ranks_use_its_own_library", 2, &untold, || {
            let (rank, size) = polyrank::backend::mpi::rank_and_size().unwrap();
            let library = polyrank::backend::mpi::library_version().unwrap();
            report(rank, format!("one of {size}: {library}"));
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        let own = mpi.usual_library().to_string_lossy().into_owned();
        for rank in 0..2 {
            let said = job.of(rank).concat();
            let words = ["one of 2: ", &format!("({own})")];
            assert!(words.iter().all(|words| said.contains(words)), "{mpi:?}: {said}");
        }
    }
}

#[test]
fn an_environment_of_python_that_has_an_mpi_has_its_own_launcher() {
    let folder = Folder::new();
    let (programs, launcher) = (folder.path().join("bin"), folder.path().join("bin/mpiexec"));
    std::fs::create_dir(&programs).unwrap();
    std::fs::write(&launcher, "#!/bin/sh\necho launched: \"$@\"\n").unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    let launch = || {
        let mut command = Command::new(built("polyrank"));
        command.args(["run", "--with-mpi", "-n", "3"]).arg(programs.join("python")).arg("x.py");
        // What is the first on the path says nothing.
        command.env("PATH", folder.path()).env_remove("POLYRANK_MPIEXEC");
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A program beside a launcher is of no environment by itself.
    assert_eq!(launch(), "");
    std::fs::write(folder.path().join("pyvenv.cfg"), "").unwrap();
    let said = launch();
    assert!(said.starts_with("launched: -n 3 ") && said.ends_with("/bin/python x.py\n"), "{said}");
}

/// A rank of a group over TCP that was told nothing but by its launcher.
fn meet_over_tcp() {
    let group = init_process_group(InitOptions::default().backend("tcp")).unwrap();
    let mut sum = [group.rank() + 1];
    group.allreduce(&mut sum, ()).unwrap();
    report(group.rank(), format!("{} of {}", sum[0], group.size()));
    destroy_process_group(None).unwrap();
}

#[test]
fn ranks_of_open_mpis_launcher_meet_without_mpi() {
    let test = "ranks_of_open_mpis_launcher_meet_without_mpi";
    for mpi in Mpi::ALL.into_iter().filter(|mpi| mpi.is_open_mpi()) {
        let Some(job) = bare_ranks(mpi, test, 3, &[], meet_over_tcp) else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        for rank in 0..3 {
            assert_eq!(job.of(rank), ["6 of 3"], "{mpi:?}: {}", job.output);
        }
    }
}

#[test]
fn processes_of_a_step_of_slurm_meet_on_their_host() {
    let test = "processes_of_a_step_of_slurm_meet_on_their_host";
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        meet_over_tcp();
        std::process::exit(0);
    }
    let mut command = Command::new("timeout");
    let start = "for rank in 0 1 2; do SLURM_PROCID=$rank \"$@\" & done; wait";
    command.args(["--kill-after=5", "60", "sh", "-c", start, "sh"]);
    let job = format!("SLURM_JOB_ID={}", std::process::id());
    let step = ["SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NUM_NODES=1", &job];
    let job = again(command, test, &step);
    for rank in 0..3 {
        assert_eq!(job.of(rank), ["6 of 3"], "{}", job.output);
    }
}

/// Whether the process is gone or a zombie that nobody has reaped yet.
fn is_dead(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
#[cfg(target_os = "linux")]
fn what_ranks_started_does_not_outlive_a_killed_launcher() {
    for mpi in Mpi::ALL {
        let Some(launcher) = mpi.launcher_or_skip() else { continue };
        let mut command = Command::new(built("polyrank"));
        command.args(["run", "--with-mpi", "--no-prefix", "-n", "2", "sh", "-c"]);
        command.arg("sleep 600 & echo pids $! $$; exec sleep 600").stdin(Stdio::null());
        command.env("POLYRANK_MPIEXEC", launcher).stdout(Stdio::piped());
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        let mut launcher = command.spawn().unwrap();
        let lines = BufReader::new(launcher.stdout.take().unwrap()).lines().map_while(Result::ok);
        let of_rank = |line: String| Some(line.strip_prefix("pids ")?.to_owned());
        let pids: Vec<String> = lines.filter_map(of_rank).take(2).collect();
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let pids: Vec<&str> = pids.iter().flat_map(|line| line.split(' ')).collect();
        assert_eq!(pids.len(), 4, "{mpi:?}");
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Some(pid) = pids.iter().find(|pid| !is_dead(pid)) {
            assert!(Instant::now() < deadline, "{mpi:?}: process {pid} still lives");
            std::thread::yield_now();
        }
    }
}

#[test]
fn with_its_interface_for_the_library_srun_makes_a_job() {
    let test = "with_its_interface_for_the_library_srun_makes_a_job";
    if is_rank(test) {
        return;
    }
    for mpi in Mpi::ALL {
        let Some(command) = mpi.command(2) else { continue };
        // Open MPI's ranks are told by PMIx, which mpirun speaks as srun --mpi=pmix does.
        let own = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK"]
            .map(|name| format!("--unset=OMPI_COMM_WORLD_{name}"));
        let words: Vec<&str> = own.iter().map(String::as_str).chain(STEP).collect();
        let job = again(command, test, &words);
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        for rank in 0..2 {
            assert_eq!(job.of(rank), ["3 of 2"], "{mpi:?}: {}", job.output);
        }
    }
}

#[test]
fn without_an_interface_srun_is_told_how_to_have_one() {
    let said = alone("without_an_interface_srun_is_told_how_to_have_one", &STEP);
    for words in ["srun started this process (2 ranks)", "srun --mpi=pmix or --mpi=pmi2"] {
        assert!(said.as_ref().is_none_or(|said| said.contains(words)), "{words}: {said:?}");
    }
}

#[test]
fn variables_without_a_launcher_that_answers_are_no_job() {
    let test = "variables_without_a_launcher_that_answers_are_no_job";
    for words in [
        &["PMI_RANK=1", "PMI_SIZE=2"][..],
        &["PMI_RANK=1", "PMI_SIZE=2", STEP[0], STEP[1], STEP[2]],
    ] {
        let said = alone(test, words);
        let says = |said: &String| {
            said.contains("the launcher started rank 1 of 2, but MPI made this rank 0 of 1")
        };
        assert!(said.as_ref().is_none_or(says), "{words:?}: {said:?}");
    }
}

#[test]
fn mpi4py_and_polyrank_share_one_library_whichever_begins_or_ends_it() {
    let beside = Program { example: "", script: "mpi/beside_mpi4py" };
    let words = match Language::Python.command(beside) {
        Ok(words) => words,
        Err(missing) => return say_skipped(&format!("Python: {missing}")),
    };
    let has_mpi4py = Command::new(&words[0])
        .args(["-c", "import importlib.util as u; exit(u.find_spec('mpi4py') is None)"])
        .status();
    if !has_mpi4py.is_ok_and(|status| status.success()) {
        return say_skipped("mpi4py is missing; cargo xtask setup installs it");
    }
    for mpi in Mpi::ALL {
        for order in ["mpi4py-first", "polyrank-first", "mpi4py-ends-first"] {
            let Some(mut command) = mpi.command(2) else { continue };
            command.args(&words).arg(order);
            // It would take the library that is the system's choice. There is no build of its
            // package for the standard ABI: with MPICH 5 both use that one's own.
            match mpi {
                Mpi::OpenMpi => command.env("MPI4PY_MPIABI", "openmpi"),
                Mpi::Mpich => command.env("MPI4PY_MPIABI", "mpich"),
                Mpi::Standard | Mpi::OpenMpi5 => command.env("MPI4PY_LIBMPI", mpi.usual_library()),
            };
            command.env_remove("POLYRANK_MPI_LIBRARY");
            let folder = mpi.usual_name();
            if let Some(folder) = &folder {
                command.env("LD_LIBRARY_PATH", folder.path());
            }
            let job = run(command);
            assert_eq!(job.code, Some(0), "{mpi:?} {order}: {}", job.output);
            for rank in 0..2 {
                assert_eq!(job.of(rank), ["ok"], "{}", job.output);
            }
        }
    }
}
