//! What each replica of a job is: a job with a place among the others. Knows nothing of processes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Instant;

use polyrank::env::variable;

use super::super::arguments::job::{Job, ReplicaPlace};
use super::super::arguments::parts::visible_devices;
use super::place::Place;

/// A replica.
pub(super) struct ReplicaJob {
    pub(super) number: u32,
    pub(super) job: Job,
    /// When it must have ended.
    pub(super) deadline: Option<Instant>,
}

/// The replicas of `job` on this host.
pub(super) fn of_place(job: &Job, here: &Place, deadline: Option<Instant>) -> Vec<ReplicaJob> {
    let Place { run_id, lighthouse, .. } = here;
    let devices = visible_devices();
    let of_replica = |index: u32| {
        let place = ReplicaPlace { number: here.first + index, count: here.count };
        let mut variables: Vec<(OsString, OsString)> = vec![
            (variable::TORCHFT_LIGHTHOUSE.name().into(), lighthouse.into()),
            (variable::REPLICA_GROUP_ID.name().into(), place.number.to_string().into()),
            (variable::NUM_REPLICA_GROUPS.name().into(), place.count.to_string().into()),
        ];
        let names = devices_of(&devices, index, here.here, job.local_world_size());
        variables.extend(names.map(|names| (variable::CUDA_VISIBLE_DEVICES.name().into(), names)));
        if here.here > 1 && !variable::OMP_NUM_THREADS.is_set() {
            // As for several ranks: each replica would otherwise take all cores.
            variables.push((variable::OMP_NUM_THREADS.name().into(), "1".into()));
        }
        if let Some(address) = &here.address {
            variables.push((variable::POLYRANK_MANAGER_HOST.name().into(), address.into()));
        }
        // What the user sets goes before what is set here.
        variables.extend(job.variables.iter().cloned());
        let job = Job {
            // Ranks of other replicas are in other stores, and may be on the same host.
            run_id: Some(format!("{run_id}-replica-{}", place.number)),
            replica: Some(place),
            replicas: None,
            // Replicas of other hosts look into its store.
            master_addr: here.address.clone().unwrap_or_else(|| job.master_addr.clone()),
            node_count: 1,
            node_rank: 0,
            meeting: None,
            record: None,
            metrics: job.metrics.map(|address| metrics_of(address, index)),
            variables,
            ..job.clone()
        };
        ReplicaJob { number: place.number, job, deadline }
    };
    (0..here.here).map(of_replica).collect()
}

/// The devices of one replica: each has its own where there are enough for all ranks, since ranks
/// choose theirs by `LOCAL_RANK`, which begins at 0 in every replica.
fn devices_of(devices: &[String], index: u32, count: u32, ranks: u32) -> Option<OsString> {
    let ranks = ranks as usize;
    let is_enough = count > 1 && devices.len() >= ranks * count as usize;
    let first = index as usize * ranks;
    is_enough.then(|| devices[first..first + ranks].join(",").into())
}

/// Where the statistics of a replica are served: at a port of its own.
fn metrics_of(address: SocketAddr, index: u32) -> SocketAddr {
    let port = match address.port() {
        0 => 0,
        port => port.saturating_add(index as u16),
    };
    SocketAddr::new(address.ip(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_share_devices_only_where_there_are_not_enough() {
        let devices: Vec<String> = ["0", "GPU-b", "2", "3", "4"].map(str::to_owned).to_vec();
        assert_eq!(devices_of(&devices, 0, 2, 2), Some("0,GPU-b".into()));
        assert_eq!(devices_of(&devices, 1, 2, 2), Some("2,3".into()));
        assert_eq!(devices_of(&devices, 1, 3, 2), None);
        assert_eq!(devices_of(&devices, 0, 1, 2), None);
        assert_eq!(devices_of(&[], 0, 2, 1), None);
    }
}
