//! The conformance cases over NCCL, whose part a double plays: nothing here runs on a device. The
//! product and the pairwise cases with device tensors, many operations at once, the order of
//! streams, messages, groups, routing by device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::backend::{Direction, WaitIntent};
use polyrank::process_group::MessageRequest;
use polyrank::tensor::cuda;
use polyrank::{Collective, Device, Error, ProcessGroup, Region, Request, Tensor};
use polyrank_tests::cases::{self, Case, Memory};
use polyrank_tests::nccl::{
    self, NcclSetup, in_double, nccl_ranks, numbers, on_device, python_ranks, request,
};

/// Runs a case on this rank's device.
fn check(group: &ProcessGroup, case: &Case) {
    if let Err(difference) = nccl::check(group, case) {
        panic!("{case}, world {}: {difference}", group.size());
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    in_double("every_dtype_operator_root_and_small_size", || {
        for size in [1, 2, 3] {
            nccl_ranks(size, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
                cases::every_small(&group, [0, 1, 7], |group, case| {
                    // With one element, strides lead nowhere.
                    if !case.strided || case.elements > 1 && !case.uneven {
                        check(group, case);
                    }
                });
            });
        }
    });
}

#[test]
fn the_pairwise_cases() {
    in_double("the_pairwise_cases", || {
        for size in [1, 2, 3, 4, 5] {
            nccl_ranks(size, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
                // With strides, some ranks may have a block of one element, and no reason to
                // refuse.
                let cases = cases::pairwise(size).into_iter().map(|(_, case)| case);
                cases.filter(|case| !case.strided).for_each(|case| check(&group, &case));
            });
        }
    });
}

#[test]
fn large_tensors() {
    in_double("large_tensors", || {
        for size in [2, 3] {
            nccl_ranks(size, &NcclSetup::default(), |group| {
                for large in cases::large(size) {
                    check(&group, &large);
                    check(&group, &Case { root: 0, uneven: false, ..large });
                }
            });
        }
    });
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    in_double("two_hundred_operations_in_flight_on_two_groups", || {
        nccl_ranks(3, &NcclSetup::default(), |group| {
            cases::two_hundred_in_flight(&group, Memory::Device(group.rank()));
        });
    });
}

#[test]
fn waiting_orders_the_stream_and_operations_come_after_it() {
    in_double("waiting_orders_the_stream_and_operations_come_after_it", || {
        nccl_ranks(2, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            let store = group.get_group_store();
            let rank = group.rank();
            let other = group.split_group(&[0, 1], Default::default()).unwrap().unwrap();
            let tensor = on_device(rank, &[rank as f32 + 1.0; 4]);
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
                let waited = sum.wait(Some(std::time::Duration::from_millis(50))).unwrap_err();
                assert!(matches!(waited, Error::WaitTimeout { .. }), "{waited}");
                store.set("issued", b"").unwrap();
            }
            // Copied in the order of the stream: both have 1 from the broadcast.
            assert_eq!(numbers(&tensor), [2.0; 4]);
            other.shutdown().expect("the ranks agree");
        });
    });
}

#[test]
fn memory_is_let_go_of_when_the_device_is_done_with_it() {
    in_double("memory_is_let_go_of_when_the_device_is_done_with_it", || {
        nccl_ranks(2, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            let store = group.get_group_store();
            let mut works = Vec::new();
            if group.rank() == 0 {
                for _ in 0..20 {
                    // Nobody else holds the tensor; freed memory is overwritten by the double.
                    let tensor = on_device(0, &[1.0; 10_000]);
                    works.push(group.issue(request(Collective::Broadcast, &tensor)).unwrap());
                }
                store.set("issued", b"").unwrap();
                drop(works);
                return;
            }
            store.wait(&["issued"], None).unwrap();
            for _ in 0..20 {
                let tensor = on_device(1, &[0.0; 10_000]);
                group.run(request(Collective::Broadcast, &tensor)).unwrap();
                assert_eq!(numbers(&tensor), [1.0; 10_000]);
            }
        });
    });
}

#[test]
fn an_operation_that_nobody_waits_for_ends_all_the_same() {
    in_double("an_operation_that_nobody_waits_for_ends_all_the_same", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            let (told, hears) = std::sync::mpsc::channel();
            let tensor = on_device(group.rank(), &[1.0; 300_000]);
            let work = group.issue(request(Collective::Allreduce, &tensor)).unwrap();
            work.on_done(move |result| told.send(result.clone()).unwrap());
            hears.recv().unwrap().unwrap();
            assert_eq!(numbers(&tensor), [2.0; 300_000]);
        });
    });
}

