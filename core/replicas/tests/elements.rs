//! Every element type, operator and shape that a manager reduces, with a spare beside it whose
//! elements must not count.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Rank, lighthouse, replicas};
use half::{bf16, f16};
use polyrank::options::{AllreduceCoalescedOptions, AllreduceOptions, BarrierOptions};
use polyrank::{DType, Element, Error, ReduceOp, Region, Tensor};
use polyrank_replicas::{Manager, ManagerError, ManagerOptions, StartQuorum, WorldSizeMode};

/// Three participate; the fourth is a spare.
const REPLICAS: usize = 4;

/// What each of four contributes; the last must not count.
const CONTRIBUTIONS: [f64; REPLICAS] = [1.0, 2.0, 4.0, 99.0];

/// `body` in one step of all.
fn in_one_step<T: Send>(body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let lighthouse = lighthouse(REPLICAS);
    let adapt = |_, options: ManagerOptions| {
        let options = options.min_replica_size(3).init_sync(false);
        options.world_size_mode(WorldSizeMode::FixedWithSpares)
    };
    let all = replicas(&lighthouse, (REPLICAS, 1), adapt, |rank| {
        rank.manager.start_quorum(StartQuorum::default()).unwrap();
        assert_eq!(rank.manager.participating_rank().is_some(), rank.replica < 3);
        body(rank)
    });
    all.into_iter().map(|mut ranks| ranks.remove(0)).collect()
}

/// Reduces so many elements in place, in a tensor of its own, and in a list; all give the same.
fn reduced<T: Element + PartialEq + std::fmt::Debug>(
    manager: &Manager,
    elements: &[T],
    op: ReduceOp,
) -> Vec<T> {
    let mut in_place = elements.to_vec();
    manager.allreduce(&mut in_place, op).unwrap();
    let options = AllreduceOptions::default().reduce_op(op);
    let owned = manager.allreduce_async(elements.to_vec(), options).unwrap().wait();
    let list = vec![elements.to_vec(), elements.to_vec()];
    let options = AllreduceCoalescedOptions::default().reduce_op(op);
    let list = manager.allreduce_coalesced_async(list, options).unwrap().wait();
    assert_eq!(list.len(), 2);
    for tensor in owned.into_iter().chain(list) {
        assert_eq!(tensor.into_vec::<T>().unwrap(), in_place, "{op:?} of {:?}", T::DTYPE);
    }
    in_place
}

fn averages<T: Element + PartialEq + std::fmt::Debug>(rank: &Rank, of: impl Fn(f64) -> T) {
    for count in [0, 1, 7, 1001] {
        // Whole numbers that even 8 bits hold, also their sums.
        let own = |at: usize| of(CONTRIBUTIONS[rank.replica] + (at % 7) as f64);
        let elements: Vec<T> = (0..count).map(own).collect();
        let mean = |at: usize| of((7.0 + 3.0 * (at % 7) as f64) / 3.0);
        let expected: Vec<T> = (0..count).map(mean).collect();
        assert_eq!(reduced(&rank.manager, &elements, ReduceOp::Avg), expected);
    }
}

#[test]
fn averages_of_every_float_are_those_of_the_participants() {
    let committed = in_one_step(|rank| {
        averages(rank, f16::from_f64);
        averages(rank, bf16::from_f64);
        averages(rank, |it| it as f32);
        averages(rank, |it| it);
        averages(rank, |it| [it as f32, -it as f32]);
        averages(rank, |it| [it, -it]);
        rank.manager.should_commit(None).unwrap()
    });
    assert_eq!(committed, [true; REPLICAS]);
}

macro_rules! integers {
    ($rank:ident: $($type:ty)+) => {$({
        let manager = &$rank.manager;
        let of = |all: [i8; REPLICAS]| all[$rank.replica] as $type;
        for count in [0, 1, 7] {
            let sums = reduced(manager, &vec![of([1, 2, 4, 99]); count], ReduceOp::Sum);
            assert_eq!(sums, vec![7 as $type; count]);
        }
        let one = |all, op| reduced(manager, &[of(all)], op)[0];
        assert_eq!(one([3, 2, 4, 0], ReduceOp::Product), 24 as $type);
        assert_eq!(one([3, 2, 4, 0], ReduceOp::Min), 2 as $type);
        assert_eq!(one([7, 3, 15, 0], ReduceOp::Band), 3 as $type);
        assert_eq!(one([3, 2, 4, 0], ReduceOp::Land), 1 as $type);
        assert_eq!(one([1, 2, 1, 64], ReduceOp::Bor), 3 as $type);
        assert_eq!(one([1, 3, 1, 64], ReduceOp::Bxor), 3 as $type);
        assert_eq!(one([0, 0, 0, 64], ReduceOp::Lor), 0 as $type);
        assert_eq!(one([1, 1, 1, 64], ReduceOp::Lxor), 1 as $type);
        let least = one([-3, -2, -4, 99], ReduceOp::Max);
        assert_eq!(least, (-2_i8 as $type).max(-3_i8 as $type).max(-4_i8 as $type));
    })+};
}

