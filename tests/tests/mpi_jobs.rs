//! What happens over real MPI libraries when library, launcher and arguments do not fit together,
//! and how jobs begin and end. Every error has a reason.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::distributed::{
    InitOptions, NewGroupOptions, destroy_process_group, init_process_group, is_backend_available,
    new_group,
};
use polyrank::store::{FileStore, PrefixStore, Store};
use polyrank::{Collective, Error, GroupOptions, ProcessGroup, Request, Tensor, rendezvous};
use polyrank_tests::folder::Folder;
use polyrank_tests::languages::{built, say_skipped};
use polyrank_tests::mpi::{HUNG, Mpi, ROLE, bare_ranks, launched, only, ranks, report, run, tell};

fn allreduce(elements: usize) -> Request {
    let mut request = Request::new(Collective::Allreduce);
    request.outputs = vec![vec![Tensor::from(vec![1_f32; elements])]];
    request
}

/// The file store that ranks are told of.
const FILE: &str = "POLYRANK_TEST_FILE";

#[test]
fn a_rank_that_comes_to_the_store_and_not_to_mpi_is_waited_for_until_the_timeout() {
    for mpi in Mpi::ALL {
        let test = "a_rank_that_comes_to_the_store_and_not_to_mpi_is_waited_for_until_the_timeout";
        let folder = Folder::new();
        let file = folder.text_of("store");
        let job = bare_ranks(mpi, test, 2, &[(FILE, &file)], || {
            let (rank, size) = polyrank::backend::mpi::rank_and_size().unwrap();
            let file = FileStore::new(std::env::var(FILE).unwrap(), Some(size)).unwrap();
            let store: Arc<dyn Store> = Arc::new(file);
            if rank == 0 {
                store.wait(&["here"], None).unwrap();
                let options = GroupOptions::default().backend("mpi".parse().unwrap());
                let options = options.timeout(Duration::from_secs(2));
                let made = ProcessGroup::new(store.clone(), rank, size, "test", options);
                tell(0, &made.err().unwrap());
                store.set("gave up", b"").unwrap();
                return;
            }
            store.set("here", b"").unwrap();
            // Says what the backend says, with a place like that of rank 0.
            let group = PrefixStore::new("polyrank/test", store.clone());
            let place = String::from_utf8(group.get("mpi/place/0").unwrap()).unwrap();
            group.set("mpi/place/1", place.replacen("0/", "1/", 1).as_bytes()).unwrap();
            rendezvous::join(&group, "test", rank, size, polyrank_tests::LIMIT).unwrap();
            store.wait(&["gave up"], None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_ne!(job.code, Some(HUNG), "{mpi:?}: {}", job.output);
        let line = only(&job, 0);
        assert!(line.starts_with("RendezvousTimeout: MPI made no communicator"), "{line}");
    }
}

#[test]
fn a_library_that_does_not_fit_the_launcher_is_refused_before_it_is_initialised() {
    let test = "a_library_that_does_not_fit_the_launcher_is_refused_before_it_is_initialised";
    let here = |mpi: &Mpi| mpi.launcher().is_some() || std::env::var_os(ROLE).is_some();
    let here: Vec<Mpi> = Mpi::ALL.into_iter().filter(here).collect();
    let pairs = here.iter().flat_map(|&mpi| here.iter().map(move |&other| (mpi, other)));
    let pairs = pairs.filter(|(mpi, other)| mpi.is_open_mpi() != other.is_open_mpi());
    let pairs: Vec<(Mpi, Mpi)> = pairs.collect();
    if pairs.is_empty() {
        say_skipped("Open MPI and MPICH are needed");
        return;
    }
    for (mpi, other) in pairs {
        let library = other.library().to_string_lossy().into_owned();
        let job = bare_ranks(mpi, test, 2, &[("POLYRANK_MPI_LIBRARY", &library)], || {
            assert!(!is_backend_available("mpi"));
            let error = init_process_group(InitOptions::default().backend("mpi")).unwrap_err();
            tell(0, &error);
        });
        let Some(job) = job else { continue };
        let said = job.of(0);
        assert_eq!(said.len(), 2, "{}", job.output);
        for line in said {
            assert!(line.starts_with("BackendUnavailable"), "{line}");
            assert!(line.contains("POLYRANK_MPI_LIBRARY is"), "{line}");
            assert!(line.contains("this process was started by"), "{line}");
        }
    }
}

#[test]
fn arguments_that_disagree_with_mpi_are_an_error() {
    for mpi in Mpi::ALL {
        let test = "arguments_that_disagree_with_mpi_are_an_error";
        let job = bare_ranks(mpi, test, 2, &[], || {
            let options = InitOptions::default().backend("mpi").world_size(3);
            tell(0, &init_process_group(options).unwrap_err());
            // What agrees is taken, and the group can be made afterwards.
            let options = InitOptions::default().backend("mpi").world_size(2);
            let group = init_process_group(options).unwrap();
            group.run(allreduce(1)).unwrap();
            destroy_process_group(None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        for line in job.of(0) {
            assert!(line.starts_with("InvalidArgument"), "{mpi:?}: {line}");
            assert!(line.contains("of 2, but the call says rank ? of 3"), "{mpi:?}: {line}");
        }
    }
}

#[test]
fn a_job_goes_on_and_ends_in_order_after_a_message_of_another_size_in_a_group_that_was_left() {
    let test =
        "a_job_goes_on_and_ends_in_order_after_a_message_of_another_size_in_a_group_that_was_left";
    for mpi in Mpi::ALL {
        let job = ranks(mpi, test, 2, &[], |group| {
            let part = new_group(NewGroupOptions::default()).unwrap().unwrap();
            if group.rank() == 0 {
                part.send(&[1_f32; 10], 1, 0).unwrap();
            } else {
                let error = part.recv(&mut [0_f32; 5], 0, 0).unwrap_err();
                assert!(matches!(error, Error::MessageSize { .. }), "{error}");
            }
            destroy_process_group(Some(&part)).unwrap();
            let mut sum = [group.rank() + 1];
            group.allreduce(&mut sum, ()).unwrap();
            report(group.rank(), sum[0]);
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        assert_eq!((only(&job, 0), only(&job, 1)), ("3", "3"), "{mpi:?}");
    }
}

#[test]
fn the_launcher_with_mpi_starts_a_job_of_mpi() {
    for mpi in Mpi::ALL {
        let test = "the_launcher_with_mpi_starts_a_job_of_mpi";
        let job = launched(mpi, test, 2, || {
            let options = InitOptions::default().backend("mpi");
            let group = init_process_group(options).unwrap();
            let mut sum = [group.rank() + 1];
            group.allreduce(&mut sum, ()).unwrap();
            report(group.rank(), format!("{} of {}", sum[0], group.size()));
            destroy_process_group(None).unwrap();
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        assert_eq!((only(&job, 0), only(&job, 1)), ("3 of 2", "3 of 2"), "{mpi:?}");
    }
}

#[test]
fn without_an_mpi_launcher_the_size_disagrees() {
    let mut command = std::process::Command::new(built("polyrank"));
    // Two programs that Open MPI takes for single ones make one folder, and one of them fails.
    let apart = "TMPDIR=$(mktemp -d) exec \"$0\"";
    command.args(["run", "-n", "2", "sh", "-c", apart]).arg(built("examples/cases"));
    let job = run({
        command.env("POLYRANK_TEST_BACKEND", "mpi");
        command
    });
    if Mpi::ALL.iter().all(|mpi| mpi.launcher().is_none()) {
        return say_skipped("there is no MPI library");
    }
    assert_ne!(job.code, Some(0), "{}", job.output);
    for words in ["rank and size are MPI's: this is rank 0 of 1", "polyrank run --with-mpi"] {
        assert!(job.output.contains(words), "{words}: {}", job.output);
    }
}

#[test]
fn a_default_group_can_be_made_again_and_again() {
    for mpi in Mpi::ALL {
        let job = bare_ranks(mpi, "a_default_group_can_be_made_again_and_again", 2, &[], || {
            let mut rank = 0;
            for round in 0..3 {
                let options = InitOptions::default().backend("cpu:mpi");
                let group = init_process_group(options).unwrap();
                assert_eq!(group.backend_name(), "mpi");
                let mut sum = [round + group.rank()];
                group.allreduce(&mut sum, ()).unwrap();
                assert_eq!(sum, [2 * round + 1]);
                rank = group.rank();
                destroy_process_group(None).unwrap();
            }
            report(rank, "done");
        });
        let Some(job) = job else { continue };
        assert_eq!(job.code, Some(0), "{mpi:?}: {}", job.output);
        assert_eq!((only(&job, 0), only(&job, 1)), ("done", "done"));
    }
}
