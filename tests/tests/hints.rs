//! Hints of a group: for which operations they hold, and for how long.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use polyrank::options::AllreduceOptions;
use polyrank::process_group::ReconfigureOptions;
use polyrank::{Error, GroupHints, ProcessGroup, ReduceOp, SplitOptions, Tensor};
use polyrank_tests::members::{Member, handles, reconfigure, world};
use polyrank_tests::ranks;

/// A number that `bf16` does not keep.
const FINE: f32 = 1.0 + 1.0 / 512.0;

/// What an allreduce of one rank's `FINE` and the others' zeros makes of it.
fn sum_of_fine(group: &ProcessGroup) -> f32 {
    let mut tensor = [if group.rank() == 0 { FINE } else { 0.0 }];
    group.allreduce(&mut tensor, ()).unwrap();
    tensor[0]
}

#[test]
fn what_can_be_compressed_is() {
    for size in [1, 2, 3, 5] {
        ranks(size, |group| {
            assert_eq!(group.hints(), GroupHints::default());
            assert_eq!(sum_of_fine(&group), FINE);
            group.set_hints(GroupHints::default().compress("bf16")).unwrap();
            assert_eq!(group.hints().compress.as_deref(), Some("bf16"));
            assert_eq!(sum_of_fine(&group), 1.0, "a tie goes to the even one");
            let own = AllreduceOptions::default().compress("f16");
            let work = group.allreduce_async(vec![FINE], &own).unwrap();
            work.wait(None).unwrap();
            let lost = work.compression_error().unwrap();
            assert!(lost.max_abs < 0.01, "f16 keeps it, not the multiple: {lost:?}");
            let mut all = vec![0.0f32; size as usize];
            group.all_gather_single(&mut all, &[FINE], ()).unwrap();
            assert_eq!(all, vec![1.0; size as usize]);
            let mut own = [0.0f64];
            let block = if group.rank() == 0 { f64::from(FINE) } else { 0.0 };
            group.reduce_scatter_single(&mut own, &vec![block; size as usize], ()).unwrap();
            assert_eq!(own, [1.0]);
            group.set_hints(GroupHints::default()).unwrap();
            assert_eq!(sum_of_fine(&group), FINE);
        });
    }
}

#[test]
fn what_each_rank_decides_for_itself_does_not_count() {
    ranks(3, |group| {
        group.set_hints(GroupHints::default().compress("bf16")).unwrap();
        // Several tensors here, one there.
        let count = 1 + group.rank() as usize;
        let mut tensors = vec![vec![FINE]; count];
        group.allreduce(&mut tensors, ()).unwrap();
        let single = tensors[0][0];
        assert!(tensors.iter().all(|tensor| tensor[0] == single), "{tensors:?}");
        assert!((single - 6.0).abs() < 0.04, "{single}");
        // Coalesced or not.
        let mut tensor = vec![if group.rank() == 0 { FINE } else { 0.0 }];
        match group.rank() {
            0 => group.allreduce_coalesced(std::slice::from_mut(&mut tensor), ()).unwrap(),
            _ => group.allreduce(&mut tensor, ()).unwrap(),
        }
        assert_eq!(tensor, [1.0]);
        let options = AllreduceOptions::default().compress("none");
        let mut tensor = [if group.rank() == 0 { FINE } else { 0.0 }];
        group.allreduce(&mut tensor, options).unwrap();
        assert_eq!(tensor, [FINE]);
    });
}

