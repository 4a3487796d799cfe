//! Errors name what the user called, also where that consists of other operations, each of which
//! has a name of its own.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use polyrank::device_mesh::{MeshOptions, init_device_mesh};
use polyrank::process_group::SparseOptions;
use polyrank::store::HashStore;
use polyrank::{Error, GroupOptions, ProcessGroup, Result, Tensor};
use polyrank_tests::LIMIT;

/// How long the rank waits that is alone with its call.
const SHORT: Duration = Duration::from_millis(50);

/// What rank 0 of two fails with in `call`, while rank 1 does not come.
fn alone_with(
    before: impl Fn(&ProcessGroup) + Sync,
    call: impl Fn(&ProcessGroup) -> Result<()> + Sync,
) -> Error {
    let store = Arc::new(HashStore::new());
    let is_over = Barrier::new(2);
    let rank_main = |rank| {
        let options = GroupOptions::default().timeout(LIMIT);
        let group = ProcessGroup::new(store.clone(), rank, 2, "names", options).unwrap();
        before(&group);
        group.set_timeout(SHORT).unwrap();
        let error = (rank == 0).then(|| call(&group).unwrap_err());
        is_over.wait();
        error
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| rank_main(1));
        let error = rank_main(0).unwrap();
        other.join().unwrap();
        error
    })
}

fn failed_as(error: &Error, name: &str) {
    assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error:?}");
    assert_eq!(error.collective(), Some(name), "{error}");
}

/// A call, and its name.
type NamedCall = (&'static str, fn(&ProcessGroup) -> Result<()>);

/// Two tensors, for an exchange with rank 1.
fn exchange(group: &ProcessGroup) -> Result<()> {
    group.sendrecv(&[1.0_f32], (1, 0), &mut [0.0_f32], (1, 0))
}

#[test]
fn a_call_that_times_out_is_named_and_no_part_of_it() {
    let nothing = |_: &ProcessGroup| {};
    let calls: [NamedCall; 8] = [
        ("broadcast_object_list", |group| group.broadcast_object(&mut 1, 1)),
        ("all_gather_object", |group| group.all_gather_object(&1).map(drop)),
        ("allreduce_sparse", |group| {
            let options = SparseOptions::default();
            group.allreduce_sparse(vec![1_i64], vec![1_f32], options).map(drop)
        }),
        ("init_device_mesh", |group| {
            let options = MeshOptions::default().group(group.clone());
            init_device_mesh("cpu", &[2], options).map(drop)
        }),
        ("create_cart", |group| group.create_cart(&[2], &[]).map(drop)),
        ("new_window", |group| group.new_window().map(drop)),
        ("new_window", |group| group.new_window_with(Tensor::from(vec![1_u8])).map(drop)),
        ("sendrecv", exchange),
    ];
    for (name, call) in calls {
        failed_as(&alone_with(nothing, call), name);
    }
}

#[test]
fn so_is_a_call_on_a_window() {
    let window = |group: &ProcessGroup| group.new_window().unwrap();
    // The window outlives the rank that has it: each rank keeps its own.
    let kept = std::sync::Mutex::new(Vec::new());
    let make = |group: &ProcessGroup| {
        let made = window(group);
        kept.lock().unwrap().push((group.rank(), made));
    };
    let of_rank_0 = || {
        let kept = kept.lock().unwrap();
        kept.iter().rev().find(|(rank, _)| *rank == 0).unwrap().1.clone()
    };
    let error = alone_with(make, |_| of_rank_0().tensor_register(vec![1_u8]));
    failed_as(&error, "tensor_register");
    let error = alone_with(make, |_| of_rank_0().fence());
    failed_as(&error, "fence");
}
