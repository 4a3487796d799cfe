//! Whether an MPI library takes memory of CUDA devices: what it answers itself, in jobs of real
//! libraries, against what the tool of Open MPI says.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use polyrank::backend::{CudaMemory, mpi};
use polyrank::distributed::build_info;
use polyrank_tests::mpi::{HUNG, Mpi, bare_ranks, report};

#[test]
fn the_library_is_asked() {
    for mpi in Mpi::ALL {
        let job = bare_ranks(mpi, "the_library_is_asked", 2, &[], || {
            let of_mpi = || {
                let all = build_info().backends;
                let found = all.into_iter().find(|backend| backend.name == "mpi").unwrap();
                assert!(mpi::is_in_job() && found.library.is_some(), "{found:?}");
                found.takes_cuda_memory
            };
            // No library knows it before it is initialised.
            assert_eq!(of_mpi(), CudaMemory::Unknown);
            let answer = mpi::takes_cuda_memory().unwrap();
            assert_eq!(of_mpi(), answer);
            let (rank, _) = mpi::rank_and_size().unwrap();
            report(rank, format!("{answer:?}"));
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{mpi:?}: {}", job.output);
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        assert_eq!(job.of(0), job.of(1), "{mpi:?}");
        match built_with_cuda().as_deref() {
            Some("true") if mpi == Mpi::OpenMpi => assert_eq!(job.of(0), ["Taken"]),
            Some("false") if mpi == Mpi::OpenMpi => assert_eq!(job.of(0), ["NotTaken"]),
            _ => {}
        }
    }
}

/// What the tool that comes with the system's Open MPI says of it.
fn built_with_cuda() -> Option<String> {
    let said = Command::new("ompi_info").args(["--parsable", "--all"]).output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = said.lines().find(|line| line.contains(":mpi_built_with_cuda_support:value:"))?;
    line.rsplit(':').next().map(str::to_owned)
}
