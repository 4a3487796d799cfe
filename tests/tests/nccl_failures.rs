//! What happens over NCCL, whose part a double plays, when there is no library or device, when
//! ranks are late, disagree, leave or die, and when something is asked that NCCL does not have.
//! Nothing hangs, every error has a reason. Nothing here runs on a device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use polyrank::backend::nccl::{NcclConfig, NcclOptions};
use polyrank::distributed::is_backend_available;
use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{Collective, Error, ProcessGroup};
use polyrank_tests::nccl::contract::{self, allreduce, finish};
use polyrank_tests::nccl::{
    NcclSetup, calls, count, forget_calls, in_double, in_double_as, in_double_with_log, nccl_ranks,
    on_device, request,
};
use polyrank_tests::processes::{bare_processes, report, with_variable};

fn said(error: &Error) -> String {
    format!("{}: {}", error.kind(), error.to_string().replace('\n', " "))
}

fn unavailable() -> String {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let options = GroupOptions::default().backend("nccl".parse().unwrap());
    let error = ProcessGroup::new(store, 0, 1, "alone", options).unwrap_err();
    assert!(matches!(error, Error::BackendUnavailable { .. }), "{error}");
    assert!(!is_backend_available("nccl"));
    error.to_string()
}

#[test]
fn without_a_library_or_a_device_the_reason_is_said() {
    let test = "without_a_library_or_a_device_the_reason_is_said";
    let why = |name: &str, value: &str| {
        with_variable(name, value, || {
            let ended = bare_processes(test, 1, || report(unavailable())).remove(0);
            assert_eq!(ended.code, Some(0), "{}", ended.output);
            ended.printed.concat()
        })
    };
    let missing = why("POLYRANK_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    assert!(
        missing.contains("backend 'nccl' is not available: POLYRANK_NCCL_LIBRARY is"),
        "{missing}"
    );
    assert!(missing.contains("No such file"), "{missing}");
    let other = why("POLYRANK_NCCL_LIBRARY", "libc.so.6");
    assert!(other.contains("it lacks ncclGetVersion"), "{other}");
    let ended = with_variable("NCCL_DOUBLE_NO_DEVICE", "1", || {
        in_double_as(test, || report(unavailable()))
    });
    let why = ended.printed.concat();
    assert!(why.contains("cuInit") && why.contains("no CUDA-capable device"), "{why}");
    let ended = with_variable("NCCL_DOUBLE_VERSION", "21703", || {
        in_double_as(test, || report(unavailable()))
    });
    let why = ended.printed.concat();
    assert!(why.contains("it is NCCL 2.17.3; 2.18.1 or newer is needed"), "{why}");
}

#[test]
fn a_backend_for_the_other_kind_of_device_is_refused() {
    in_double("a_backend_for_the_other_kind_of_device_is_refused", || {
        // Those of the host take tensors of devices, by way of the host.
        let says = "the backend 'nccl' serves cuda tensors, not those of cpu";
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let options = GroupOptions::default().backend("cpu:nccl".parse().unwrap());
        let error = ProcessGroup::new(store, 0, 1, "alone", options).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    });
}

#[test]
fn two_ranks_on_one_device_are_found_when_they_meet() {
    in_double("two_ranks_on_one_device_are_found_when_they_meet", || {
        let errors = nccl_ranks(3, &NcclSetup::default(), |group| {
            let tensor = on_device(group.rank() % 2, &[1.0]);
            said(&group.run(request(Collective::Allreduce, &tensor)).unwrap_err())
        });
        for error in errors {
            assert!(error.starts_with("InvalidArgument: ranks 0 and 2 both use"), "{error}");
            assert!(error.contains("the CUDA device at 0000:00:00.0"), "{error}");
        }
        // A rank has one device.
        nccl_ranks(1, &NcclSetup::default(), |group| {
            finish(&group, allreduce(&group, 1)).unwrap();
            let elsewhere = request(Collective::Allreduce, &on_device(3, &[1.0]));
            let error = group.run(elsewhere).unwrap_err().to_string();
            assert!(
                error.contains("uses cuda:0 in the group, and a tensor is on cuda:3"),
                "{error}"
            );
        });
    });
}

