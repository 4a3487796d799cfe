//! The conformance cases over NCCL, whose part a double plays: nothing here runs on a device. The
//! product and the pairwise cases with device tensors, many operations at once, the order of
//! streams, messages, groups, routing by device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::backend::WaitIntent;
use polyrank::process_group::MessageRequest;
use polyrank::tensor::cuda;
use polyrank::{ProcessGroup, Region};
use polyrank_tests::nccl::{NcclSetup, contract, in_double, nccl_ranks, on_device, python_ranks};

/// Runs `rank_main` on groups of these sizes, bound to their devices, in the test `test`.
fn bound(test: &str, sizes: &[u32], rank_main: impl Fn(&ProcessGroup) + Sync) {
    run(test, sizes, &NcclSetup { bound: true, ..NcclSetup::default() }, rank_main);
}

/// As [`bound`], where the first call finds the device.
fn unbound(test: &str, sizes: &[u32], rank_main: impl Fn(&ProcessGroup) + Sync) {
    run(test, sizes, &NcclSetup::default(), rank_main);
}

fn run(test: &str, sizes: &[u32], made: &NcclSetup, main: impl Fn(&ProcessGroup) + Sync) {
    in_double(test, || {
        for &size in sizes {
            nccl_ranks(size, made, |group| main(&group));
        }
    });
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    let test = "every_dtype_operator_root_and_small_size";
    bound(test, &[1, 2, 3], |group| contract::every_small(group, &[0, 1, 7]));
}

#[test]
fn the_pairwise_cases() {
    bound("the_pairwise_cases", &[1, 2, 3, 4, 5], contract::pairwise);
}

#[test]
fn large_tensors() {
    unbound("large_tensors", &[2, 3], contract::large);
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    let test = "two_hundred_operations_in_flight_on_two_groups";
    unbound(test, &[3], contract::two_hundred_in_flight);
}

#[test]
fn waiting_orders_the_stream_and_operations_come_after_it() {
    let test = "waiting_orders_the_stream_and_operations_come_after_it";
    bound(test, &[2], contract::waiting_orders_the_stream);
}

#[test]
fn memory_is_let_go_of_when_the_device_is_done_with_it() {
    let test = "memory_is_let_go_of_when_the_device_is_done_with_it";
    bound(test, &[2], contract::memory_is_let_go_of_when_the_device_is_done_with_it);
}

#[test]
fn an_operation_that_nobody_waits_for_ends_all_the_same() {
    let test = "an_operation_that_nobody_waits_for_ends_all_the_same";
    unbound(test, &[2], contract::an_operation_that_nobody_waits_for_ends_all_the_same);
}

#[test]
fn messages_that_go_together_meet_in_any_order() {
    let test = "messages_that_go_together_meet_in_any_order";
    bound(test, &[3], contract::messages_that_go_together_meet_in_any_order);
}

#[test]
fn a_group_of_two_backends_routes_by_device() {
    in_double("a_group_of_two_backends_routes_by_device", || {
        let made = NcclSetup { backend: "cpu:tcp,cuda:nccl", ..NcclSetup::default() };
        nccl_ranks(2, &made, |group| contract::a_group_of_two_backends_routes_by_device(&group));
        nccl_ranks(1, &NcclSetup { backend: "tcp", ..NcclSetup::default() }, |group| {
            let tensor = on_device(0, &[1.0]);
            let message = MessageRequest::send(tensor, 0, 0);
            let error = group.issue_message(message, None, WaitIntent::Soon).unwrap_err();
            assert!(error.to_string().contains("none serves CUDA tensors"), "{error}");
        });
    });
}

#[test]
fn slices_of_cudarc_go_in_and_come_back() {
    let test = "slices_of_cudarc_go_in_and_come_back";
    unbound(test, &[2], contract::slices_of_cudarc_go_in_and_come_back);
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
