//! What every rank of a group over NCCL must see, whether the library is NCCL or its double. Each
//! function is called by all ranks of a group at once. Knows not how ranks are started.

use std::time::Duration;

use polyrank::backend::{Direction, WaitIntent};
use polyrank::process_group::{MessageRequest, SplitOptions};
use polyrank::tensor::cuda;
use polyrank::{
    Collective, DType, Device, Error, OnDevice, ProcessGroup, Request, Result, Tensor, Work,
};

use super::{check, device_of, numbers, on_device, request};
use crate::LIMIT;
use crate::cases::{self, Case, Memory};

/// Every dtype, operator and root with so many elements.
pub fn every_small(group: &ProcessGroup, elements: &[usize]) {
    cases::every_small(group, elements.iter().copied(), |group, case| {
        // With one element, strides lead nowhere.
        if !case.strided || case.elements > 1 && !case.uneven {
            expect(group, case);
        }
    });
}

/// The cases that hold each pair of what can be chosen.
pub fn pairwise(group: &ProcessGroup) {
    let cases = cases::pairwise(group.size()).into_iter().map(|(_, case)| case);
    // With strides, some ranks may have a block of one element, and no reason to refuse.
    let cases = cases.filter(|case| !case.strided);
    let wrong = cases.filter_map(|case| Some(format!("{case}: {}", check(group, &case).err()?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "world {}:\n{}", group.size(), wrong.join("\n"));
}

/// Tensors of many pieces.
pub fn large(group: &ProcessGroup) {
    for large in cases::large(group.size()) {
        expect(group, &large);
        expect(group, &Case { root: 0, uneven: false, ..large });
    }
}

/// Two hundred operations on two groups, none waited for before all are issued.
pub fn two_hundred_in_flight(group: &ProcessGroup) {
    cases::two_hundred_in_flight(group, Memory::Device(device_of(group.rank())));
}

/// Waiting without a limit orders the stream, and what is issued next comes after it. Of two ranks.
/// The first operation of its kind makes NCCL's connections, and waits for the others.
pub fn waiting_orders_the_stream(group: &ProcessGroup) {
    let store = group.get_group_store();
    let rank = group.rank();
    let other = group.split_group(&[0, 1], Default::default()).unwrap().unwrap();
    finish(group, broadcast(group, 4)).unwrap();
    finish(&other, allreduce(&other, 4)).unwrap();
    let tensor = on_device(device_of(rank), &[rank as f32 + 1.0; 4]);
    if rank == 1 {
        // What rank 0 sends comes late; it has issued everything by then.
        store.wait(&["issued"], None).unwrap();
    }
    let broadcast = group.issue(request(Collective::Broadcast, &tensor)).unwrap();
    // Does not block: only the stream comes after it.
    broadcast.wait(None).unwrap();
    let sum = other.issue(request(Collective::Allreduce, &tensor)).unwrap();
    sum.wait(None).unwrap();
    if rank == 0 {
        assert!(!sum.is_completed(), "rank 1 has not come");
        let waited = sum.wait(Some(Duration::from_millis(50))).unwrap_err();
        assert!(matches!(waited, Error::WaitTimeout { .. }), "{waited}");
        store.set("issued", b"").unwrap();
    }
    // Copied in the order of the stream: both have 1 from the broadcast.
    assert_eq!(numbers(&tensor), [2.0; 4]);
    other.shutdown().expect("the ranks agree");
}

/// A stream that waits is ordered, and no other. Of two ranks.
pub fn waiting_orders_the_stream_of_the_thread_that_waits(group: &ProcessGroup) {
    finish(group, allreduce(group, 2)).unwrap();
    let (rank, store) = (group.rank(), group.get_group_store());
    let index = device_of(rank);
    let context = cudarc::driver::CudaContext::new(index as usize).unwrap();
    let (owner, waiter) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let tensor = Tensor::from(owner.clone_htod(&[1.0_f32, 2.0]).unwrap());
    if rank == 1 {
        store.wait(&["ordered"], None).unwrap();
    }
    let work = issue(group, Collective::Allreduce, &tensor);
    let stream = OnDevice { index, stream: waiter.cu_stream() as usize };
    match work.order_on(&[stream]) {
        Some(ordered) => ordered.unwrap(),
        // Rank 0 was there already: it has ended, which is noted a moment later.
        None => {
            assert_eq!(rank, 1);
            work.wait(Some(LIMIT)).unwrap();
        }
    }
    if rank == 0 {
        // Returns, though rank 1 has not come: it was not ordered.
        owner.synchronize().unwrap();
        let comes = waiter.record_event(None).unwrap();
        assert!(!comes.is_complete(), "rank 1 has not come");
        store.set("ordered", b"").unwrap();
    }
    waiter.synchronize().unwrap();
    work.wait(Some(LIMIT)).unwrap();
    drop(work);
    let slice = tensor.into_cuda_slice::<f32>().expect("nobody else has it");
    assert_eq!(waiter.clone_dtoh(&slice).unwrap(), [2.0, 4.0]);
}

/// Tensors that nobody else holds are kept until the device is done with them. Of two ranks.
pub fn memory_is_let_go_of_when_the_device_is_done_with_it(group: &ProcessGroup) {
    finish(group, broadcast(group, 10_000)).unwrap();
    let (store, index) = (group.get_group_store(), device_of(group.rank()));
    let mut works = Vec::new();
    if group.rank() == 0 {
        for _ in 0..20 {
            // Nobody else holds the tensor; freed memory is overwritten by the double.
            let tensor = on_device(index, &[1.0; 10_000]);
            works.push(group.issue(request(Collective::Broadcast, &tensor)).unwrap());
        }
        store.set("issued", b"").unwrap();
        drop(works);
        return;
    }
    store.wait(&["issued"], None).unwrap();
    for _ in 0..20 {
        let tensor = on_device(index, &[0.0; 10_000]);
        group.run(request(Collective::Broadcast, &tensor)).unwrap();
        assert_eq!(numbers(&tensor), [1.0; 10_000]);
    }
}

/// A callback comes without a waiter.
pub fn an_operation_that_nobody_waits_for_ends_all_the_same(group: &ProcessGroup) {
    let (told, hears) = std::sync::mpsc::channel();
    let tensor = on_device(device_of(group.rank()), &[1.0; 300_000]);
    let work = group.issue(request(Collective::Allreduce, &tensor)).unwrap();
    work.on_done(move |result| told.send(result.clone()).unwrap());
    hears.recv().unwrap().unwrap();
    assert_eq!(numbers(&tensor), [group.size() as f32; 300_000]);
}

/// Messages, in a ring and alone. Of three ranks.
pub fn messages_that_go_together_meet_in_any_order(group: &ProcessGroup) {
    let (rank, size) = (group.rank(), group.size());
    let index = device_of(rank);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let (ours, theirs) =
        (on_device(index, &[rank as f32; 50_000]), on_device(index, &[9.0; 50_000]));
    let part = |direction, tensor: &Tensor, peer| MessageRequest {
        direction,
        tensor: tensor.clone(),
        peer: Some(peer),
        tag: 0,
    };
    let mut messages =
        vec![part(Direction::Send, &ours, next), part(Direction::Receive, &theirs, before)];
    if rank == 1 {
        messages.reverse();
    }
    let works = group.issue_messages(messages, None, WaitIntent::Later).unwrap();
    assert_eq!(works.len(), 2);
    works.iter().for_each(|work| work.wait(None).unwrap());
    assert_eq!(numbers(&theirs), [before as f32; 50_000]);
    // Alone, each waits for the other side.
    if rank == 0 {
        group.send(&ours, 1, 0).unwrap();
    } else if rank == 1 {
        let mut got = on_device(index, &[7.0; 50_000]);
        group.recv(&mut got, 0, 0).unwrap();
        assert_eq!(numbers(&got), [0.0; 50_000]);
        let tagged = group.send(&got, 0, 5).unwrap_err().to_string();
        assert!(tagged.contains("does not support messages with tags"), "{tagged}");
        let any = group.recv_anysource(&mut got, 0).unwrap_err().to_string();
        assert!(any.contains("does not support receiving from any rank"), "{any}");
    }
}

/// Tensors of the host go over TCP. Of two ranks of a group of both backends.
pub fn a_group_of_two_backends_routes_by_device(group: &ProcessGroup) {
    assert_eq!(group.backend_config(), "cpu:tcp,cuda:nccl");
    let index = device_of(group.rank());
    let on_gpu = on_device(index, &[1.5; 3]);
    assert_eq!(on_gpu.device(), Device::Cuda(index));
    group.run(request(Collective::Allreduce, &on_gpu)).unwrap();
    assert_eq!(numbers(&on_gpu), [3.0; 3]);
    let mut on_host = [2.0_f32; 3];
    group.allreduce(&mut on_host, ()).unwrap();
    assert_eq!(on_host, [4.0; 3]);
    group.run(Request::new(Collective::Barrier)).unwrap();
    // One call has tensors of one device.
    let mut mixed = Request::new(Collective::Reduce);
    mixed.inputs = vec![vec![on_gpu.clone()]];
    mixed.outputs = vec![vec![Tensor::from(vec![0.0_f32; 3])]];
    let error = group.run(mixed).unwrap_err().to_string();
    let says = format!("on one device, got cuda:{index} and cpu");
    assert!(error.contains(&says) || group.rank() == 1, "{error}");
}

/// A slice of cudarc goes in and comes back.
pub fn slices_of_cudarc_go_in_and_come_back(group: &ProcessGroup) {
    let index = device_of(group.rank());
    let context = cudarc::driver::CudaContext::new(index as usize).unwrap();
    let stream = context.new_stream().unwrap();
    let slice = stream.clone_htod(&[1.0_f32, 2.0, 3.0]).unwrap();
    let tensor = Tensor::from(slice);
    assert_eq!(tensor.device(), Device::Cuda(index));
    let work = group.issue(request(Collective::Allreduce, &tensor)).unwrap();
    work.wait(None).unwrap();
    work.wait(Some(LIMIT)).unwrap();
    drop(work);
    let slice = tensor.into_cuda_slice::<f32>().expect("nobody else has it");
    let sums = [1.0_f32, 2.0, 3.0].map(|number| number * group.size() as f32);
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), sums);
}

