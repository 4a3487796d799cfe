//! The model by hand-reckoned figures, and the cost by figures against the simulation.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::generated::collective::{Blocks, Collective};
use crate::schedule::Topology;
use crate::schedule::select::{CallSize, Overrides, Selector};

/// Round figures, to be reckoned with by hand: 10 s latency, 1 s overhead, 1 s a byte.
const ROUND: LinkCosts = LinkCosts {
    within: Link { latency_s: 10.0, overhead_s: 1.0, byte_s: 1.0 },
    between: Link { latency_s: 1000.0, overhead_s: 1.0, byte_s: 1.0 },
    wire_byte_s: 0.0,
    local_byte_s: 0.0,
    crowd_s: 0.0,
    segment_bytes: 4.0,
    wake_s: 1.0,
    awake_s: 1.0,
    cores: f64::INFINITY,
};

fn schedules(collective: Collective, algorithm: usize, on: &Topology) -> Vec<Schedule> {
    collective.algorithms()[algorithm].schedules(0, on)
}

fn named(collective: Collective, name: &str, size: u32) -> Vec<Schedule> {
    let found = collective.algorithms().iter().position(|known| known.name == name);
    schedules(collective, found.unwrap(), &Topology::one_host(size))
}

fn simulated(schedules: &[Schedule], block_bytes: f64, link_costs: &LinkCosts) -> f64 {
    simulate(schedules, block_bytes, link_costs, &Topology::one_host(schedules.len() as u32))
        .unwrap()
}

#[test]
fn one_message_takes_overhead_latency_and_its_bytes() {
    let pair = named(Collective::Broadcast, "binomial", 2);
    assert_eq!(simulated(&pair, 100.0, &ROUND), 1.0 + 10.0 + 100.0);
}

#[test]
fn a_sender_sends_one_byte_at_a_time() {
    // The last of three messages leaves after three overheads and the bytes of the first two.
    let all = named(Collective::Reduce, "linear", 4);
    let to_root = simulated(&all, 100.0, &ROUND);
    assert!((311.0..=330.0).contains(&to_root), "{to_root}");
    let all = named(Collective::Scatter, "linear", 4);
    assert_eq!(simulated(&all, 100.0, &ROUND), 3.0 + 10.0 + 300.0);
}

#[test]
fn segments_of_a_chain_overlap() {
    let chain = named(Collective::Broadcast, "chain", 5);
    let once = simulated(&named(Collective::Broadcast, "chain", 2), 1000.0, &ROUND);
    let whole = simulated(&chain, 1000.0, &ROUND);
    // Three more hops cost a latency, an overhead and a segment each, not the tensor again.
    assert!(whole > once && whole <= once + 3.0 * (10.0 + 1.0 + 2.0 * 4.0), "{whole} {once}");
}

#[test]
fn links_may_differ() {
    let ring = named(Collective::Allgather, "ring", 4);
    let near = simulated(&ring, 1.0, &ROUND);
    let apart = simulate(&ring, 1.0, &ROUND, &Topology::blocks(2, 2)).unwrap();
    assert!(apart > near + 1000.0 && apart < near + 3000.0, "{apart} {near}");
}

#[test]
fn schedules_that_do_not_fit_have_no_cost() {
    let ring = named(Collective::Allgather, "ring", 4);
    assert_eq!(simulate(&ring[..3], 1.0, &ROUND, &Topology::one_host(3)), None);
    assert_eq!(rounds(&ring[..3]), None);
    assert_eq!(Traffic::of(&ring[1..], 4), None);
}

