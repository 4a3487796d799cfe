//! What an algorithm sends, and what that costs. Knows no schedule but to derive the same figures
//! from it.

use super::{Link, LinkCosts, blocks_moved, rounds};
use crate::schedule::{Action, Schedule, Step, Topology};

/// Both ends of a message occupy a core.
const ENDS: f64 = 2.0;

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
    /// What ranks do on average.
    pub average: Average,
}

/// What a rank does on average, as a part of what the busiest one does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// Of the messages.
    pub messages: f64,
    /// Of the bytes.
    pub bytes: f64,
    /// Of what is reduced and copied.
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
    /// Whether all messages of a round go to the same rank.
    pub to_one: bool,
}

/// A part of an algorithm that goes over links of one class, or mostly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// What one rank sends.
    pub traffic: Traffic,
    /// Which way it goes.
    pub over: LinkScope,
    /// The most ranks of one host that take part.
    pub ranks: u32,
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
        Load { phases: phases.into_iter().collect(), turns: 0, pace: 1.0, to_one: false }
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

    /// The same, if all messages of a round go to the same rank, which takes them in one turn.
    #[must_use]
    pub fn to_one_a_round(self) -> Load {
        Load { to_one: true, ..self }
    }

    fn flat(on: &Topology, traffic: Traffic, senders: u32) -> Load {
        let over = if on.hosts() == 1 { LinkScope::Host } else { LinkScope::Wire { senders } };
        Load::of([Phase { traffic, over, ranks: on.most() }])
    }

    /// Seconds for `whole_bytes`.
    ///
    /// Where each rank has a core, the longest path or the busiest rank decides. Where ranks share
    /// cores, these have to do what all ranks do besides: that takes no longer than both times
    /// together. Brent: The Parallel Evaluation of General Arithmetic Expressions (1974).
    pub fn cost(&self, whole_bytes: f64, link_costs: &LinkCosts) -> f64 {
        let sum = |of: &dyn Fn(&Phase) -> f64| self.phases.iter().map(of).sum::<f64>();
        let overheads = self.phases.iter().map(|phase| phase.link(link_costs).overhead_s);
        let turns_s = f64::from(self.turns) * overheads.fold(0.0, f64::max);
        let alone = sum(&|phase| phase.cost(whole_bytes, self.pace, link_costs)) + turns_s;
        let ranks = self.phases.iter().map(|phase| phase.ranks).max().unwrap_or(1);
        let ranks_per_core = f64::from(ranks) / link_costs.cores;
        if ranks_per_core <= 1.0 {
            return alone;
        }
        // Who waits long sleeps, and has to be woken.
        let sleeps = ranks_per_core * link_costs.wake_s > link_costs.awake_s;
        let wake_s = if sleeps { link_costs.wake_s } else { 0.0 };
        let work = sum(&|phase| phase.work(whole_bytes, self.to_one, wake_s, link_costs));
        // Before a rank has its core again, each of the others there takes and sends a message.
        let one_by_one =
            |phase: &Phase| f64::from(phase.traffic.rounds) * phase.link(link_costs).overhead_s;
        let others = (ranks_per_core - 1.0) * ENDS * (sum(&one_by_one) + turns_s);
        alone + work / link_costs.cores + others
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
        let part = |of: fn(&Traffic) -> (f64, f64)| {
            let parts = self.phases.iter().map(|phase| of(&phase.traffic));
            let (most, mean) =
                parts.fold((0.0, 0.0), |all, (most, part)| (all.0 + most, all.1 + most * part));
            if most > 0.0 { mean / most } else { 1.0 }
        };
        total.average = Average {
            messages: part(|it| (f64::from(it.messages), it.average.messages)),
            bytes: part(|it| (it.bytes, it.average.bytes)),
            local: part(|it| (it.local, it.average.local)),
        };
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
    /// A phase of all ranks, inside of hosts.
    pub fn host(traffic: Traffic, on: &Topology) -> Phase {
        Phase { traffic, over: LinkScope::Host, ranks: on.most() }
    }

    /// A phase in which `senders` ranks of each host send to other hosts.
    pub const fn wire(traffic: Traffic, senders: u32) -> Phase {
        Phase { traffic, over: LinkScope::Wire { senders }, ranks: senders }
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
        let Traffic { rounds, messages, bytes, message, local, .. } = self.traffic;
        let Link { latency_s, overhead_s, byte_s } = self.link(link_costs);
        let message = message * whole_bytes;
        let before_the_last = f64::from(rounds.saturating_sub(1));
        let path = before_the_last * message.min(link_costs.segment_bytes) + message;
        let busiest = bytes * whole_bytes;
        let messages = f64::from(messages);
        let one_by_one = f64::from(rounds) * (latency_s + overhead_s);
        let all_at_once = f64::from(rounds.min(1)) * latency_s + messages * overhead_s;
        one_by_one.max(all_at_once)
            + messages * self.at_once() * link_costs.crowd_s
            + busiest.max(path) * byte_s * pace
            + local * whole_bytes * link_costs.local_byte_s
    }

    /// How many further messages are in flight with one of the busiest rank.
    fn at_once(&self) -> f64 {
        let Traffic { rounds, messages, .. } = self.traffic;
        (f64::from(messages) / f64::from(rounds.max(1)) - 1.0).max(0.0)
    }

    /// Seconds for which all ranks of a host together occupy cores, if all messages of a round go
    /// `to_one` rank or not, and it takes `wake_s` to wake one that waits.
    fn work(&self, whole_bytes: f64, to_one: bool, wake_s: f64, link_costs: &LinkCosts) -> f64 {
        let Traffic { rounds, messages, bytes, local, average, .. } = self.traffic;
        let Link { overhead_s, byte_s, .. } = self.link(link_costs);
        let messages = f64::from(messages) * average.messages;
        let waits = f64::from(rounds).min(messages);
        // Messages of several ranks come one by one, and are looked for as often.
        let (arrivals, at_once) = if to_one { (waits, 0.0) } else { (messages, self.at_once()) };
        // When a rank has its core again, the others' data is in the caches.
        let local_byte_s = link_costs.local_byte_s.max(byte_s);
        let one = messages * (ENDS * overhead_s + at_once * link_costs.crowd_s)
            + arrivals * overhead_s
            + waits * wake_s
            + bytes * average.bytes * whole_bytes * ENDS * byte_s
            + local * average.local * whole_bytes * local_byte_s;
        f64::from(self.ranks) * one
    }
}