/// An operation past its deadline names who is late, on all. Of two ranks.
pub fn an_operation_past_its_deadline_names_who_is_late(group: &ProcessGroup) {
    finish(group, allreduce(group, 10)).unwrap();
    let store = group.get_group_store();
    let error = if group.rank() == 1 {
        store.wait(&["gave up"], None).unwrap();
        // The device of rank 0 may not have given up yet, and then takes part in this one.
        let error = loop {
            if let Err(error) = finish(group, allreduce(group, 1000)) {
                break error;
            }
        };
        store.set("heard", b"").unwrap();
        error
    } else {
        let request =
            Request { timeout: Some(Duration::from_millis(900)), ..allreduce(group, 1000) };
        let error = finish(group, request).unwrap_err();
        let again = group.run(allreduce(group, 1)).unwrap_err();
        assert_eq!(again.kind(), "CollectiveTimeout", "{again}");
        store.set("gave up", b"").unwrap();
        store.wait(&["heard"], None).unwrap();
        error
    };
    assert_eq!(error.kind(), "CollectiveTimeout", "{error}");
    assert!(error.to_string().starts_with("allreduce"), "{error}");
    assert!(error.to_string().contains("waiting for rank 1"), "{error}");
}

/// Ranks that call different things learn of it. Of two ranks.
pub fn ranks_that_call_different_things_learn_of_it(group: &ProcessGroup) {
    finish(group, allreduce(group, 10)).unwrap();
    let request = match group.rank() {
        0 => allreduce(group, 10),
        _ => broadcast(group, 12),
    };
    let error = finish(group, Request { root: 0, ..request }).unwrap_err();
    assert_eq!(error.kind(), "CollectiveMismatch", "{error}");
    let text = error.to_string();
    assert!(text.contains("allreduce") && text.contains("broadcast"), "{error}");
}