#[test]
fn messages_that_go_together_meet_in_any_order() {
    in_double("messages_that_go_together_meet_in_any_order", || {
        nccl_ranks(3, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            let (rank, size) = (group.rank(), group.size());
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            let (ours, theirs) =
                (on_device(rank, &[rank as f32; 50_000]), on_device(rank, &[9.0; 50_000]));
            let part = |direction, tensor: &Tensor, peer| MessageRequest {
                direction,
                tensor: tensor.clone(),
                peer,
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
                let mut got = on_device(1, &[7.0; 50_000]);
                group.recv(&mut got, 0, 0).unwrap();
                assert_eq!(numbers(&got), [0.0; 50_000]);
                let tagged = group.send(&got, 0, 5).unwrap_err().to_string();
                assert!(tagged.contains("does not support messages with tags"), "{tagged}");
                let any = group.recv_anysource(&mut got, 0).unwrap_err().to_string();
                assert!(any.contains("does not support receiving from any rank"), "{any}");
            }
        });
    });
}

#[test]
fn a_group_of_two_backends_routes_by_device() {
    in_double("a_group_of_two_backends_routes_by_device", || {
        let made = NcclSetup { backend: "cpu:tcp,cuda:nccl", ..NcclSetup::default() };
        nccl_ranks(2, &made, |group| {
            assert_eq!(group.backend_config(), "cpu:tcp,cuda:nccl");
            let on_gpu = on_device(group.rank(), &[1.5; 3]);
            assert_eq!(on_gpu.device(), Device::Cuda(group.rank()));
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
            let says = format!("on one device, got cuda:{} and cpu", group.rank());
            assert!(error.contains(&says) || group.rank() == 1, "{error}");
        });
        nccl_ranks(1, &NcclSetup { backend: "tcp", ..NcclSetup::default() }, |group| {
            let tensor = on_device(0, &[1.0]);
            let error = group.run(request(Collective::Allreduce, &tensor)).unwrap_err();
            assert!(error.to_string().contains("none serves CUDA tensors"), "{error}");
        });
    });
}

#[test]
fn slices_of_cudarc_go_in_and_come_back() {
    in_double("slices_of_cudarc_go_in_and_come_back", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            let index = group.rank() as usize;
            let context = cudarc::driver::CudaContext::new(index).unwrap();
            let stream = context.new_stream().unwrap();
            let slice = stream.clone_htod(&[1.0_f32, 2.0, 3.0]).unwrap();
            let tensor = Tensor::from(slice);
            assert_eq!(tensor.device(), Device::Cuda(group.rank()));
            let work = group.issue(request(Collective::Allreduce, &tensor)).unwrap();
            work.wait(None).unwrap();
            work.wait(Some(polyrank_tests::LIMIT)).unwrap();
            drop(work);
            let slice = tensor.into_cuda_slice::<f32>().expect("nobody else has it");
            assert_eq!(stream.clone_dtoh(&slice).unwrap(), [2.0, 4.0, 6.0]);
        });
    });
}

#[test]
fn tensors_of_other_libraries_come_by_dlpack_with_their_stream() {
    for size in [1, 2, 3] {
        let Some(output) = python_ranks("nccl/tensors", size) else { return };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{errors}");
        for rank in 0..size {
            assert!(said.lines().any(|line| line == format!("ok {rank}")), "{said}\n{errors}");
        }
    }
}

#[test]
fn the_host_cannot_reach_a_devices_memory() {
    in_double("the_host_cannot_reach_a_devices_memory", || {
        let region: Region = cuda::upload(&[1, 2, 3], 0).unwrap();
        assert_eq!(cuda::download(&region).unwrap(), [1, 2, 3]);
        let read = std::panic::AssertUnwindSafe(|| region.read(<[u8]>::len));
        let read = std::panic::catch_unwind(read);
        assert!(read.is_err(), "following the address would be worse");
        assert!(cuda::download(&Region::zeroed(1)).is_err());
        assert!(cuda::upload(&[1], 8).unwrap_err().to_string().contains("no CUDA device 8"));
    });
}
