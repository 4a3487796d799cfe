//! Every overload of every collective from Rust: blocking, owning, in a scope. Two ranks, as
//! threads, so that each value can be worked out by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "tcp")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::backend::MessageInfo;
use polyrank::options::*;
use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{Buffers, ProcessGroup, ReduceOp, Tensor};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `rank` as both ranks of a group of two.
fn two_ranks(name: &str, rank: impl Fn(&ProcessGroup) + Sync) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    thread::scope(|threads| {
        for number in 0..2 {
            let (store, rank) = (store.clone(), &rank);
            threads.spawn(move || {
                let options = GroupOptions::default().timeout(LIMIT);
                let group = ProcessGroup::new(store, number, 2, name, options).unwrap();
                rank(&group);
                // Nobody leaves while the other may still be asking.
                group.barrier(LIMIT).unwrap();
                group.shutdown().expect("the ranks agree");
            });
        }
    });
}

/// 1 and 10 on rank 0, 2 and 20 on rank 1.
fn mine(group: &ProcessGroup) -> Vec<f32> {
    let factor = group.rank() as f32 + 1.0;
    vec![factor, 10.0 * factor]
}

fn elements(tensor: Tensor) -> Vec<f32> {
    tensor.into_vec().unwrap()
}

#[test]
fn allreduce() {
    two_ranks("allreduce", |group| {
        let reduced = |run: &dyn Fn(&mut Vec<f32>)| {
            let mut tensor = mine(group);
            run(&mut tensor);
            tensor
        };
        let options = AllreduceOptions::default().reduce_op(ReduceOp::Product).timeout(LIMIT);
        assert_eq!(reduced(&|t| group.allreduce(t, ()).unwrap()), [3.0, 30.0]);
        assert_eq!(reduced(&|t| group.allreduce(t, ReduceOp::Max).unwrap()), [2.0, 20.0]);
        assert_eq!(reduced(&|t| group.allreduce(t, LIMIT).unwrap()), [3.0, 30.0]);
        assert_eq!(reduced(&|t| group.allreduce(t, (ReduceOp::Avg, LIMIT)).unwrap()), [1.5, 15.0]);
        assert_eq!(reduced(&|t| group.allreduce(t, &options).unwrap()), [2.0, 200.0]);
        assert_eq!(reduced(&|t| group.allreduce(t, options.clone()).unwrap()), [2.0, 200.0]);
        assert_eq!(reduced(&|t| group.allreduce(&mut t[..1], ()).unwrap())[0], 3.0);

        let second = group.rank() == 1;
        let sums = if second { [3.0, 30.0] } else { [1.0, 10.0] };
        assert_eq!(reduced(&|t| group.scan(t, ()).unwrap()), sums);
        let highest = if second { [2.0, 20.0] } else { [1.0, 10.0] };
        assert_eq!(reduced(&|t| group.scan(t, (ReduceOp::Max, LIMIT)).unwrap()), highest);
        // Rank 0 keeps what it has, and rank 1 gets just that.
        assert_eq!(reduced(&|t| group.exscan(t, ReduceOp::Sum).unwrap()), [1.0, 10.0]);
        let own = if second { [0.5, 5.0] } else { [1.0, 10.0] };
        assert_eq!(reduced(&|t| group.exscan(t, ReduceOp::PremulSum(0.5)).unwrap()), own);

        let mut list = [mine(group), mine(group)];
        group.allreduce_coalesced(&mut list, AllreduceCoalescedOptions::default()).unwrap();
        assert_eq!(list, [[3.0, 30.0], [3.0, 30.0]]);

        let work = group.allreduce_async(mine(group), ReduceOp::Min).unwrap();
        let [result] = <[Tensor; 1]>::try_from(work.into_result().unwrap()).unwrap();
        assert_eq!(elements(result), [1.0, 10.0]);

        let (mut first, mut second) = (mine(group), mine(group));
        let scoped = group.scope(|scope| {
            let work = scope.allreduce(&mut first, ())?;
            scope.allreduce(&mut second, ReduceOp::Max).map(drop)?;
            work.wait()
        });
        scoped.unwrap().unwrap();
        assert_eq!((first, second), (vec![3.0, 30.0], vec![2.0, 20.0]));
    });
}