/// As [`ranks_that_call_different_things_learn_of_it`], before there are connections.
pub fn ranks_whose_first_operations_differ_learn_of_it(group: &ProcessGroup) {
    let request = match group.rank() {
        0 => allreduce(group, 10),
        _ => broadcast(group, 12),
    };
    let error = finish(group, Request { root: 0, ..request }).unwrap_err();
    assert_eq!(error.kind(), "CollectiveMismatch", "{error}");
}

/// A broadcast on which the ranks disagree and NCCL does not, for bytes are bytes to it, is told
/// when they leave. Of two ranks.
pub fn what_passes_unnoticed_is_told_when_the_ranks_leave(group: &ProcessGroup) {
    finish(group, broadcast_of_other_types(group)).unwrap();
    let error = group.shutdown().unwrap_err();
    assert_eq!(error.kind(), "CollectiveMismatch", "{error}");
    let text = error.to_string();
    assert!(text.contains("of 10 f32") && text.contains("of 40 u8"), "{error}");
}

/// The same with `POLYRANK_DEBUG=DETAIL`: it is found by the operation. Of two ranks.
pub fn what_would_pass_unnoticed_is_found_at_level_detail(group: &ProcessGroup) {
    for _ in 0..4 {
        finish(group, allreduce(group, 10)).unwrap();
    }
    let error = finish(group, broadcast_of_other_types(group)).unwrap_err();
    assert_eq!(error.kind(), "CollectiveMismatch", "{error}");
}

