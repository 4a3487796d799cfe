//! Tensors of CUDA devices over backends for the host, by way of its memory: the conformance cases,
//! many operations at once, prepared operations, what is refused; and the backend of a group that
//! names none. A double stands for the driver: nothing here runs on a device.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::backend::{CudaMemory, CudaTensors};
use polyrank::distributed::{self as dist, InitOptions};
use polyrank::options::AllreduceOptions;
use polyrank::process_group::GroupOptions;
use polyrank::{Collective, Device, Error, ProcessGroup, ReduceOp, Tensor};
use polyrank_tests::cases::{self, Memory};
use polyrank_tests::nccl::{
    NcclSetup, device_of, in_double, nccl_ranks, numbers, on_device, request,
};
use polyrank_tests::{LIMIT, ranks_with};

/// Runs `rank_main` on groups of these sizes over the backend for the host.
fn run(test: &str, sizes: &[u32], rank_main: impl Fn(&ProcessGroup) + Sync) {
    in_double(test, || {
        for backend in ["tcp", "cpu:gloo,cuda:gloo"] {
            for &size in sizes {
                let made = NcclSetup { backend, ..NcclSetup::default() };
                nccl_ranks(size, &made, |group| rank_main(&group));
            }
        }
    });
}

fn expect(group: &ProcessGroup, case: &cases::Case) {
    let memory = Memory::Device(device_of(group.rank()));
    match cases::run_on(group, case, memory) {
        Err(Error::InvalidArgument { message }) if case.strided => {
            assert!(message.contains("must be contiguous"), "{case}: {message}");
        }
        outcome => assert_eq!(outcome.unwrap_or_else(|error| panic!("{case}: {error}")), Ok(())),
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    run("every_dtype_operator_root_and_small_size", &[1, 2, 3], |group| {
        cases::every_small(group, [0, 1, 7], |group, case| {
            // With one element, strides lead nowhere.
            if !case.strided || case.elements > 1 && !case.uneven {
                expect(group, case);
            }
        });
    });
}

#[test]
fn the_pairwise_cases() {
    run("the_pairwise_cases", &[1, 2, 3, 5], |group| {
        let cases = cases::pairwise(group.size()).into_iter().map(|(_, case)| case);
        cases.filter(|case| !case.strided).for_each(|case| expect(group, &case));
    });
}

#[test]
fn large_tensors() {
    run("large_tensors", &[2, 3], |group| {
        cases::large(group.size()).for_each(|case| expect(group, &case));
    });
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    let test = "two_hundred_operations_in_flight_on_two_groups";
    run(test, &[3], |group| {
        cases::two_hundred_in_flight(group, Memory::Device(device_of(group.rank())));
    });
}

#[test]
fn prepared_operations_follow_one_another() {
    run("prepared_operations_follow_one_another", &[2], |group| {
        let tensor = on_device(device_of(group.rank()), &[1.0, 2.0]);
        let prepared = group.prepare_allreduce(tensor.clone(), ReduceOp::Sum).unwrap();
        (0..4).for_each(|_| prepared.start().unwrap().wait(None).unwrap());
        prepared.run().unwrap();
        assert_eq!(numbers(&tensor), [32.0, 64.0]);
    });
}

#[test]
fn what_a_rank_only_reads_stays_as_it_is() {
    run("what_a_rank_only_reads_stays_as_it_is", &[3], |group| {
        let mine = on_device(device_of(group.rank()), &[group.rank() as f32; 3]);
        let mut reduce = request(Collective::Reduce, &mine);
        reduce.root = 1;
        reduce.inputs = reduce.outputs.clone();
        group.run(reduce).unwrap();
        let expected = if group.rank() == 1 { 3.0 } else { group.rank() as f32 };
        assert_eq!(numbers(&mine), [expected; 3]);
        let work = group.issue(request(Collective::Allreduce, &mine)).unwrap();
        work.wait(Some(LIMIT)).unwrap();
        assert_eq!(numbers(&work.result()[0]), [5.0; 3]);
    });
}

#[test]
fn an_operation_that_times_out_leaves_the_memory_alone() {
    let test = "an_operation_that_times_out_leaves_the_memory_alone";
    in_double(test, || {
        let over = std::sync::Barrier::new(2);
        let options = |_| GroupOptions::default().timeout(LIMIT);
        ranks_with(2, options, |group| {
            if group.rank() == 0 {
                let tensor = on_device(0, &[7.0; 2]);
                let short = std::time::Duration::from_millis(200);
                let short = AllreduceOptions::default().timeout(short);
                let work = group.allreduce_async(tensor.clone(), short).unwrap();
                assert!(matches!(work.wait(None), Err(Error::CollectiveTimeout { .. })));
                assert_eq!(numbers(&tensor), [7.0; 2]);
            }
            over.wait();
            group.abort();
        });
    });
}

#[test]
fn capabilities_say_what_is_true() {
    in_double("capabilities_say_what_is_true", || {
        let spec = "cpu:tcp,cuda:nccl";
        nccl_ranks(1, &NcclSetup { backend: spec, ..NcclSetup::default() }, |group| {
            let on = |device| group.get_backend(device).unwrap().capabilities().cuda;
            assert_eq!(on(Device::Cpu), CudaTensors::ByHost);
            assert_eq!(on(Device::Cuda(0)), CudaTensors::Directly);
        });
        nccl_ranks(1, &NcclSetup { backend: "cuda:tcp", ..NcclSetup::default() }, |group| {
            let backend = group.get_backend(Device::Cuda(0)).unwrap();
            assert_eq!(backend.name(), "tcp");
            assert_eq!(backend.capabilities().cuda, CudaTensors::ByHost);
        });
        let apart = "cpu:mpi,cuda:tcp".parse::<polyrank::backend::registry::BackendSpec>();
        let options = GroupOptions::default().backend(apart.unwrap());
        let store = std::sync::Arc::new(polyrank::store::HashStore::new());
        let error = ProcessGroup::new(store, 0, 1, "apart", options).unwrap_err();
        assert!(error.to_string().contains("beside cpu:mpi"), "{error}");
    });
}

/// The backends of a default group of one rank that names none.
fn default_backends(device: Option<Device>) -> Result<String, Error> {
    let mut options = InitOptions::default().rank(0).world_size(1).timeout(LIMIT);
    options.store = Some(std::sync::Arc::new(polyrank::store::HashStore::new()));
    options.device = device;
    let group = dist::init_process_group(options)?;
    let backends = group.backend_config();
    let tensor: Tensor = on_device(0, &[1.0]);
    group.run(request(Collective::Allreduce, &tensor))?;
    dist::destroy_process_group(None)?;
    Ok(backends)
}

#[test]
fn a_group_that_names_no_backend_has_that_of_the_device() {
    in_double("a_group_that_names_no_backend_has_that_of_the_device", || {
        assert_eq!(default_backends(None).unwrap(), "cpu:tcp,cuda:nccl");
        assert_eq!(default_backends(Some(Device::Cuda(0))).unwrap(), "cpu:tcp,cuda:nccl");
        assert_eq!(default_backends(Some(Device::Cpu)).unwrap(), "cpu:tcp");
        let recommended = dist::recommend_backend();
        assert_eq!(recommended.backend.to_string(), "cpu:tcp,cuda:nccl");
        assert!(recommended.reason.contains("CUDA device"), "{}", recommended.reason);
        let info = dist::build_info();
        let nccl = info.backends.iter().find(|it| it.name == "nccl").unwrap();
        assert_eq!((nccl.unavailable.clone(), nccl.takes_cuda_memory), (None, CudaMemory::Taken));
        assert!(nccl.library.as_ref().is_some_and(|it| it.starts_with("NCCL ")), "{nccl:?}");
    });
}
