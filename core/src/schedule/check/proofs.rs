//! Proves every algorithm of every collective for many world sizes and roots, and compares the
//! figures that algorithms state to those of their schedules.

#![allow(clippy::unwrap_used)]

use super::check;
use crate::generated::collective::{Blocks, Collective};
use crate::schedule::cost::{Average, LinkScope, Traffic};
use crate::schedule::{Build, Rank, Topology};

fn prove(collective: Collective, on: &Topology, roots: &[Rank]) {
    let roots = if collective.facts().rooted { roots } else { &[0] };
    for algorithm in collective.algorithms() {
        // Flat algorithms are the same wherever the ranks are.
        if on.hosts() > 1 && !matches!(algorithm.build, Build::ByHost(_)) {
            continue;
        }
        for &root in roots {
            if let Err(flaw) = check(collective.contract(), algorithm, root, on) {
                let (name, way, size) = (collective.facts().name, algorithm.name, on.size());
                panic!("{name} by {way}, {size} ranks, root {root}, {on:?}: {flaw}");
            }
        }
    }
}

/// Ways in which ranks can lie on hosts: in blocks, dealt out, and with a host that has fewer.
fn topologies(size: u32) -> Vec<Topology> {
    let by = |host: &dyn Fn(u32) -> u32| Topology::by_host((0..size).map(host));
    let mut all = vec![Topology::one_host(size)];
    for ranks in [1, 2, 3, 4, 8].into_iter().filter(|&ranks| ranks < size) {
        all.push(by(&|rank| rank / ranks));
    }
    for hosts in [2, 3, 4].into_iter().filter(|&hosts| hosts < size) {
        all.push(by(&|rank| rank % hosts));
        all.push(by(&|rank| if rank < size / 3 { 0 } else { 1 + rank % (hosts - 1) }));
    }
    all
}

fn prove_all_roots(collective: Collective) {
    for size in 1..=64 {
        prove(collective, &Topology::one_host(size), &(0..size).collect::<Vec<_>>());
    }
    for on in (2..=24).chain([32, 33, 64]).flat_map(topologies).filter(|on| on.hosts() > 1) {
        prove(collective, &on, &[0, on.size() / 2]);
    }
    for size in [127, 128, 129, 255, 256, 257] {
        prove(collective, &Topology::one_host(size), &[0, 1, size / 2, size - 1]);
    }
    for on in [Topology::blocks(16, 8), Topology::by_host((0..129).map(|rank| rank % 9))] {
        prove(collective, &on, &[0, on.size() - 1]);
    }
}

#[test]
fn allreduce() {
    prove_all_roots(Collective::Allreduce);
}

#[test]
fn reduce() {
    prove_all_roots(Collective::Reduce);
}

#[test]
fn broadcast() {
    prove_all_roots(Collective::Broadcast);
}

#[test]
fn everything_else() {
    let others = Collective::ALL.into_iter().filter(|collective| {
        let own = [Collective::Allreduce, Collective::Reduce, Collective::Broadcast];
        !own.contains(collective)
    });
    others.for_each(prove_all_roots);
}

fn blocks(collective: Collective, size: u32) -> u32 {
    let facts = collective.facts();
    let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
    if many(facts.input) || many(facts.output) { size } else { 1 }
}

#[test]
fn stated_figures_are_those_of_the_schedules() {
    for collective in Collective::ALL {
        for algorithm in collective.algorithms() {
            for size in (1..=33).chain([64, 127]) {
                let on = Topology::one_host(size);
                let schedules = algorithm.schedules(size / 2, &on);
                let found = Traffic::of(&schedules, blocks(collective, size)).unwrap();
                let stated = (algorithm.load)(&on).total();
                let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
                let same = (found.rounds, found.messages) == (stated.rounds, stated.messages)
                    && near(found.bytes, stated.bytes)
                    && near(found.message, stated.message)
                    && near(found.local, stated.local);
                // The busiest rank of one phase need not be that of the next.
                let bounded =
                    matches!(algorithm.build, Build::ByHost(_)) && bounds(&stated, &found);
                assert!(
                    (same || bounded) && bounds(&of_all(&stated), &of_all(&found)),
                    "{} by {}, {size} ranks: states {stated:?}, has {found:?}",
                    collective.facts().name,
                    algorithm.name,
                );
            }
        }
    }
}