/// An abort returns at once, and all ranks learn of it. Of three ranks.
pub fn abort_returns_at_once_and_all_ranks_learn_of_it(group: &ProcessGroup) {
    finish(group, allreduce(group, 10)).unwrap();
    let store = group.get_group_store();
    let error = match group.rank() {
        0 => {
            let work = group.issue(allreduce(group, 10)).unwrap();
            store.wait(&["issued/1"], None).unwrap();
            group.abort();
            assert!(group.is_broken() && work.is_done());
            work.wait(Some(LIMIT)).unwrap_err()
        }
        1 => {
            let work = group.issue(allreduce(group, 10)).unwrap();
            store.set("issued/1", b"").unwrap();
            let error = work.wait(Some(LIMIT)).unwrap_err();
            store.set("over/1", b"").unwrap();
            error
        }
        _ => {
            // Comes when all is over. Had it come before the devices of the others gave up, the
            // operation would have been whole, and would have ended well at rank 1.
            store.wait(&["over/1"], None).unwrap();
            finish(group, allreduce(group, 10)).unwrap_err()
        }
    };
    assert_eq!(error.kind(), "Aborted", "{error}");
    assert!(error.to_string().contains("aborted by rank 0: it called abort()"), "{error}");
}

/// A rank that left is named. Of two ranks.
pub fn a_rank_that_left_is_named(group: &ProcessGroup) {
    finish(group, allreduce(group, 10)).unwrap();
    if group.rank() == 1 {
        group.shutdown().expect("the ranks agree");
        let error = group.run(allreduce(group, 1)).unwrap_err().to_string();
        assert!(error.contains("was destroyed"), "{error}");
        return;
    }
    let error = finish(group, allreduce(group, 10)).unwrap_err();
    assert_eq!(error.kind(), "RankFailed", "{error}");
    assert!(error.to_string().starts_with("rank 1"), "{error}");
    assert!(error.to_string().contains("it left the group"), "{error}");
}

/// A child of two of the ranks works, and stays out of the way of its parent. Of three ranks.
pub fn a_group_is_split(group: &ProcessGroup) {
    let child = group.split_group(&[2, 0], SplitOptions::default()).unwrap();
    assert_eq!(child.is_none(), group.rank() == 1);
    if let Some(child) = child {
        assert_eq!(child.rank(), u32::from(group.rank() == 0));
        let tensor = on_device(device_of(group.rank()), &[1.0; 4]);
        child.run(request(Collective::Allreduce, &tensor)).unwrap();
        assert_eq!(numbers(&tensor), [2.0; 4]);
        child.shutdown().expect("the ranks agree");
    }
}