impl Average {
    /// All ranks do the same.
    pub const EVEN: Average = Average::all(1.0);

    /// Ranks do this part of everything.
    pub const fn all(part: f64) -> Average {
        Average { messages: part, bytes: part, local: part }
    }

    /// `ranks` ranks send as often and reduce as often as there are edges in a tree of them, in
    /// `trees` of these, and the busiest one `most` times.
    pub fn of_trees(trees: u32, ranks: u32, most: u32) -> Average {
        if ranks < 2 {
            return Average::EVEN;
        }
        let edges = f64::from(trees) * f64::from(ranks - 1);
        Average::all(edges / f64::from(ranks) / f64::from(most.max(1)))
    }
}

impl Default for Average {
    fn default() -> Average {
        Average::EVEN
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
            average: Average::EVEN,
        };
        let mut all = (0, 0.0, 0.0);
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
            all = (all.0 + sent.0, all.1 + sent.1, all.2 + local);
            traffic.messages = traffic.messages.max(sent.0).max(received.0);
            traffic.bytes = traffic.bytes.max(sent.1).max(received.1);
            traffic.local = traffic.local.max(local);
        }
        let ranks = schedules.len() as f64;
        let part = |all: f64, most: f64| if most > 0.0 { all / ranks / most } else { 1.0 };
        traffic.average = Average {
            messages: part(f64::from(all.0), f64::from(traffic.messages)),
            bytes: part(all.1, traffic.bytes),
            local: part(all.2, traffic.local),
        };
        Some(traffic)
    }
}