#[test]
fn rooted() {
    two_ranks("rooted", |group| {
        let is_root = group.rank() == 1;
        let check = |run: &dyn Fn(&mut Vec<f32>), at_root: [f32; 2], elsewhere: [f32; 2]| {
            let mut tensor = mine(group);
            run(&mut tensor);
            assert_eq!(tensor, if is_root { at_root } else { elsewhere });
        };
        let unchanged = [1.0, 10.0];
        let options = ReduceOptions::default().root_rank(1).reduce_op(ReduceOp::Product);
        check(&|t| group.reduce(t, 1).unwrap(), [3.0, 30.0], unchanged);
        check(&|t| group.reduce(t, (1, ReduceOp::Min)).unwrap(), [1.0, 10.0], unchanged);
        check(&|t| group.reduce(t, (1u32, LIMIT)).unwrap(), [3.0, 30.0], unchanged);
        check(&|t| group.reduce(t, (1, ReduceOp::Max, LIMIT)).unwrap(), [2.0, 20.0], unchanged);
        check(&|t| group.reduce(t, &options).unwrap(), [2.0, 200.0], unchanged);
        check(&|t| group.reduce(t, (1, ReduceOp::Avg)).unwrap(), [1.5, 15.0], unchanged);
        check(&|t| group.broadcast(t, 1usize).unwrap(), [2.0, 20.0], [2.0, 20.0]);
        check(&|t| group.broadcast(t, (1, LIMIT)).unwrap(), [2.0, 20.0], [2.0, 20.0]);
        check(&|t| group.broadcast(t, ()).unwrap(), [1.0, 10.0], [1.0, 10.0]);
        check(&|t| group.broadcast_one(t, 1).unwrap(), [2.0, 20.0], [2.0, 20.0]);
        let options = BroadcastOptions::default().root_rank(1);
        check(&|t| group.broadcast(t, options.clone()).unwrap(), [2.0, 20.0], [2.0, 20.0]);
    });
}

/// The first to come has to wait, and either may be the root: an average is made once, there.
#[test]
fn averages_at_the_root() {
    two_ranks("averages", |group| {
        for round in 0..64_u8 {
            let (root, late) = (u32::from(round % 2), u32::from(round / 2 % 2));
            let tag = round.to_string();
            if group.rank() == late {
                // The other is told just before it is joined.
                group.get_group_store().get(&tag).unwrap();
            } else {
                group.get_group_store().set(&tag, b"").unwrap();
            }
            let mut tensor = mine(group);
            group.reduce(&mut tensor, (root as usize, ReduceOp::Avg)).unwrap();
            let expected = if group.rank() == root { vec![1.5, 15.0] } else { mine(group) };
            assert_eq!(tensor, expected, "round {round}");
        }
    });
}

#[test]
fn gathering() {
    two_ranks("gathering", |group| {
        let both = [vec![1.0, 10.0], vec![2.0, 20.0]];
        let mut list = [vec![0f32; 2], vec![0f32; 2]];
        group.allgather(&mut list, &mine(group), ()).unwrap();
        assert_eq!(list, both);
        let mut list = vec![vec![0f32; 2], vec![0f32; 2]];
        group.allgather(&mut list, &mine(group), LIMIT).unwrap();
        assert_eq!(list, both);

        let mut flat = vec![0f32; 4];
        group.all_gather_single(&mut flat, &mine(group), AllgatherOptions::default()).unwrap();
        assert_eq!(flat, both.concat());

        // By rank, and of each rank by input.
        let mut lists = vec![vec![0f32; 2], vec![0f32; 1], vec![0f32; 2], vec![0f32; 1]];
        let inputs = [mine(group), vec![group.rank() as f32]];
        group.allgather_coalesced(&mut lists, &inputs, ()).unwrap();
        assert_eq!(lists, [vec![1.0, 10.0], vec![0.0], vec![2.0, 20.0], vec![1.0]]);

        let mut flats = [vec![0f32; 4], vec![0f32; 2]];
        group.all_gather_single_coalesced(&mut flats, &inputs, ()).unwrap();
        assert_eq!(flats, [both.concat(), vec![0.0, 1.0]]);

        let is_root = group.rank() == 1;
        let mut at_root = if is_root { vec![vec![0f32; 2]; 2] } else { Vec::new() };
        group.gather(&mut at_root, &mine(group), (1, LIMIT)).unwrap();
        assert_eq!(at_root, if is_root { both.to_vec() } else { Vec::new() });
        let mut flat = vec![0f32; if is_root { 4 } else { 0 }];
        let options = GatherOptions::default().root_rank(1);
        group.gather_single(&mut flat, &mine(group), options).unwrap();
        assert_eq!(flat, if is_root { both.concat() } else { Vec::new() });
    });
}