/// Two groups are split off at once, and a rank stays out. Of five ranks.
pub fn several_groups_are_split_off_at_once_and_a_rank_stays_out(group: &ProcessGroup) {
    let lists = [[0, 1], [3, 2]];
    let Some(list) = lists.iter().find(|list| list.contains(&group.rank())) else {
        return group.stay_out_of_split(&Default::default()).unwrap();
    };
    let child = group.split_group(list, Default::default()).unwrap().unwrap();
    assert_eq!(child.size(), 2);
    let tensor = on_device(device_of(group.rank()), &[1.0; 4]);
    child.run(request(Collective::Allreduce, &tensor)).unwrap();
    assert_eq!(numbers(&tensor), [2.0; 4]);
    child.shutdown().expect("the ranks agree");
}

/// A child over TCP needs only its members. Of three ranks of a group of both backends.
pub fn a_child_over_another_backend_leaves_the_communicator_alone(group: &ProcessGroup) {
    // The others would have to come to a split.
    if group.rank() != 1 {
        let options = SplitOptions::default().backend("tcp".parse().unwrap());
        let child = group.split_group(&[2, 0], options).unwrap().unwrap();
        let mut numbers = [1.0_f32; 4];
        child.allreduce(&mut numbers, ()).unwrap();
        assert_eq!(numbers, [2.0; 4]);
        child.shutdown().expect("the ranks agree");
    }
    let tensor = on_device(device_of(group.rank()), &[1.0; 4]);
    finish(group, request(Collective::Allreduce, &tensor)).unwrap();
    assert_eq!(numbers(&tensor), [3.0; 4]);
}

/// With `blocking_wait`, waiting blocks the thread.
pub fn with_blocking_wait_the_thread_waits_for_the_device(group: &ProcessGroup) {
    let work = group.issue(allreduce(group, 1000)).unwrap();
    work.wait(None).unwrap();
    assert!(work.is_done());
}

/// A barrier of ranks that are bound to devices.
pub fn calls_without_tensors_need_a_device_to_run_on(group: &ProcessGroup) {
    assert_eq!(group.bound_device_id(), Some(Device::Cuda(device_of(group.rank()))));
    assert_eq!(group.backend_name(), "nccl");
    let work = group.issue(Request::new(Collective::Barrier)).unwrap();
    work.wait(None).unwrap();
    assert!(work.is_done(), "without a stream to order, waiting is for the device");
}

/// An allreduce of ones.
pub fn allreduce(group: &ProcessGroup, elements: usize) -> Request {
    of_ones(group, Collective::Allreduce, elements)
}

/// A broadcast of ones.
pub fn broadcast(group: &ProcessGroup, elements: usize) -> Request {
    of_ones(group, Collective::Broadcast, elements)
}

/// Issues `request`, and waits until it is done on the device.
///
/// # Errors
/// Those of both.
pub fn finish(group: &ProcessGroup, request: Request) -> Result<()> {
    group.issue(request)?.wait(Some(LIMIT))
}

/// A broadcast on which two ranks disagree, and NCCL does not.
fn broadcast_of_other_types(group: &ProcessGroup) -> Request {
    let region = cuda::upload(&[0; 40], device_of(group.rank())).unwrap();
    let (dtype, elements) = [(DType::F32, 10), (DType::U8, 40)][group.rank() as usize];
    request(Collective::Broadcast, &Tensor::contiguous(region, dtype, vec![elements]))
}

fn of_ones(group: &ProcessGroup, collective: Collective, elements: usize) -> Request {
    request(collective, &on_device(device_of(group.rank()), &vec![1.0; elements]))
}

fn issue(group: &ProcessGroup, collective: Collective, tensor: &Tensor) -> Work {
    group.issue(request(collective, tensor)).unwrap()
}

fn expect(group: &ProcessGroup, case: &Case) {
    if let Err(difference) = check(group, case) {
        panic!("{case}, world {}: {difference}", group.size());
    }
}
