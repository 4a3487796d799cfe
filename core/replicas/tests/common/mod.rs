//! A lighthouse of its own for each test, and replicas whose ranks are threads.
#![allow(dead_code, reason = "each suite uses its part")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyrank::ReduceOp;
use polyrank::store::{TcpStore, TcpStoreOptions};
use polyrank_quorum::{Lighthouse, LighthouseOptions};
use polyrank_replicas::{Manager, ManagerOptions, StartQuorum};

/// How long anything may take that does not fail.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long a quorum is waited for that does not come.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

pub(crate) fn lighthouse_at(address: SocketAddr, min_replicas: usize) -> Lighthouse {
    let mut options = LighthouseOptions {
        address,
        quorum_tick: Duration::from_millis(5),
        ..LighthouseOptions::default()
    };
    options.quorum.min_replicas = min_replicas;
    options.quorum.heartbeat_timeout = Duration::from_secs(2);
    Lighthouse::start(options).unwrap()
}

/// For lighthouses one after the other at one port: an address at which no other test listens,
/// and from which none connects.
pub(crate) fn own_address() -> SocketAddr {
    // On macOS only the usual one is this host's.
    let host = if cfg!(target_os = "macos") { [127, 0, 0, 1] } else { [127, 0, 0, 28] };
    SocketAddr::from((host, 0))
}

/// Does it again and again until it says that it is over; fails if that takes too long.
pub(crate) fn until(mut is_over: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT * 2;
    while !is_over() {
        assert!(Instant::now() < end, "not over after {:?}", LIMIT * 2);
    }
}

pub(crate) fn lighthouse(min_replicas: usize) -> Lighthouse {
    lighthouse_at(SocketAddr::from(([127, 0, 0, 1], 0)), min_replicas)
}

pub(crate) fn options(lighthouse: &Lighthouse, name: &str) -> ManagerOptions {
    let address = lighthouse.address().to_string();
    ManagerOptions::new(1).lighthouse(address).replica_id(name).timeout(LIMIT)
}

pub(crate) fn server() -> TcpStore {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
    TcpStore::new(options.wait_for_workers(false)).unwrap()
}

/// A rank of a replica: what it trains, and its manager.
pub(crate) struct Rank {
    pub(crate) replica: usize,
    pub(crate) group_rank: u32,
    pub(crate) model: Arc<Mutex<Vec<f64>>>,
    pub(crate) manager: Manager,
}

impl Rank {
    pub(crate) fn new(options: ManagerOptions, replica: usize, weights: Vec<f64>) -> Rank {
        let group_rank = options.group_rank.unwrap_or(0);
        let model = Arc::new(Mutex::new(weights));
        let manager = Manager::new(options).unwrap();
        manager.register_model("model", model.clone()).unwrap();
        Rank { replica, group_rank, model, manager }
    }

    pub(crate) fn weights(&self) -> Vec<f64> {
        self.model.lock().unwrap().clone()
    }

    /// One step with these slopes; whether it was committed.
    pub(crate) fn step(&self, slopes: &[f64]) -> bool {
        self.manager.start_quorum(StartQuorum::default()).unwrap();
        self.finish(slopes)
    }

    /// What follows a quorum that was asked for.
    pub(crate) fn finish(&self, slopes: &[f64]) -> bool {
        let mut mean = slopes.to_vec();
        self.manager.allreduce(&mut mean, ReduceOp::Avg).unwrap();
        let is_committed = self.manager.should_commit(None).unwrap();
        if is_committed {
            let mut model = self.model.lock().unwrap();
            model.iter_mut().zip(mean).for_each(|(weight, slope)| *weight += slope);
        }
        is_committed
    }

    /// As [`Rank::step`], again and again until it is committed.
    pub(crate) fn commit(&self, slopes: &[f64]) {
        until(|| self.step(slopes));
    }
}

/// Runs `body` on a thread for each rank of each replica; what it gives, by replica and rank.
pub(crate) fn replicas<T: Send>(
    lighthouse: &Lighthouse,
    (count, world_size): (usize, u32),
    adapt: impl Fn(usize, ManagerOptions) -> ManagerOptions + Sync,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<Vec<T>> {
    let (adapt, body) = (&adapt, &body);
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for replica in 0..count {
            let store = Arc::new(server());
            let ranks: Vec<_> = (0..world_size)
                .map(|group_rank| {
                    let mut options = options(lighthouse, &format!("replica-{replica}"));
                    if world_size > 1 {
                        let address = format!("127.0.0.1:{}", store.port());
                        options = options.store_address(address).group_world_size(world_size);
                    }
                    let options = adapt(replica, options.group_rank(group_rank));
                    let store = store.clone();
                    scope.spawn(move || {
                        let rank = Rank::new(options, replica, first(replica, group_rank));
                        let outcome = body(&rank);
                        rank.manager.shutdown().unwrap();
                        drop(store);
                        outcome
                    })
                })
                .collect();
            started.push(ranks);
        }
        let joined = started
            .into_iter()
            .map(|ranks| ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<T>>());
        joined.collect()
    })
}

/// What a rank begins with; no two are alike.
pub(crate) fn first(replica: usize, group_rank: u32) -> Vec<f64> {
    vec![100.0 * (replica + 1) as f64 + f64::from(group_rank), 0.5]
}

/// What a rank has computed in a step.
pub(crate) fn slopes(replica: usize, group_rank: u32, step: i64) -> Vec<f64> {
    let step = step as f64;
    vec![(replica + 1) as f64 * (step + 1.0), step * 16.0 + f64::from(group_rank)]
}

pub(crate) fn bits(weights: &[f64]) -> Vec<u64> {
    weights.iter().map(|weight| weight.to_bits()).collect()
}
