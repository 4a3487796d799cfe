//! When each step of all ranks happens, by rounds and by model time: what a drawing of a schedule
//! needs. Knows no collective, and nothing of how it is drawn.

use super::cost::{self, LinkCosts};
use super::walk::{Event, Walk};
use super::{Rank, Schedule, Topology};

/// The steps of all ranks, laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// For each rank, its steps in the order of its schedule.
    pub ranks: Vec<Vec<Moment>>,
    /// The messages that follow one another on the longest path.
    pub rounds: u32,
    /// Seconds until the last rank is done.
    pub seconds: f64,
}

/// When a step happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The rank and the step at the other end of the message, if the step is an end of one.
    pub partner: Option<(Rank, u32)>,
    /// How many messages follow one another until the step is done; its own is among them if it
    /// receives. A message travels in the round of the step that receives it.
    pub round: u32,
    /// Model seconds at which it begins: a message leaves its sender, or begins to arrive.
    pub begin_s: f64,
    /// Model seconds at which it has ended.
    pub end_s: f64,
    /// Its place in an order in which all steps of all ranks can begin and end: beginnings and
    /// ends are numbered together, and what a step waits for has smaller numbers.
    pub begins: u32,
    /// Where in that order it ends.
    pub ends: u32,
}

impl Timeline {
    /// Lays out the schedules of all ranks, if they fit together. Every block has `block_bytes`;
    /// `on` tells which ranks share a host.
    pub fn new(
        schedules: &[Schedule],
        block_bytes: f64,
        link_costs: &LinkCosts,
        on: &Topology,
    ) -> Option<Timeline> {
        let walk = Walk::new(schedules).ok()?;
        let order = walk.order().ok()?;
        let depths = cost::depths(&walk, &order);
        let times = cost::simulate_steps(&walk, block_bytes, link_costs, on);
        let mut moments: Vec<Moment> = walk
            .all()
            .map(|at| {
                let own = walk.index(at);
                Moment {
                    partner: walk.partner(at).map(|partner| (partner.rank, partner.step)),
                    round: depths[own],
                    begin_s: times[own].begin,
                    end_s: times[own].finish,
                    begins: 0,
                    ends: 0,
                }
            })
            .collect();
        for (number, &(at, event)) in order.iter().enumerate() {
            let moment = &mut moments[walk.index(at)];
            match event {
                Event::Start => moment.begins = number as u32,
                Event::Finish => moment.ends = number as u32,
            }
        }
        let rounds = depths.into_iter().max().unwrap_or(0);
        let seconds = moments.iter().map(|moment| moment.end_s).fold(0.0, f64::max);
        let mut rest = moments.into_iter();
        let ranks = schedules.iter().map(|own| rest.by_ref().take(own.steps.len()).collect());
        Some(Timeline { ranks: ranks.collect(), rounds, seconds })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::generated::collective::Collective;
    use crate::schedule::cost;

    fn all() -> impl Iterator<Item = (Vec<Schedule>, Topology)> {
        Collective::ALL.into_iter().flat_map(|collective| {
            let ways = collective.algorithms().iter();
            ways.flat_map(|algorithm| {
                [1, 2, 3, 5, 8].map(|size| {
                    let on = Topology::by_host((0..size).map(|rank| rank / 2));
                    (algorithm.schedules(size - 1, &on), on)
                })
            })
        })
    }

    #[test]
    fn totals_are_those_of_the_cost_model() {
        let link_costs = LinkCosts::LOOPBACK;
        for (schedules, on) in all() {
            let timeline = Timeline::new(&schedules, 1e6, &link_costs, &on).unwrap();
            let seconds = cost::simulate(&schedules, 1e6, &link_costs, &on);
            assert_eq!(Some(timeline.seconds), seconds);
            assert_eq!(Some(timeline.rounds), cost::rounds(&schedules));
        }
    }

    #[test]
    fn what_waits_comes_later_in_every_measure() {
        for (schedules, on) in all() {
            let timeline = Timeline::new(&schedules, 1e3, &LinkCosts::LOOPBACK, &on).unwrap();
            for (schedule, moments) in schedules.iter().zip(&timeline.ranks) {
                assert_eq!(schedule.steps.len(), moments.len());
                for (step, moment) in schedule.steps.iter().zip(moments) {
                    assert!(moment.begins < moment.ends && moment.begin_s <= moment.end_s);
                    for before in step.after.iter().map(|&before| moments[before as usize]) {
                        assert!(before.ends < moment.begins && before.round <= moment.round);
                    }
                }
            }
        }
    }

    #[test]
    fn a_message_arrives_after_it_was_sent() {
        for (schedules, on) in all() {
            let timeline = Timeline::new(&schedules, 1e3, &LinkCosts::LOOPBACK, &on).unwrap();
            for (schedule, moments) in schedules.iter().zip(&timeline.ranks) {
                for (step, moment) in schedule.steps.iter().zip(moments) {
                    let Some((rank, number)) = moment.partner else { continue };
                    let other = timeline.ranks[rank as usize][number as usize];
                    assert_eq!(step.action.receiver().or(step.action.sender()), Some(rank));
                    if step.action.sender().is_some() {
                        assert!(other.begins < moment.ends && other.round < moment.round);
                        assert!(other.begin_s < moment.end_s);
                    }
                }
            }
        }
    }

    #[test]
    fn schedules_that_do_not_fit_have_no_timeline() {
        let on = Topology::one_host(2);
        let two = Collective::Allreduce.algorithms()[0].schedules(0, &on);
        assert!(Timeline::new(&two, 1.0, &LinkCosts::LOOPBACK, &on).is_some());
        assert!(Timeline::new(&two[..1], 1.0, &LinkCosts::LOOPBACK, &on).is_none());
    }
}
