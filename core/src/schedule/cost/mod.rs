//! What schedules cost: an estimate by a few figures of an algorithm ([`Load`]), and a simulation
//! of all
//! ranks' schedules (`simulate`). Knows no collective; seconds are model seconds, nothing here
//! reads a clock.
//!
//! The model is LogGP's: a message occupies its sender and its receiver for an overhead and a time
//! per byte, and arrives a latency later. Messages are cut into segments, which overlap where one
//! step hands on what another is still receiving. Ranks of one host reach each other over one class
//! of link and other hosts over another, and share their host's wire.
//! Where ranks share cores, what all of them do together counts besides ([`Load::cost`]), which the
//! simulation leaves out.
//! Alexandrov, Ionescu, Schauser, Scheiman: LogGP (1995).

mod calibration;
mod link_costs;
mod load;
mod simulate;

#[cfg(test)]
mod tests;

pub use calibration::{Calibration, CalibrationError, MAX_CALIBRATION_BYTES, Sample};
pub use link_costs::{Link, LinkClass, LinkCosts};
pub use load::{Average, LinkScope, Load, Phase, Traffic};
pub use simulate::simulate;
pub(super) use simulate::simulate_steps;

use super::walk::{Event, StepId, Walk};
use super::{Action, Chunk, Schedule};

/// The number of messages that follow one another on the longest path through the schedules of all
/// ranks; none if they do not fit together.
pub fn rounds(schedules: &[Schedule]) -> Option<u32> {
    let walk = Walk::new(schedules).ok()?;
    let order = walk.order().ok()?;
    Some(depths(&walk, &order).into_iter().max().unwrap_or(0))
}

/// For each step, the messages that follow one another until it has ended, its own among them if
/// it receives.
pub(super) fn depths(walk: &Walk, order: &[(StepId, Event)]) -> Vec<u32> {
    let mut depths = vec![0; walk.steps()];
    for &(at, event) in order {
        let own = walk.index(at);
        let step = &walk.schedules[at.rank as usize].steps[at.step as usize];
        match event {
            Event::Start => {
                let before = step.after.iter().map(|&step| walk.index(StepId { step, ..at }));
                depths[own] = before.map(|before| depths[before]).max().unwrap_or(0);
            }
            Event::Finish if step.action.sender().is_some() => {
                let sent = walk.partner(at).map_or(0, |partner| depths[walk.index(partner)]);
                depths[own] = depths[own].max(sent + 1);
            }
            Event::Finish => {}
        }
    }
    depths
}

/// Whether segments of a step may overlap with those of an earlier one.
pub(super) fn overlap(earlier: &Action, later: &Action) -> bool {
    let same = |a: Chunk| !a.is_nothing() && later.chunks().any(|b| a == b);
    earlier.chunks().any(same)
}

/// How many blocks' worth a step moves.
fn blocks_moved(schedule: &Schedule, action: &Action) -> f64 {
    let chunk = action.chunks().last().unwrap_or(Chunk::NOTHING);
    f64::from(schedule.times(&chunk)) * f64::from(chunk.count) / f64::from(chunk.parts)
}