#[test]
fn a_first_call_to_which_not_all_come_names_who_is_missing() {
    in_double("a_first_call_to_which_not_all_come_names_who_is_missing", || {
        let errors = nccl_ranks(3, &NcclSetup::default(), |group| {
            let mut request = allreduce(&group, 1);
            let store = group.get_group_store();
            if group.rank() == 1 {
                store.wait(&["gave up/0", "gave up/2"], None).unwrap();
                return String::new();
            }
            if group.rank() == 0 {
                // The time of the one that gives up begins when the other has come.
                let came = |key: &String| key.ends_with("nccl/device/2");
                while !store.list_keys().unwrap().iter().any(came) {
                    std::thread::yield_now();
                }
                request.timeout = Some(Duration::from_millis(700));
            }
            let error = group.run(request).unwrap_err();
            store.set(&format!("gave up/{}", group.rank()), b"").unwrap();
            said(&error)
        });
        assert!(errors[0].starts_with("RendezvousTimeout: ranks [1] did not come"), "{errors:?}");
        assert!(errors[2].starts_with("RankFailed: rank 0"), "{errors:?}");
        assert!(errors[2].contains("ranks [1] did not come"), "{errors:?}");
    });
}

#[test]
fn an_operation_past_its_deadline_names_who_is_late() {
    in_double("an_operation_past_its_deadline_names_who_is_late", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            contract::an_operation_past_its_deadline_names_who_is_late(&group);
        });
    });
}

#[test]
fn ranks_that_call_different_things_learn_of_it() {
    in_double("ranks_that_call_different_things_learn_of_it", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            contract::ranks_that_call_different_things_learn_of_it(&group);
        });
    });
}

#[test]
fn what_passes_unnoticed_is_told_when_the_ranks_leave() {
    in_double("what_passes_unnoticed_is_told_when_the_ranks_leave", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            contract::what_passes_unnoticed_is_told_when_the_ranks_leave(&group);
        });
    });
}

#[test]
fn what_would_pass_unnoticed_is_found_at_level_detail() {
    let test = "what_would_pass_unnoticed_is_found_at_level_detail";
    with_variable("POLYRANK_DEBUG", "DETAIL", || {
        in_double(test, || {
            nccl_ranks(2, &NcclSetup::default(), |group| {
                contract::what_would_pass_unnoticed_is_found_at_level_detail(&group);
            });
        });
    });
}

#[test]
fn abort_returns_at_once_and_all_ranks_learn_of_it() {
    in_double("abort_returns_at_once_and_all_ranks_learn_of_it", || {
        nccl_ranks(3, &NcclSetup::default(), |group| {
            contract::abort_returns_at_once_and_all_ranks_learn_of_it(&group);
        });
    });
}

#[test]
fn a_rank_that_left_is_named() {
    in_double("a_rank_that_left_is_named", || {
        nccl_ranks(2, &NcclSetup::default(), |group| {
            contract::a_rank_that_left_is_named(&group);
        });
    });
}

#[test]
fn bound_groups_split_their_communicator_and_others_make_a_new_one() {
    let test = "bound_groups_split_their_communicator_and_others_make_a_new_one";
    in_double_with_log(test, || {
        for bound in [true, false] {
            forget_calls();
            let nccl = Some(NcclOptions::default().is_high_priority_stream(true));
            nccl_ranks(3, &NcclSetup { bound, nccl, ..NcclSetup::default() }, |group| {
                contract::a_group_is_split(&group);
            });
            let made = (count("ncclCommSplit"), count("ncclCommInitRankConfig"));
            assert_eq!(made, if bound { (3, 3) } else { (0, 2) });
            assert_eq!(count("cuStreamCreateWithPriority 0"), 0);
            assert_eq!(count("ncclCommAbort"), 0, "all left in order");
        }
    });
}

