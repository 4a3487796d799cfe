//! Tensors that operations borrow: in a scope whose works are forgotten, and as ndarray views.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "tcp")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{Error, ProcessGroup, ReduceOp};

/// Runs `rank` as each of three ranks.
fn three_ranks(name: &str, rank: impl Fn(&ProcessGroup) + Sync) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    thread::scope(|threads| {
        for number in 0..3 {
            let (store, rank) = (store.clone(), &rank);
            threads.spawn(move || {
                let options = GroupOptions::default().timeout(Duration::from_secs(60));
                let group = ProcessGroup::new(store, number, 3, name, options).unwrap();
                rank(&group);
                group.shutdown().expect("the ranks agree");
            });
        }
    });
}

#[test]
fn a_scope_waits_for_works_that_were_forgotten() {
    three_ranks("forgotten", |group| {
        let mut tensors = vec![vec![1f64; 50_000]; 4];
        group
            .scope(|scope| {
                for tensor in &mut tensors {
                    std::mem::forget(scope.allreduce(tensor, ReduceOp::Sum).unwrap());
                }
            })
            .unwrap();
        // The scope is over, so nobody writes any more and everything is here.
        assert!(tensors.iter().flatten().all(|&element| element == 3.0));
    });
}

#[test]
fn a_scope_that_panics_waits_as_well() {
    three_ranks("panicking", |group| {
        let mut tensor = vec![1i32; 50_000];
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            group.scope(|scope| {
                let _work = scope.allreduce(&mut tensor, ()).unwrap();
                std::panic::resume_unwind(Box::new("the caller's own"));
            })
        }));
        assert!(panic.is_err());
        assert!(tensor.iter().all(|&element| element == 3));
    });
}

#[test]
fn a_scope_hands_out_the_failure_of_a_work_that_nobody_waited_for() {
    three_ranks("failing", |group| {
        let mut tensor = vec![1i32; 10];
        let failed = group.scope(|scope| {
            // Each rank takes the next one for the root, so that all wait, and nobody looks.
            std::mem::forget(scope.broadcast(&mut tensor, (group.rank() + 1) % 3));
        });
        assert!(matches!(failed, Err(Error::CollectiveMismatch { .. })), "{failed:?}");
    });
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_views_of_any_layout() {
    use ndarray::{Array2, s};

    three_ranks("ndarray", |group| {
        let mine = f32::from(group.rank() as u8 + 1);
        let mut matrix =
            Array2::from_shape_fn((3, 4), |(row, column)| mine * (row * 4 + column) as f32);
        let before = matrix.clone();
        group.allreduce(&mut matrix.slice_mut(s![.., ..;2]), ReduceOp::Sum).unwrap();
        for ((row, column), &element) in matrix.indexed_iter() {
            let one = (row * 4 + column) as f32;
            // 1 + 2 + 3 times the element in the even columns; the others are left alone.
            let expected = if column % 2 == 0 { 6.0 * one } else { before[(row, column)] };
            assert_eq!(element, expected, "row {row}, column {column}");
        }
        let mut reversed = matrix.slice_mut(s![..;-1, 1..3]);
        group.broadcast(&mut reversed.view_mut().reversed_axes(), 2u32).unwrap();
        let rank_2 = |row: usize, column: usize| match column {
            2 => 6.0 * (row * 4 + column) as f32,
            _ => 3.0 * (row * 4 + column) as f32,
        };
        for row in 0..3 {
            assert_eq!([matrix[(row, 1)], matrix[(row, 2)]], [rank_2(row, 1), rank_2(row, 2)]);
        }
    });
}
