//! Proves every algorithm of every collective for many world sizes and roots, and compares the
//! figures that algorithms state to those of their schedules.

#![allow(clippy::unwrap_used)]

use super::check_schedules;
use crate::schedule::cost::Traffic;
use crate::schedule::{Algorithm, Place, Rank, Schedule};
use crate::{Blocks, Collective};

fn build(algorithm: &Algorithm, size: u32, root: Rank) -> Vec<Schedule> {
    (0..size).map(|rank| (algorithm.build)(Place { rank, size, root })).collect()
}

fn prove(collective: Collective, size: u32, roots: &[Rank]) {
    let roots = if collective.facts().rooted { roots } else { &[0] };
    for algorithm in collective.algorithms() {
        for &root in roots {
            let schedules = build(algorithm, size, root);
            if let Err(flaw) = check_schedules(collective.contract(), root, &schedules) {
                let (name, way) = (collective.facts().name, algorithm.name);
                panic!("{name} by {way}, {size} ranks, root {root}: {flaw}");
            }
        }
    }
}

fn prove_all_roots(collective: Collective) {
    for size in 1..=64 {
        prove(collective, size, &(0..size).collect::<Vec<_>>());
    }
    for size in [127, 128, 129, 255, 256, 257] {
        prove(collective, size, &[0, 1, size / 2, size - 1]);
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

#[test]
fn stated_figures_are_those_of_the_schedules() {
    for collective in Collective::ALL {
        let facts = collective.facts();
        let many = [facts.input, facts.output]
            .iter()
            .any(|blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot));
        for algorithm in collective.algorithms() {
            for size in (1..=33).chain([64, 127]) {
                let blocks = if many { size } else { 1 };
                let found = Traffic::of(&build(algorithm, size, size / 2), blocks).unwrap();
                let stated = (algorithm.traffic)(size);
                let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
                assert!(
                    (found.rounds, found.messages) == (stated.rounds, stated.messages)
                        && near(found.bytes, stated.bytes)
                        && near(found.message, stated.message)
                        && near(found.local, stated.local),
                    "{} by {}, {size} ranks: states {stated:?}, has {found:?}",
                    facts.name,
                    algorithm.name,
                );
            }
        }
    }
}
