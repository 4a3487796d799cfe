//! What an algorithm sends, and what that costs. Knows no schedule but to derive the same figures
//! from it.

use super::{Link, LinkCosts, blocks_moved, rounds};
use crate::schedule::{Action, Schedule, Step, Topology};

/// What an algorithm sends, for a number of ranks. Bytes are fractions of the whole: of the tensor
/// in an allreduce, reduce or broadcast, of all blocks together elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Messages that follow one another on the longest path.
    pub rounds: u32,
    /// The most messages that one rank sends, or receives.
    pub messages: u32,
    /// The most that one rank sends, or receives.
    pub bytes: f64,
    /// The largest message.
    pub message: f64,
    /// The most that one rank reduces and copies.
    pub local: f64,
}

/// What an algorithm costs: phases that follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The phases.
    pub phases: Vec<Phase>,
    /// Messages that ranks on the longest path send or take before the one that continues, since
    /// they have several children.
    pub turns: u32,
    /// How many times longer the bytes take than over links that never pause.
    pub pace: f64,
}

/// A part of an algorithm that goes over links of one class, or mostly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// What one rank sends.
    pub traffic: Traffic,
    /// Which way it goes.
    pub over: LinkScope,
}

/// The links of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkScope {
    /// Between ranks of one host.
    Host,
    /// From host to host.
    Wire {
        /// The most ranks of one host that send at once, and share its wire.
        senders: u32,
    },
}

impl Load {
    /// An algorithm in which any rank sends to any other.
    pub fn everywhere(on: &Topology, traffic: Traffic) -> Load {
        Load::flat(on, traffic, on.most())
    }

    /// An algorithm in which each rank sends to its successor only.
    pub fn neighbours(on: &Topology, traffic: Traffic) -> Load {
        Load::flat(on, traffic, on.crossings())
    }

    /// Phases that follow one another.
    pub fn of(phases: impl IntoIterator<Item = Phase>) -> Load {
        Load { phases: phases.into_iter().collect(), turns: 0, pace: 1.0 }
    }

    /// The same, if ranks on the longest path have so many other children to serve first.
    #[must_use]
    pub fn with_turns(self, turns: u32) -> Load {
        Load { turns, ..self }
    }

    /// The same, if links pause, so that bytes take `pace` times as long.
    #[must_use]
    pub fn at_pace(self, pace: f64) -> Load {
        Load { pace, ..self }
    }

    fn flat(on: &Topology, traffic: Traffic, senders: u32) -> Load {
        let over = if on.hosts() == 1 { LinkScope::Host } else { LinkScope::Wire { senders } };
        Load::of([Phase { traffic, over }])
    }

    /// Seconds for `whole_bytes`.
    pub fn cost(&self, whole_bytes: f64, link_costs: &LinkCosts) -> f64 {
        let phases = self.phases.iter().map(|phase| phase.cost(whole_bytes, self.pace, link_costs));
        let overheads = self.phases.iter().map(|phase| phase.link(link_costs).overhead_s);
        phases.sum::<f64>() + f64::from(self.turns) * overheads.fold(0.0, f64::max)
    }

    /// All phases together, as if the same rank were the busiest in each.
    pub fn total(&self) -> Traffic {
        let mut total = Traffic::default();
        for Phase { traffic, .. } in &self.phases {
            total.rounds += traffic.rounds;
            total.messages += traffic.messages;
            total.bytes += traffic.bytes;
            total.message = total.message.max(traffic.message);
            total.local += traffic.local;
        }
        total
    }

    /// The share of the whole that the ranks of one host together send to other hosts, at most.
    pub fn host_bytes(&self) -> f64 {
        let bytes = |phase: &Phase| match phase.over {
            LinkScope::Host => 0.0,
            LinkScope::Wire { senders } => f64::from(senders) * phase.traffic.bytes,
        };
        self.phases.iter().map(bytes).sum()
    }
}

impl Phase {
    /// A phase inside of hosts.
    pub const fn host(traffic: Traffic) -> Phase {
        Phase { traffic, over: LinkScope::Host }
    }

    /// A phase in which `senders` ranks of each host send to other hosts.
    pub const fn wire(traffic: Traffic, senders: u32) -> Phase {
        Phase { traffic, over: LinkScope::Wire { senders } }
    }

    fn link(&self, link_costs: &LinkCosts) -> Link {
        match self.over {
            LinkScope::Host => link_costs.within,
            LinkScope::Wire { senders } => link_costs.between_hosts(senders),
        }
    }

    /// Seconds for `whole_bytes`. A segmented pipeline is as slow as its busiest rank, or as long
    /// as its longest path, whichever is more.
    fn cost(&self, whole_bytes: f64, pace: f64, link_costs: &LinkCosts) -> f64 {
        let Traffic { rounds, messages, bytes, message, local } = self.traffic;
        let Link { latency_s, overhead_s, byte_s } = self.link(link_costs);
        let message = message * whole_bytes;
        let before_the_last = f64::from(rounds.saturating_sub(1));
        let path = before_the_last * message.min(link_costs.segment_bytes) + message;
        let busiest = bytes * whole_bytes;
        let messages = f64::from(messages);
        let at_once = (messages / f64::from(rounds.max(1)) - 1.0).max(0.0);
        let one_by_one = f64::from(rounds) * (latency_s + overhead_s);
        let all_at_once = f64::from(rounds.min(1)) * latency_s + messages * overhead_s;
        one_by_one.max(all_at_once)
            + messages * at_once * link_costs.crowd_s
            + busiest.max(path) * byte_s * pace
            + local * whole_bytes * link_costs.local_byte_s
    }
}

impl Traffic {
    /// Derives the figures from the schedules of all ranks, if they fit together. The whole is
    /// `blocks` blocks of equal size.
    pub fn of(schedules: &[Schedule], blocks: u32) -> Option<Traffic> {
        let mut traffic = Traffic {
            rounds: rounds(schedules)?,
            messages: 0,
            bytes: 0.0,
            message: 0.0,
            local: 0.0,
        };
        for schedule in schedules {
            let (mut sent, mut received) = ((0, 0.0), (0, 0.0));
            let mut local = 0.0;
            for Step { action, .. } in &schedule.steps {
                let share = blocks_moved(schedule, action) / f64::from(blocks.max(1));
                let side = if action.receiver().is_some() { &mut sent } else { &mut received };
                if action.receiver().is_some() || action.sender().is_some() {
                    side.0 += 1;
                    side.1 += share;
                    traffic.message = traffic.message.max(share);
                }
                if !matches!(action, Action::Send { .. } | Action::Recv { .. }) {
                    local += share;
                }
            }
            traffic.messages = traffic.messages.max(sent.0).max(received.0);
            traffic.bytes = traffic.bytes.max(sent.1).max(received.1);
            traffic.local = traffic.local.max(local);
        }
        Some(traffic)
    }
}