#[test]
fn what_a_spare_has_changes_no_result_of_any_operator() {
    let committed = in_one_step(|rank| {
        integers!(rank: i8 i16 i32 i64 u8 u16 u32 u64);
        let manager = &rank.manager;
        let of = |all: [bool; REPLICAS]| [all[rank.replica]];
        assert_eq!(reduced(manager, &of([true, true, true, false]), ReduceOp::Min), [true]);
        assert_eq!(reduced(manager, &of([false, false, false, true]), ReduceOp::Sum), [false]);
        assert_eq!(reduced(manager, &of([true, true, true, false]), ReduceOp::Band), [true]);
        let of = |all: [f32; REPLICAS]| all[rank.replica];
        for (op, result) in
            [(ReduceOp::Max, -1.0), (ReduceOp::Min, -4.0), (ReduceOp::Product, -8.0)]
        {
            let own = of([-1.0, -2.0, -4.0, f32::NAN]);
            assert_eq!(reduced(manager, &[own], op), [result]);
            assert_eq!(reduced(manager, &[f16::from_f32(own)], op), [f16::from_f32(result)]);
            assert_eq!(reduced(manager, &[bf16::from_f32(own)], op), [bf16::from_f32(result)]);
            assert_eq!(reduced(manager, &[f64::from(own)], op), [f64::from(result)]);
        }
        let sum = reduced(manager, &[of([1.0, 2.0, 4.0, 99.0])], ReduceOp::PremulSum(2.0));
        assert_eq!(sum, [14.0]);
        manager.should_commit(None).unwrap()
    });
    assert_eq!(committed, [true; REPLICAS]);
}

#[test]
fn views_are_averaged_where_they_are_and_other_operations_are_part_of_the_step() {
    let committed = in_one_step(|rank| {
        let own = CONTRIBUTIONS[rank.replica] as f32;
        let all = Tensor::from(vec![own; 6]);
        let region: Region = all.region().clone();
        let every_second = Tensor::strided(region, DType::F32, vec![3], vec![2], 0);
        let options = AllreduceOptions::default().reduce_op(ReduceOp::Avg);
        drop(rank.manager.allreduce_async(every_second, options).unwrap().wait());
        let mean = 7.0 / 3.0;
        assert_eq!(all.into_vec::<f32>().unwrap(), [mean, own, mean, own, mean, own]);
        let barrier = rank.manager.managed(|group| group.barrier_async(BarrierOptions::default()));
        assert!(barrier.unwrap().wait().is_empty());
        rank.manager.should_commit(None).unwrap()
    });
    assert_eq!(committed, [true; REPLICAS]);
}

#[test]
fn an_average_that_nobody_waits_for_is_one_at_the_vote() {
    let outcomes = in_one_step(|rank| {
        let mean = Tensor::from(vec![CONTRIBUTIONS[rank.replica]; 3]);
        let seen = Tensor::contiguous(mean.region().clone(), DType::F64, vec![3]);
        let options = AllreduceOptions::default().reduce_op(ReduceOp::Avg);
        drop(rank.manager.allreduce_async(mean, options).unwrap());
        assert!(rank.manager.should_commit(None).unwrap());
        seen.into_vec::<f64>().unwrap()
    });
    assert_eq!(outcomes, [[7.0 / 3.0; 3]; REPLICAS]);
}

#[test]
fn what_cannot_be_reduced_is_said_at_the_call_and_not_committed() {
    let committed = in_one_step(|rank| {
        let manager = &rank.manager;
        let mut integers = [1_i32, 2];
        let error = manager.allreduce(&mut integers, ReduceOp::Avg).unwrap_err();
        assert!(matches!(error, ManagerError::AverageOfIntegers { dtype: "i32" }), "{error:?}");
        assert_eq!(integers, [1, 2]);
        let error = manager.allreduce(&mut integers, ReduceOp::Maxloc).unwrap_err();
        let ManagerError::Call(cause) = error else { panic!("{error:?}") };
        assert!(matches!(*cause, Error::Unsupported { .. }), "{cause:?}");
        // The step is lost.
        let mut floats = [1.5_f32];
        manager.allreduce(&mut floats, ReduceOp::Avg).unwrap();
        assert_eq!(floats, [1.5]);
        manager.should_commit(None).unwrap()
    });
    assert_eq!(committed, [false; REPLICAS]);
}
