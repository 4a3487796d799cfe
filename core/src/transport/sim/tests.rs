//! The imagined network: what the seed decides, deaths, and the order of frames.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::{Options, Simulation};
use crate::transport::suite::world::{Event, World, memory, message, sim};
use crate::transport::{LossReason, Payload, Rank};

/// All events of a group in which everybody sends to everybody, and rank 2 may die.
fn run(seed: u64, death: Option<(Rank, u64)>) -> Vec<String> {
    let options = Options { seed, death, ..Options::default() };
    let (simulation, transports) = Simulation::new(4, &options);
    let simulation = Arc::new(simulation);
    let clock = simulation.clone();
    let idle = move || {
        clock.step();
    };
    let mut world = World::new(transports, Box::new(idle));
    for number in 0..10 {
        for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
            if from != to {
                world.send(from, to, number, (number * 1000) as usize);
            }
        }
    }
    world.drive_a_while();
    if death.is_none() {
        world.check_order_and_contents();
    }
    world.events.iter().map(|event| format!("{event:?}")).collect()
}

#[test]
fn the_seed_decides_everything() {
    for seed in 0..5 {
        assert_eq!(run(seed, None), run(seed, None), "seed {seed}");
        let death = Some((2, 50_000));
        assert_eq!(run(seed, death), run(seed, death), "seed {seed}");
    }
    assert_ne!(run(0, None), run(1, None));
}

#[test]
fn everybody_hears_of_a_death_once_and_after_what_came_before() {
    for seed in 0..20 {
        let mut world = dying(seed);
        world.drive_a_while();
        for rank in [0, 1, 3] {
            let lost = world.lost(rank, 2);
            assert!(matches!(&lost[..], [LossReason::Died(_)]), "seed {seed}: {lost:?}");
            let end = |event: &Event| matches!(event, Event::Lost { rank: at, .. } if *at == rank);
            let place = world.events.iter().position(end).unwrap();
            let late = world.events[place..].iter().filter(
                |event| matches!(event, Event::Arrived { rank: at, peer: 2, .. } if *at == rank),
            );
            assert_eq!(late.count(), 0, "seed {seed}");
            let numbers = world.arrived(rank, 2).into_iter().map(|it| it.0.message);
            assert!(numbers.eq(0..world.arrived(rank, 2).len() as u32), "seed {seed}");
        }
    }
}

/// A group in which rank 2 sends to all others and dies after a while.
fn dying(seed: u64) -> World {
    let options = Options { seed, death: Some((2, 60_000 + seed * 3_000)), ..Options::default() };
    let (simulation, transports) = Simulation::new(4, &options);
    let idle = move || {
        simulation.step();
    };
    let mut world = World::new(transports, Box::new(idle));
    for number in 0..50 {
        for to in [0, 1, 3] {
            world.send(2, to, number, 5_000);
        }
    }
    world
}

#[test]
fn payloads_are_read_when_they_depart() {
    let mut world = sim(2, 3);
    let (region, _) = memory(10);
    world.send_payload(0, 1, message(0, 10), Payload::Region(region.clone()));
    region.write(|memory| memory.fill(8));
    world.drive_until_all_arrived();
    assert_eq!(world.arrived(1, 0)[0].1.as_deref(), Some(&[8; 10][..]));
}

#[test]
fn frames_of_different_pairs_overtake_one_another() {
    let overtakes = (0..20).filter(|seed| {
        let mut world = sim(3, *seed);
        world.send(0, 2, 0, 1);
        world.send(1, 2, 0, 1);
        world.drive_until_all_arrived();
        let first = world.events.iter().find_map(|event| match event {
            Event::Arrived { peer, .. } => Some(*peer),
            _ => None,
        });
        first == Some(1)
    });
    let overtakes = overtakes.count();
    assert!((1..20).contains(&overtakes), "{overtakes} of 20");
}