#[test]
fn scattering() {
    two_ranks("scattering", |group| {
        let is_root = group.rank() == 1;
        let own = group.rank() as f32;
        let parts = vec![vec![5.0f32, 6.0], vec![7.0, 8.0]];
        let expected = &parts[group.rank() as usize];
        let mut part = vec![0f32; 2];
        let input = if is_root { parts.clone() } else { Vec::new() };
        group.scatter(&mut part, &input, 1).unwrap();
        assert_eq!(&part, expected);
        let mut part = vec![0f32; 2];
        group.scatter(&mut part, &input, ScatterOptions::default().root_rank(1)).unwrap();
        assert_eq!(&part, expected);

        let mut part = vec![0f32; 2];
        group.reduce_scatter(&mut part, &parts, ReduceOp::Sum).unwrap();
        assert_eq!(part, expected.iter().map(|element| 2.0 * element).collect::<Vec<_>>());
        let flat = parts.concat();
        group.reduce_scatter_single(&mut part, &flat, (ReduceOp::Avg, LIMIT)).unwrap();
        assert_eq!(&part, expected);
        let mut several = [vec![0f32; 2], vec![0f32; 1]];
        let inputs = [flat, vec![own, own]];
        group.reduce_scatter_single_coalesced(&mut several, &inputs, ()).unwrap();
        assert_eq!(several[1], [1.0]);
    });
}

#[test]
fn exchanging() {
    two_ranks("exchanging", |group| {
        let rank = group.rank() as usize;
        let inputs = [vec![rank as f32], vec![rank as f32 + 10.0]];
        let mut outputs = [vec![0f32], vec![0f32]];
        group.alltoall(&mut outputs, &inputs, ()).unwrap();
        let expected = [rank as f32 * 10.0, 1.0 + rank as f32 * 10.0];
        assert_eq!(outputs.concat(), expected);
        let mut output = vec![0f32; 2];
        group.all_to_all_single(&mut output, &inputs.concat(), LIMIT).unwrap();
        assert_eq!(output, expected);

        // Rank 0 sends three rows to rank 1 and keeps one; rank 1 keeps two and sends none.
        let input: Vec<f32> = if rank == 0 { vec![1.0, 2.0, 3.0, 4.0] } else { vec![5.0, 6.0] };
        let sent: [usize; 2] = if rank == 0 { [1, 3] } else { [0, 2] };
        let came: [usize; 2] = if rank == 0 { [1, 0] } else { [3, 2] };
        let mut output = vec![0f32; came.iter().sum()];
        group.all_to_all_single(&mut output, &input, (&came, &sent)).unwrap();
        assert_eq!(output, if rank == 0 { vec![1.0] } else { vec![2.0, 3.0, 4.0, 5.0, 6.0] });
        let mut again = vec![0f32; output.len()];
        group.all_to_all_single(&mut again, &input, (&came[..], &sent[..], LIMIT)).unwrap();
        assert_eq!(again, output);

        let (own, other) = (group.rank(), 1 - group.rank());
        assert_eq!(group.iprobe(None, 9).unwrap(), None);
        group.send(&[own; 3], other, 8).unwrap();
        let found: MessageInfo = group.probe(None, 8).unwrap();
        assert_eq!((found.source, found.tag, found.bytes), (other, 8, 12));
        assert_eq!(found.dtype, polyrank::DType::U32);
        group.recv(&mut [0u32; 3], found.source, 8).unwrap();
        assert_eq!(group.iprobe(Some(other), 8).unwrap(), None);
        let mut came = [9u32; 2];
        group.ppermute(&mut came, &[own + 5; 2], &[(1, 0)]).unwrap();
        assert_eq!(came, if own == 0 { [6; 2] } else { [0; 2] });
        let error = group.ppermute(&mut came, &[own; 2], &[(0, 1), (1, 1)]).unwrap_err();
        assert!(error.to_string().contains("rank 1 is the destination of two pairs"), "{error}");
        group.sendrecv(&[own; 2], (other, own), &mut came, (other, other)).unwrap();
        assert_eq!(came, [other; 2]);
        let work = group.sendrecv_async(vec![own], (other, 0), vec![9u32], (other, 0)).unwrap();
        let came = work.into_result().unwrap().pop().unwrap().into_vec::<u32>().unwrap();
        assert_eq!(came, [other]);
    });
}

