//! The mpi backend under what other launchers than `mpirun` set, as Slurm's `srun` does: with an
//! interface for MPI a job is made, and without one there is an error that says what to do. Slurm
//! itself is not here: its variables are.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank_tests::languages::say_skipped;
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

/// Whether this process was started by [`again`]; then it is a rank, and says what came of it.
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
            let (rank, size) = polyrank::backend::mpi::place().unwrap();
            let library = polyrank::backend::mpi::library().unwrap();
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
