//! What happens to replicas, when and to whom: from a seed. Knows not how they take it.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::replica::Replica;

/// The shortest and the longest time between two events.
const BETWEEN: [u64; 2] = [2_000, 5_000];
/// How long a replica is stopped, ms: shorter than the lighthouse notices, and longer than an
/// operation is waited for.
const STOPPED: [u64; 2] = [300, 7_000];
/// How much longer a slow replica's steps are, ms.
const SLOWER: [u64; 2] = [50, 400];
/// How long it is slow, ms.
const SLOW: [u64; 2] = [1_000, 6_000];
/// So many replicas train in any case: with one alone nobody could be healed.
const MIN_RUNNING: usize = 2;

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Kill,
    Stop,
    Slow,
    Add,
}

impl EventKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            EventKind::Kill => "kill -9",
            EventKind::Stop => "stop",
            EventKind::Slow => "slow",
            EventKind::Add => "add",
        }
    }
}

/// What happens to the replica of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) number: usize,
}

/// Numbers from a seed: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let at = self.next() % (all.len() as u64).max(1);
        all.get(at as usize).copied()
    }
}

/// The end of what happens to a replica.
struct Undo {
    at: Instant,
    number: usize,
    /// The process to which it happened.
    id: u32,
}

/// Thinks of what happens next.
pub(super) struct Disturber {
    chance: Chance,
    events: u32,
    left: u32,
    next_event: Instant,
    undos: Vec<Undo>,
}

impl Disturber {
    pub(super) fn new(mut chance: Chance, events: u32) -> Disturber {
        let next_event = Instant::now() + Duration::from_millis(chance.between(BETWEEN));
        Disturber { chance, events, left: events, next_event, undos: Vec::new() }
    }

    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// When there is something to do; none at the end.
    pub(super) fn next(&self) -> Option<Instant> {
        let event = (self.left > 0).then_some(self.next_event);
        self.undos.iter().map(|undo| undo.at).chain(event).min()
    }

    /// Does what it is time for. The caller starts what is to be added.
    ///
    /// Times are those that were planned, whatever the clock says by now: so a seed has the same
    /// events each time.
    ///
    /// # Errors
    /// A process that should be there is gone.
    pub(super) fn act(&mut self, replicas: &mut [Option<Replica>]) -> Result<Option<Event>> {
        let first = self.undos.iter().enumerate().min_by_key(|(_, undo)| undo.at);
        let first = first.filter(|(_, undo)| self.left == 0 || undo.at <= self.next_event);
        if let Some((at, _)) = first {
            let undo = self.undos.swap_remove(at);
            let found = replicas[undo.number].as_mut().filter(|replica| replica.id == undo.id);
            if let Some(replica) = found {
                replica.release()?;
            }
            return Ok(None);
        }
        let event = self.choose(replicas);
        let replica = &mut replicas[event.number];
        match event.kind {
            EventKind::Kill => drop(replica.take()),
            EventKind::Stop => self.hold(replica, None)?,
            EventKind::Slow => {
                let slower = self.chance.between(SLOWER);
                self.hold(replica, Some(slower))?;
            }
            EventKind::Add => {}
        }
        self.left -= 1;
        self.next_event += Duration::from_millis(self.chance.between(BETWEEN));
        Ok(Some(event))
    }

    /// Stops it, or slows it by so many milliseconds, for a while.
    fn hold(&mut self, replica: &mut Option<Replica>, slower: Option<u64>) -> Result<()> {
        let time = self.chance.between(if slower.is_some() { SLOW } else { STOPPED });
        let Some(replica) = replica else { return Ok(()) };
        replica.hold(slower)?;
        let at = self.next_event + Duration::from_millis(time);
        self.undos.push(Undo { at, number: replica.number, id: replica.id });
        Ok(())
    }

    /// A kind of event that is possible, and somebody to whom it happens.
    fn choose(&mut self, replicas: &[Option<Replica>]) -> Event {
        let numbers = |is_it: &dyn Fn(&Option<Replica>) -> bool| {
            let all = replicas.iter().enumerate().filter(|(_, replica)| is_it(replica));
            all.map(|(number, _)| number).collect::<Vec<usize>>()
        };
        let running = numbers(&|replica| replica.as_ref().is_some_and(|it| !it.is_held()));
        let missing = numbers(&|replica| replica.is_none());
        let mut possible = Vec::new();
        if running.len() > MIN_RUNNING {
            // There is one: it was just counted.
            let number = self.chance.one_of(&running).unwrap_or_default();
            let kinds = [EventKind::Kill, EventKind::Kill, EventKind::Stop, EventKind::Slow];
            possible.extend(kinds.map(|kind| Event { kind, number }));
        }
        // The more are missing, the sooner one comes.
        possible.extend(
            missing.iter().flat_map(|number| [Event { kind: EventKind::Add, number: *number }; 2]),
        );
        // All but two are held, and none is missing.
        let first = running.first().copied().unwrap_or_default();
        let slowed = Event { kind: EventKind::Slow, number: first };
        self.chance.one_of(&possible).unwrap_or(slowed)
    }
}