#[test]
fn several_groups_are_split_off_at_once_and_a_rank_stays_out() {
    in_double("several_groups_are_split_off_at_once_and_a_rank_stays_out", || {
        nccl_ranks(5, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            contract::several_groups_are_split_off_at_once_and_a_rank_stays_out(&group);
        });
    });
}

#[test]
fn a_child_over_another_backend_leaves_the_communicator_alone() {
    let test = "a_child_over_another_backend_leaves_the_communicator_alone";
    in_double_with_log(test, || {
        let made = NcclSetup { backend: "cpu:tcp,cuda:nccl", bound: true, ..NcclSetup::default() };
        nccl_ranks(3, &made, |group| {
            contract::a_child_over_another_backend_leaves_the_communicator_alone(&group);
        });
        assert_eq!(count("ncclCommSplit"), 0);
        assert_eq!(count("ncclCommAbort"), 0, "all left in order");
    });
}

#[test]
fn what_came_with_later_versions_reaches_a_library_that_knows_it() {
    let test = "what_came_with_later_versions_reaches_a_library_that_knows_it";
    with_variable("NCCL_DOUBLE_VERSION", "22803", || {
        in_double_with_log(test, || {
            let all = NcclConfig::default().traffic_class(7).comm_name("here").collnet_enable(1);
            let all = all.cta_policy(2).shrink_share(1).nvls_ctas(3);
            let some = all.clone();
            let all = all.n_channels_per_net_peer(4).nvlink_centric_sched(1);
            let class = NcclConfig::default().traffic_class(7);
            for (config, ends) in [
                (NcclConfig::default(), " of 1"),
                (class, " of 1 traffic_class=7"),
                (some, " cta_policy=2 shrink_share=1 nvls_ctas=3 comm_name=here"),
                (all, " n_channels_per_net_peer=4 nvlink_centric_sched=1 comm_name=here"),
            ] {
                forget_calls();
                let nccl = Some(NcclOptions::default().config(config));
                nccl_ranks(1, &NcclSetup { bound: true, nccl, ..NcclSetup::default() }, drop);
                let calls = calls();
                let made = calls.iter().find(|call| call.starts_with("ncclCommInitRankConfig"));
                assert!(made.unwrap().ends_with(ends), "{made:?}");
            }
        });
    });
}

#[test]
fn what_a_library_is_too_old_for_is_an_error_before_ranks_meet() {
    in_double("what_a_library_is_too_old_for_is_an_error_before_ranks_meet", || {
        let config = NcclConfig::default().comm_name("here");
        let options = GroupOptions::default()
            .backend("nccl".parse().unwrap())
            .backend_options(NcclOptions::default().config(config));
        let store = Arc::new(HashStore::new());
        // Nobody else ever comes.
        let error = ProcessGroup::new(store, 0, 2, "test", options).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("NCCL 2.23.4"), "{error}");
        assert!(error.to_string().contains("NcclConfig.comm_name, which needs"), "{error}");
    });
}

#[test]
fn with_blocking_wait_the_thread_waits_for_the_device() {
    in_double("with_blocking_wait_the_thread_waits_for_the_device", || {
        let nccl = Some(NcclOptions::default().blocking_wait(true));
        nccl_ranks(2, &NcclSetup { nccl, ..NcclSetup::default() }, |group| {
            contract::with_blocking_wait_the_thread_waits_for_the_device(&group);
        });
    });
}

#[test]
fn calls_without_tensors_need_a_device_to_run_on() {
    in_double("calls_without_tensors_need_a_device_to_run_on", || {
        nccl_ranks(2, &NcclSetup { bound: true, ..NcclSetup::default() }, |group| {
            contract::calls_without_tensors_need_a_device_to_run_on(&group);
        });
    });
}