#[test]
fn ranks_that_share_cores_do_all_the_work_on_these() {
    let on = Topology::one_host(16);
    let shared = |cores: f64| LinkCosts { cores, local_byte_s: 0.1e-9, ..LinkCosts::LOOPBACK };
    for collective in Collective::ALL {
        for algorithm in collective.algorithms() {
            let load = (algorithm.load)(&on);
            for bytes in [0.0, 4.0, 1e6] {
                let cost = |cores| load.cost(bytes, &shared(cores));
                let name = algorithm.name;
                assert_eq!(cost(16.0), cost(f64::INFINITY), "{name}: a core for each");
                let costs = [16.0, 15.0, 8.0, 2.0, 1.0].map(cost);
                assert!(costs.is_sorted(), "{collective:?} {name} of {bytes}: {costs:?}");
            }
        }
    }
    // By hand: a tree of 16 ranks has 15 messages, four of them on the longest path.
    let tree = Load::of([Phase::host(crate::schedule::figures::binomial(16, false), &on)]);
    let Link { latency_s, overhead_s, byte_s } = LinkCosts::LOOPBACK.within;
    let path = 4.0 * (latency_s + overhead_s + 1000.0 * byte_s);
    let work = 15.0 * (3.0 * overhead_s + 2.0 * 1000.0 * byte_s);
    for (cores, others) in [(1.0, 15.0), (2.0, 7.0)] {
        let looks = 4.0 * 2.0 * overhead_s * others;
        let awake = LinkCosts { awake_s: 1.0, ..shared(cores) };
        let seconds = path + work / cores + looks;
        assert!((tree.cost(1000.0, &awake) - seconds).abs() < 1e-12, "{cores}");
        // All wait for a first message, and inner ranks for those of several children at once.
        let asleep = LinkCosts { awake_s: 0.0, ..awake };
        let wakes = 15.0 * awake.wake_s / cores;
        assert!((tree.cost(1000.0, &asleep) - seconds - wakes).abs() < 1e-12, "{cores}");
    }
}

#[test]
fn the_choice_by_cost_is_near_the_best_by_simulation() {
    let hosts = |size, per_host: u32| Topology::by_host((0..size).map(|rank| rank / per_host));
    for collective in Collective::ALL {
        for size in [2, 3, 4, 5, 8, 13, 16, 32] {
            for on in [hosts(size, size), hosts(size, 4), hosts(size, 1)] {
                // Of messages from all to all the simulation only knows the worst order on a wire.
                if on.hosts() > 1 && collective == Collective::Alltoall {
                    continue;
                }
                for bytes in [0u64, 4, 1 << 10, 1 << 16, 1 << 20, 1 << 26] {
                    compare(collective, &on, bytes);
                }
            }
        }
    }
}

/// That the choice by cost takes at most twice the time of the best in the simulation; three times
/// between hosts, where the simulation lets a message wait until the wires of both hosts are free.
fn compare(collective: Collective, on: &Topology, bytes: u64) {
    let facts = collective.facts();
    let many = facts.input == Blocks::All || facts.output == Blocks::All;
    let block_bytes = bytes as f64 / if many { f64::from(on.size()) } else { 1.0 };
    let link_costs = LinkCosts::LOOPBACK;
    let seconds: Vec<f64> = (0..collective.algorithms().len())
        .map(|way| schedules(collective, way, on))
        .map(|all| simulate(&all, block_bytes, &link_costs, on).unwrap())
        .collect();
    let limit = if on.hosts() == 1 { 2.0 } else { 3.0 };
    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let selector = Selector::new(on, &link_costs, Overrides::none());
    let known = CallSize { bytes: Some(bytes), equal_blocks: true };
    let chosen = selector.choose(collective, known);
    let costs = collective.algorithms().iter().zip(&seconds).enumerate();
    let table: Vec<_> = costs
        .map(|(way, (algorithm, seconds))| {
            (algorithm.name, seconds * 1e6, selector.cost(collective, way, bytes) * 1e6)
        })
        .collect();
    assert!(
        seconds[chosen] <= limit * best,
        "{} of {bytes} bytes, {} ranks on {} hosts: chose {} of (name, simulated, by figures) \
         {table:?}",
        facts.name,
        on.size(),
        on.hosts(),
        table[chosen].0
    );
}
