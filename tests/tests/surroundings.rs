//! What a Rust program asks of its surroundings: its launcher, its backends, a store's address.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use polyrank::distributed as dist;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Device, Error};
use polyrank_tests::processes::processes;

#[test]
fn backends_are_available_or_there_is_a_reason() {
    assert!(dist::is_available() && dist::is_gloo_available());
    assert!(!dist::is_ucc_available() && !dist::is_xccl_available());
    let answers = [
        ("mpi", dist::is_mpi_available()),
        ("nccl", dist::is_nccl_available()),
        ("tcp", dist::is_gloo_available()),
    ];
    for (name, is_available) in answers {
        assert_eq!(dist::is_backend_available(name), is_available, "{name}");
        assert_eq!(dist::backend_unavailable_reason(name).is_none(), is_available, "{name}");
    }
}

#[test]
fn devices_have_their_backends() {
    assert_eq!(dist::get_default_backend_for_device(Device::Cpu), "tcp");
    assert_eq!(dist::get_default_backend_for_device(Device::Cuda(1)), "nccl");
}

#[test]
fn a_process_of_a_launcher_knows_it() {
    let ended = processes("a_process_of_a_launcher_knows_it", 2, |group| {
        let local = dist::get_node_local_rank(Some(9)).unwrap();
        assert!(local == 9 || local == group.rank() as i32);
    });
    for rank in ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
    // This one was started by a test runner, its ranks by the launcher.
    assert!(!dist::is_launched());
    assert_eq!(dist::get_node_local_rank(Some(5)).unwrap(), 5);
    assert!(matches!(dist::get_node_local_rank(None), Err(Error::Rendezvous { .. })));
}

#[test]
fn a_store_has_an_address() {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).wait_for_workers(false);
    let server = TcpStore::new(options).unwrap();
    let limit = Duration::from_secs(30);
    let address = format!("127.0.0.1:{}/jobs/7", server.port());
    let client = dist::create_store_client(&address, limit).unwrap();
    client.set("key", b"value").unwrap();
    assert_eq!(server.get("jobs/7/key").unwrap(), b"value");
    let whole = dist::create_store_client(&format!("127.0.0.1:{}", server.port()), limit).unwrap();
    assert_eq!(whole.get("jobs/7/key").unwrap(), b"value");
    let Err(error) = dist::create_store_client("127.0.0.1", limit) else {
        panic!("an address without a port was accepted");
    };
    assert!(error.to_string().contains("host:port/prefix"), "{error}");
}

#[test]
fn what_a_build_has_is_what_can_be_used() {
    let info = dist::build_info();
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert!(info.target.starts_with(std::env::consts::ARCH), "{}", info.target);
    assert!(info.features.contains(&"tcp") && info.features.contains(&"websocket"));
    for backend in &info.backends {
        let reason = dist::backend_unavailable_reason(backend.name);
        assert_eq!(backend.unavailable, reason, "{}", backend.name);
        assert_eq!(backend.devices[0], if backend.name == "nccl" { "cuda" } else { "cpu" });
    }
    let names: Vec<&str> = info.backends.iter().map(|it| it.name).collect();
    assert_eq!(names, ["tcp", "nccl", "mpi", "websocket", "fake"]);
}

#[test]
fn what_is_recommended_can_be_used_and_has_a_reason() {
    let recommended = dist::recommend_backend();
    for (_, backend) in &recommended.backend.devices {
        assert!(dist::is_backend_available(backend.as_str()), "{recommended:?}");
    }
    assert!(recommended.reason.len() > 20, "{recommended:?}");
}
