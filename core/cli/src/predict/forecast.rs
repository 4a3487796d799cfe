//! The answer: what each algorithm costs, over sizes. Knows nothing of how it is shown.

use super::arguments::Question;
use polyrank::Blocks;
use polyrank::schedule::cost::{LinkScope, Load, Traffic, simulate};
use polyrank::schedule::select::{CallSize, Overrides, Selector};
use polyrank::schedule::{Algorithm, Build};

/// The smallest size of the curve, bytes.
const FIRST_BYTES: u64 = 8;

/// What every usable algorithm costs.
pub(super) struct Forecast {
    pub(super) question: Question,
    /// The algorithms, the fastest first.
    pub(super) rows: Vec<Row>,
    /// The sizes of the curve.
    pub(super) sizes: Vec<u64>,
    /// The name of the algorithm that polyrank picks at each size of the curve.
    pub(super) chosen: Vec<&'static str>,
}

/// One algorithm.
pub(super) struct Row {
    pub(super) algorithm: &'static Algorithm,
    /// Whether polyrank would pick it.
    pub(super) is_chosen: bool,
    pub(super) seconds: f64,
    /// What the simulation of all ranks says, where it was asked for and is possible.
    pub(super) simulated_s: Option<f64>,
    /// Of one rank, the busiest of each phase.
    pub(super) traffic: Traffic,
    /// What the ranks of one host together send to other hosts, as a share of the whole.
    pub(super) host_share: f64,
    /// Messages that follow one another between hosts.
    pub(super) wire_rounds: u32,
    /// Seconds at each size of the curve.
    pub(super) curve: Vec<f64>,
}

impl Forecast {
    /// Predicts every algorithm that can answer the question.
    pub(super) fn new(question: Question) -> Forecast {
        let Question { collective, bytes, equal_blocks, .. } = question;
        let selector = Selector::new(&question.on, &question.link_costs, Overrides::none());
        let choose = |bytes| {
            // Where ranks cannot know sizes, equal blocks are the caller's word.
            selector.choose(collective, CallSize { bytes: Some(bytes), equal_blocks })
        };
        let sizes = sizes(bytes);
        let chosen = choose(bytes);
        let row = |(index, algorithm): (usize, &'static Algorithm)| {
            let load = (algorithm.load)(&question.on);
            let cost = |bytes: u64| selector.cost(collective, index, bytes);
            Row {
                algorithm,
                is_chosen: index == chosen,
                seconds: cost(bytes),
                simulated_s: simulated(&question, algorithm, &load),
                traffic: load.total(),
                host_share: load.host_bytes(),
                wire_rounds: wire_rounds(&load),
                curve: sizes.iter().map(|&bytes| cost(bytes)).collect(),
            }
        };
        let mut rows: Vec<Row> = question.usable().map(row).collect();
        rows.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let name = |bytes: &u64| collective.algorithms()[choose(*bytes)].name;
        let chosen = sizes.iter().map(name).collect();
        Forecast { question, rows, sizes, chosen }
    }

    /// By how much a rank's link is busier than the whole over the time says: nccl-tests' factor.
    pub(super) fn bus_factor(&self) -> f64 {
        self.question.collective.facts().bus_factor(self.question.on.size())
    }
}

/// Powers of two up to the first that is not smaller than `bytes`.
fn sizes(bytes: u64) -> Vec<u64> {
    let last = bytes.max(FIRST_BYTES).next_power_of_two().ilog2();
    (FIRST_BYTES.ilog2()..=last).map(|bits| 1 << bits).collect()
}

fn wire_rounds(load: &Load) -> u32 {
    let over_wires = load.phases.iter().filter(|phase| phase.over != LinkScope::Host);
    over_wires.map(|phase| phase.traffic.rounds).sum()
}

fn simulated(question: &Question, algorithm: &Algorithm, load: &Load) -> Option<f64> {
    let on = &question.on;
    let messages = u64::from(load.total().messages) * u64::from(on.size());
    question.simulated.filter(|&most| messages <= most)?;
    let facts = question.collective.facts();
    let many = |blocks| matches!(blocks, Blocks::All | Blocks::AllAtRoot);
    let blocks = if many(facts.input) || many(facts.output) { on.size() } else { 1 };
    let block_bytes = question.bytes as f64 / f64::from(blocks);
    simulate(&algorithm.schedules(0, on), block_bytes, &question.link_costs, on)
}

impl Row {
    /// Whether it is one of those that follow the hosts.
    pub(super) fn follows_hosts(&self) -> bool {
        matches!(self.algorithm.build, Build::ByHost(_))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use polyrank::Collective;
    use polyrank::schedule::Topology;
    use polyrank::schedule::cost::{LinkClass, LinkCosts};

    fn forecast(collective: Collective, on: Topology, bytes: u64) -> Forecast {
        Forecast::new(Question {
            collective,
            on,
            bytes,
            equal_blocks: true,
            link_costs: LinkCosts::of(LinkClass::SharedMemory),
            simulated: Some(1 << 16),
            algorithms: Vec::new(),
        })
    }

    #[test]
    fn the_first_row_is_the_choice_and_no_other() {
        for collective in Collective::ALL {
            for on in [Topology::one_host(6), Topology::blocks(4, 8)] {
                let forecast = forecast(collective, on, 1 << 20);
                let chosen = forecast.rows.iter().map(|row| row.is_chosen);
                assert_eq!(chosen.clone().filter(|&is_chosen| is_chosen).count(), 1);
                assert_eq!(chosen.clone().next(), Some(true));
                assert!(forecast.rows.iter().all(|row| row.simulated_s.is_some()));
            }
        }
    }

    #[test]
    fn many_hosts_favour_algorithms_that_follow_them() {
        let on = Topology::blocks(8192, 8);
        let forecast = forecast(Collective::Allreduce, on, 1 << 30);
        let first = &forecast.rows[0];
        assert!(first.follows_hosts(), "{}", first.algorithm.name);
        // No algorithm sends less between hosts than this.
        assert!(first.host_share >= 2.0 * 8191.0 / 8192.0 - 1e-9);
        assert!(first.host_share < 2.0 && first.wire_rounds == 26, "{}", first.host_share);
        // Too many messages to run them all, as the ring has.
        let ring = forecast.rows.iter().find(|row| row.algorithm.name == "ring").unwrap();
        assert_eq!((ring.simulated_s, ring.traffic.rounds), (None, 2 * 65_535));
    }

    #[test]
    fn the_curve_reaches_the_size_that_was_asked_for() {
        assert_eq!(sizes(100), [8, 16, 32, 64, 128]);
        assert_eq!(sizes(0), [8]);
        assert_eq!(sizes(64), [8, 16, 32, 64]);
    }
}
