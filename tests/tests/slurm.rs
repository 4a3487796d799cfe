//! Ranks that a real Slurm starts, on two nodes of this machine: `init_process_group` needs no
//! settings there, whatever the languages of the ranks.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(target_os = "linux")]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use polyrank_tests::languages::{Language, ROUNDS, STEP, built};
use polyrank_tests::mpi::Mpi;
use polyrank_tests::slurm::{Slurm, rest_of_line};

/// Of a step with four ranks.
const PARTS: [(Language, u32); 2] = [(Language::Rust, 2), (Language::Python, 2)];
const PATIENCE: Duration = Duration::from_secs(60);

/// Each rank of [`PARTS`] has said the sum of all, counted from 1.
fn assert_met(said: &str, more: &str) {
    for rank in 0..4 {
        let language = if rank < 2 { "Rust" } else { "Python" };
        let line = format!("{language} rank {rank} of 4: 10");
        assert!(said.lines().any(|it| it == line), "{line} is missing:\n{said}\n{more}");
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn ranks_of_a_step_meet_without_settings() {
    let Some(slurm) = Slurm::shared() else { return };
    let Some(programs) = slurm.programs("step", STEP, &PARTS, "") else { return };
    for mpi in ["--mpi=none", "--mpi=pmi2"] {
        // Two ranks on each node, by turns: those of one language are on different ones.
        let spread = ["--distribution=cyclic", "--ntasks-per-node=2", "--kill-on-bad-exit"];
        let step = [&["srun", "-N2", "-n4", mpi], &spread[..], &["--multi-prog", &programs]];
        let output = slurm.run(&step.concat());
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "{mpi}: {said}\n{errors}\n{}", slurm.logs());
        assert_met(&said, &errors);
    }
}

#[test]
fn steps_of_a_batch_script_at_the_same_time_do_not_mix() {
    let Some(slurm) = Slurm::shared() else { return };
    let folder = slurm.path("");
    let mut script = String::from("#!/bin/sh\n");
    for (own, other) in [("one", "two"), ("two", "one")] {
        let words = format!("{folder} {own} {other}");
        let Some(programs) = slurm.programs(&format!("of-{own}"), STEP, &PARTS, &words) else {
            return;
        };
        let said = slurm.path(&format!("{own}.said"));
        let step = "srun --overlap -N2 -n4 --multi-prog";
        script.push_str(&format!("{step} {programs} > {said} 2>&1 &\n"));
    }
    let ended = slurm.path("ended");
    script.push_str(&format!("wait\necho ended > {ended}.part\nmv {ended}.part {ended}\n"));
    let script = slurm.file("batch.sh", &script);
    let output = slurm.run(&["sbatch", "-N2", "-n8", "--output=/dev/null", &script]);
    assert!(output.status.success(), "{:?}\n{}", texts(&output), slurm.logs());
    let began = Instant::now();
    while std::fs::metadata(&ended).is_err() {
        assert!(began.elapsed() < PATIENCE, "the job does not end:\n{}", slurm.logs());
        std::thread::sleep(Duration::from_millis(10));
    }
    for own in ["one", "two"] {
        let said = std::fs::read_to_string(slurm.path(&format!("{own}.said"))).unwrap();
        assert_met(&said, "");
    }
}

#[test]
fn ranks_of_mpirun_in_a_step_are_those_of_mpirun() {
    let Some(slurm) = Slurm::shared() else { return };
    for mpi in Mpi::ALL.into_iter().filter(|mpi| mpi.is_open_mpi()) {
        let Some(launcher) = mpi.command(2) else { continue };
        // On the node whose name it does not know to be this machine's.
        let mut step = slurm.command(&["srun", "-n1", "--nodelist=127.0.0.2"]);
        step.arg(launcher.get_program()).args(launcher.get_args());
        step.arg(built("examples/step")).stdin(Stdio::null());
        // It is to start its ranks itself, and not to ask Slurm for that node, which waits for the
        // end of this step. Open MPI 5 reads the variable of its launcher's own.
        step.envs([("OMPI_MCA_plm", "isolated"), ("OMPI_MCA_ras", "^slurm")]);
        step.env("PRTE_MCA_ras", "^slurm");
        let output = step.output().unwrap();
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "{mpi:?}: {said}\n{errors}\n{}", slurm.logs());
        for rank in 0..2 {
            let line = format!("Rust rank {rank} of 2: 3");
            assert!(said.lines().any(|it| it == line), "{mpi:?}: {said}\n{errors}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_in_a_step_is_named_by_the_others() {
    let Some(slurm) = Slurm::shared() else { return };
    let Some(programs) = slurm.programs("rounds", ROUNDS, &PARTS, "") else { return };
    let mut step = slurm.command(&["srun", "-N2", "-n4", "--multi-prog", &programs]);
    // Rank 0 ends the job when its input ends.
    step.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut step = step.spawn().unwrap();
    let mut said = step.stdout.take().unwrap();
    let victim = rest_of_line(&mut said, "Rust rank 1 is process ");
    rest_of_line(&mut said, "Python rank 3: round ");
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());
    let rest = std::io::read_to_string(said).unwrap();
    step.wait().unwrap();
    for rank in ["Rust rank 0", "Python rank 2", "Python rank 3"] {
        let named = rest.lines().find(|line| line.starts_with(&format!("{rank}: RankFailed")));
        assert!(named.is_some_and(|line| line.contains(" of 1 at ")), "{rank}: {rest}");
    }
}