#[test]
fn what_cannot_be_compressed_runs_as_it_is() {
    ranks(2, |group| {
        group.set_hints(GroupHints::default().compress("int8")).unwrap();
        let mut most = [FINE];
        let maximum = AllreduceOptions::default().reduce_op(ReduceOp::Max);
        group.allreduce(&mut most, &maximum).unwrap();
        assert_eq!(most, [FINE]);
        let work = group.allreduce_async(vec![1_000_001i64], ()).unwrap();
        work.wait(None).unwrap();
        assert_eq!(work.compression_error(), None);
        let [whole] = work.into_result().unwrap().try_into().unwrap();
        assert_eq!(whole.into_vec::<i64>().unwrap(), [2_000_002]);
        let mut sent = [FINE];
        group.broadcast(&mut sent, ()).unwrap();
        assert_eq!(sent, [FINE]);
        // Of several, those that can be are.
        let fine = if group.rank() == 0 { FINE } else { 0.0 };
        let both = vec![Tensor::from(vec![fine]), Tensor::from(vec![1_000_001i64])];
        let work = group.allreduce_coalesced_async(both, ()).unwrap();
        work.wait(None).unwrap();
        assert!(work.compression_error().is_some());
        let [fine, whole] = work.into_result().unwrap().try_into().unwrap();
        let [fine] = fine.into_vec::<f32>().unwrap().try_into().unwrap();
        assert!((fine - FINE).abs() < 0.02, "{fine}");
        assert_eq!(whole.into_vec::<i64>().unwrap(), [2_000_002]);
        group.barrier(()).unwrap();
    });
}

#[test]
fn groups_that_are_split_off_begin_without() {
    ranks(2, |group| {
        group.set_hints(GroupHints::default().compress("bf16")).unwrap();
        let child = group.split_group(&[1, 0], SplitOptions::default()).unwrap().unwrap();
        assert_eq!(child.hints(), GroupHints::default());
        assert_eq!(sum_of_fine(&child), FINE);
        child.shutdown().unwrap();
    });
}

#[test]
fn newcomers_have_the_hints_of_the_eldest_member() {
    let (members, newcomer) = (world(2), Member::newcomer());
    for member in &members {
        let set = |group: &ProcessGroup| group.set_hints(GroupHints::default().compress("bf16"));
        member.ask(set).recv().unwrap().unwrap();
    }
    let all = [&newcomer, &members[1], &members[0]];
    reconfigure(1, &all);
    let summed: Vec<_> = all.map(|it| it.ask(sum_of_fine)).into_iter().collect();
    assert!(summed.into_iter().all(|sum| sum.recv().unwrap() == 1.0));
    // What others bring is not what counts.
    let handles = handles(&all);
    let asked = [Some("f16"), None, Some("int8")].into_iter().zip(all).map(|(format, member)| {
        let mut options = ReconfigureOptions::new(2, handles.clone());
        options.hints = format.map(|format| GroupHints::default().compress(format));
        member.ask(move |group| {
            group.reconfigure(options)?.wait(None)?;
            Ok::<_, Error>(group.hints().compress)
        })
    });
    let asked: Vec<_> = asked.collect();
    for answer in asked {
        assert_eq!(answer.recv().unwrap().unwrap().as_deref(), Some("f16"));
    }
}

#[test]
fn ranks_whose_hints_differ_are_told_so() {
    ranks(2, |group| {
        if group.rank() == 0 {
            group.set_hints(GroupHints::default().compress("bf16")).unwrap();
        }
        let error = group.allreduce(&mut [1.0f32; 4], ()).unwrap_err();
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
        assert!(error.to_string().contains("bf16"), "{error}");
    });
}

#[test]
fn what_there_is_not_and_groups_that_are_over_are_refused() {
    ranks(1, |group| {
        let error = group.set_hints(GroupHints::default().compress("f8")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "set_hints(): the hint compress must be one of 'bf16', 'f16', 'int8' or 'none', not \
             'f8'"
        );
        assert_eq!(group.hints(), GroupHints::default());
        group.shutdown().unwrap();
        let ended = [
            group.set_hints(GroupHints::default()).unwrap_err(),
            group.set_timeout(std::time::Duration::ZERO).unwrap_err(),
            group.revoke().unwrap_err(),
            group.register_pre_hook(0, |_| Ok(())).unwrap_err(),
            group.register_post_hook(0, |_| ()).unwrap_err(),
            group.register_completion_hook(0, |_| ()).unwrap_err(),
            group.register_abort_hook(0, || ()).unwrap_err(),
        ];
        for error in ended {
            assert!(matches!(error, Error::InvalidGroup { .. }), "{error}");
        }
    });
}
