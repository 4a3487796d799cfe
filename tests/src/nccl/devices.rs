//! Ranks over NCCL on the devices of this host, each a process; over the double where there are no
//! devices. NCCL takes one rank of a host for each device; where there are more ranks, they say
//! that they are on different hosts (`NCCL_HOSTID`), share a device, and NCCL moves everything over
//! sockets.

use std::process::Output;

use polyrank::backend::nccl;
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{Device, ProcessGroup};

use super::{NcclSetup, device_of, launch, with_double};
use crate::languages::{Language, Program};
use crate::processes::{ProcessEnd, bare_processes, is_rank, with_variable};

/// Runs `rank_main` on so many ranks, which must all end well. `test` is the full name of the
/// calling test.
pub fn device_ranks(
    test: &str,
    size: u32,
    made: &NcclSetup,
    rank_main: impl FnOnce(&ProcessGroup),
) {
    let ended = device_processes(test, size, made, rank_main);
    let failed = ended.iter().enumerate().filter(|(_, ended)| ended.code != Some(0));
    let told = failed.map(|(rank, ended)| {
        let ProcessEnd { code, signal, output, .. } = ended;
        format!("rank {rank} of {size} ended with {code:?}, signal {signal:?}:\n{output}\n")
    });
    let told: String = told.collect();
    assert!(told.is_empty(), "{told}");
}

/// As [`device_ranks`]; how each ended, by rank. Nothing in a rank of a world of another size.
pub fn device_processes(
    test: &str,
    size: u32,
    made: &NcclSetup,
    rank_main: impl FnOnce(&ProcessGroup),
) -> Vec<ProcessEnd> {
    // A test may have worlds of several sizes, each of ranks of its own.
    let is_of = |size: u32| std::env::var("WORLD_SIZE").is_ok_and(|text| text == size.to_string());
    if is_rank() && !is_of(size) {
        return Vec::new();
    }
    with_variable("NCCL_HOSTID", "host of {rank}", || {
        with_nccl(|| bare_processes(test, size, || run_rank(made, rank_main)))
    })
}

/// Runs a program of several languages on the first device of this host. `None`, after saying so,
/// where a language is missing.
pub fn device_job(program: Program, parts: &[(Language, u32)]) -> Option<Output> {
    let before = ["sh", "-c", "NCCL_HOSTID=\"host of $RANK\" exec \"$@\"", "sh"];
    with_nccl(|| launch(program, parts, &before, "cuda:0"))
}

/// Whether this host has NCCL and a device.
pub fn has_device() -> bool {
    nccl::available().is_ok()
}

/// Runs `run`, whose processes find NCCL, or its double where there is none.
fn with_nccl<R>(run: impl FnOnce() -> R) -> R {
    if is_rank() || has_device() { run() } else { with_double(run) }
}

fn run_rank(made: &NcclSetup, rank_main: impl FnOnce(&ProcessGroup)) {
    let mut options = InitOptions::default().backend(made.backend).timeout(made.timeout);
    options.backend_options = made.nccl.clone().map(Into::into);
    if made.bound {
        let rank = std::env::var("RANK").ok().and_then(|rank| rank.parse().ok());
        options = options.device(Device::Cuda(device_of(rank.expect("a rank knows its number"))));
    }
    let group = init_process_group(options).expect("the group is made");
    rank_main(&group);
    destroy_process_group(None).expect("the group is destroyed");
}