/// Rank 0 has one row, rank 1 three.
#[test]
fn uneven_parts() {
    two_ranks("uneven", |group| {
        let rank = group.rank() as usize;
        let rows = [1usize, 3];
        let (own, whole) = (vec![rank as f32; rows[rank]], vec![0.0f32, 1.0, 1.0, 1.0]);
        let mut flat = vec![9f32; 4];
        group.all_gather_v(&mut flat, &own, &rows).unwrap();
        assert_eq!(flat, whole);
        let is_root = rank == 1;
        let mut flat = vec![9f32; if is_root { 4 } else { 0 }];
        group.gather_v(&mut flat, &own, (&rows[..], 1, LIMIT)).unwrap();
        assert_eq!(flat, if is_root { whole.clone() } else { vec![] });
        let mut part = vec![9f32; rows[rank]];
        group.scatter_v(&mut part, &flat, (&rows.to_vec(), 1u32)).unwrap();
        assert_eq!(part, own);
        group.reduce_scatter_v(&mut part, &whole, (&rows, ReduceOp::Sum, LIMIT)).unwrap();
        assert_eq!(part, vec![2.0 * rank as f32; rows[rank]]);
        let came = [rows[rank]; 2];
        let mut output = vec![9f32; 2 * rows[rank]];
        group.all_to_all_v(&mut output, &whole, (&came, &rows)).unwrap();
        assert_eq!(output, [own.clone(), own].concat());
        let error = group.all_gather_v(&mut vec![0f32; 4], &part, &[2, 3]).unwrap_err();
        assert!(error.to_string().contains("splits [2, 3] add up to 5"), "{error}");
    });
}

#[test]
fn barriers() {
    two_ranks("barriers", |group| {
        group.barrier(()).unwrap();
        group.barrier(BarrierOptions::default().timeout(LIMIT)).unwrap();
        group.barrier_async(LIMIT).unwrap().wait(None).unwrap();
        group.scope(|scope| scope.barrier(()).map(drop)).unwrap().unwrap();
    });
}

#[test]
fn any_buffers() {
    fn sum<B: Buffers + ?Sized>(group: &ProcessGroup, tensor: &mut B) {
        group.allreduce(tensor, ()).unwrap();
    }
    two_ranks("any_buffers", |group| {
        let (mut array, mut pairs) = ([1i64; 3], vec![[1f32, 2.0]; 2]);
        let mut tensor = Tensor::from(vec![1u8; 2]);
        sum(group, &mut array);
        sum(group, &mut array[1..]);
        sum(group, &mut pairs);
        sum(group, &mut tensor);
        assert_eq!((array, pairs), ([2, 4, 4], vec![[2.0, 4.0]; 2]));
        assert_eq!(tensor.into_vec::<u8>().unwrap(), [2, 2]);
    });
}