/// What ranks send and reduce on average.
fn of_all(traffic: &Traffic) -> Traffic {
    let Average { messages, bytes, local } = traffic.average;
    Traffic {
        // In thousandths of a message.
        messages: (1000.0 * f64::from(traffic.messages) * messages).round() as u32,
        bytes: traffic.bytes * bytes,
        local: traffic.local * local,
        ..*traffic
    }
}

/// Whether `stated` is at least what was `found`, and not much more.
fn bounds(stated: &Traffic, found: &Traffic) -> bool {
    let near = |stated: f64, found: f64| found <= stated + 1e-9 && stated <= 3.0 * found + 1e-9;
    near(f64::from(stated.rounds), f64::from(found.rounds))
        && near(f64::from(stated.messages), f64::from(found.messages))
        && near(stated.bytes, found.bytes)
        && near(stated.message, found.message)
        && near(stated.local, found.local)
}

#[test]
fn what_goes_between_hosts_is_stated_within_bounds() {
    for collective in Collective::ALL {
        for algorithm in collective.algorithms() {
            for on in (2..=16).chain([32, 33]).flat_map(topologies) {
                let schedules = algorithm.schedules(0, &on);
                let blocks = f64::from(blocks(collective, on.size()));
                let mut sent = vec![0.0; on.hosts() as usize];
                for (rank, schedule) in (0..).zip(&schedules) {
                    for step in &schedule.steps {
                        let to = step.action.receiver().filter(|&to| !on.together(rank, to));
                        let Some(chunk) = to.and(step.action.reads().next()) else { continue };
                        let share = f64::from(chunk.count) / f64::from(chunk.parts);
                        let share = share * f64::from(schedule.times(&chunk)) / blocks;
                        sent[on.host_of(rank) as usize] += share;
                    }
                }
                let most = sent.into_iter().fold(0.0, f64::max);
                let load = (algorithm.load)(&on);
                let stated: f64 = load.host_bytes();
                let what = (collective.facts().name, algorithm.name, &on);
                assert!(most <= stated + 1e-9, "{what:?}: sends {most}, states {stated}");
                let only_host = load.phases.iter().all(|phase| phase.over == LinkScope::Host);
                assert!(!only_host || on.hosts() == 1 || most == 0.0, "{what:?}");
            }
        }
    }
}

#[test]
fn messages_peers_and_scratch_of_thousands_of_ranks_grow_as_stated() {
    // The algorithms for many ranks; 16 on each of 256 hosts for those that follow them.
    let on = Topology::blocks(256, 16);
    let doublings = 12;
    let most = |messages: u32, peers: usize, scratch: u32| (messages, peers, scratch);
    for (collective, name, limits) in [
        (Collective::Allreduce, "recursive_doubling", most(doublings, 12, 1)),
        (Collective::Allreduce, "circulant", most(4 * doublings, 24, 0)),
        (Collective::Allreduce, "double_tree", most(4, 5, 0)),
        (Collective::Allreduce, "hierarchical", most(8 + 4, 8 + 4, 1)),
        (Collective::Allreduce, "hierarchical_circulant", most(2 * 15 + 4 * 8, 15 + 16, 0)),
        (Collective::Broadcast, "binomial", most(doublings, 12, 0)),
        (Collective::Broadcast, "hierarchical", most(8 + 4, 8 + 4, 0)),
        (Collective::Reduce, "double_tree", most(2, 4, 1)),
        (Collective::Barrier, "dissemination", most(doublings, 24, 0)),
        (Collective::Barrier, "hierarchical", most(8 + 4, 16 + 4, 0)),
    ] {
        let found = collective.algorithms().iter().find(|algorithm| algorithm.name == name);
        let schedules = found.unwrap().schedules(0, &on);
        let total = (found.unwrap().load)(&on).total();
        for schedule in &schedules {
            let actions = || schedule.steps.iter().map(|step| step.action);
            let sent = actions().filter_map(|action| action.receiver()).count() as u32;
            let received = actions().filter_map(|action| action.sender()).count() as u32;
            let peers = actions().filter_map(|action| action.receiver().or(action.sender()));
            let peers = peers.collect::<std::collections::HashSet<_>>().len();
            let scratch: u32 = schedule.scratch.iter().map(|scratch| scratch.times).sum();
            let found = (sent.max(received), peers, scratch);
            assert!(
                found.0 <= limits.0 && found.1 <= limits.1 && found.2 <= limits.2,
                "{} by {name}: {found:?} (messages, peers, blocks of scratch), not {limits:?}",
                collective.facts().name,
            );
            assert!(found.0 <= total.messages, "{name}: {found:?}, states {total:?}");
        }
    }
}
