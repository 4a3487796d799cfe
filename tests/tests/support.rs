//! What backends declare is what they do, on every backend that there is here, and what the site's
//! page says.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use polyrank::ProcessGroup;
use polyrank::backend::Mismatches;
use polyrank::backend::registry::{self, BackendName};
use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};
use polyrank_tests::mpi::{Mpi, ranks, report};
use polyrank_tests::{LIMIT, checked_in, support};

#[test]
fn the_page_says_what_is_declared() {
    checked_in::assert_is_current("site/concepts/backends.md", &support::page(), "support");
}

#[test]
fn over_sockets() {
    for backend in ["tcp", "websocket"] {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let store = store.clone();
                scope.spawn(move || {
                    let options =
                        GroupOptions::default().timeout(LIMIT).backend(backend.parse().unwrap());
                    let group = ProcessGroup::new(store, rank, 2, "support", options).unwrap();
                    let seen = support::observe(&group);
                    assert_eq!(seen, group.capabilities(), "{backend}");
                    let name: BackendName = backend.parse().unwrap();
                    assert_eq!(Some(seen), registry::capabilities(&name), "{backend}");
                    group.shutdown().expect("the ranks agree");
                });
            }
        });
    }
}

#[test]
fn over_mpi() {
    for mpi in Mpi::ALL {
        for (variables, mismatches) in [
            (&[][..], Mismatches::WhenStalled),
            (&[("POLYRANK_DEBUG", "DETAIL")][..], Mismatches::Always),
        ] {
            let job = ranks(mpi, "over_mpi", 2, variables, |group| {
                let declared = group.capabilities();
                assert_eq!(support::observe(&group), declared);
                let name: BackendName = "mpi".parse().unwrap();
                let mut everywhere = registry::capabilities(&name).unwrap();
                assert!(everywhere.highest_tag <= declared.highest_tag);
                (everywhere.highest_tag, everywhere.mismatches) =
                    (declared.highest_tag, declared.mismatches);
                assert_eq!(everywhere, declared);
                report(group.rank(), format!("{:?}", declared.mismatches));
                // Operations of which the ranks disagreed are in MPI for ever, so that the first
                // rank that ends takes the job with it.
                group.get_group_store().barrier("reported", 2, None).unwrap();
            });
            let Some(job) = job else { continue };
            for rank in 0..2 {
                assert_eq!(job.of(rank), [format!("{mismatches:?}")], "{}", job.output);
            }
        }
    }
}

#[test]
fn a_backend_that_is_available_declares_what_it_can_do() {
    for name in registry::names() {
        let name: BackendName = name.parse().unwrap();
        if registry::available(&name).is_ok() {
            assert!(registry::capabilities(&name).is_some(), "{name}");
        }
    }
}
