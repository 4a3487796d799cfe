//! The command line of `polyrank predict`, read into a [`Question`]. Knows no schedule.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::sizes;
use polyrank::schedule::cost::{Calibration, Link, LinkClass, LinkCosts};
use polyrank::schedule::{Algorithm, Topology};
use polyrank::{Collective, env};

/// The tables of ranks and hosts take some memory for each rank.
const MAX_RANKS: i64 = 1 << 20;
/// Numbers of ranks whose executors fit into memory.
const MAX_RUN_RANKS: u32 = 1 << 14;
/// More messages than this, of all ranks, are not simulated.
const MAX_SIMULATED_MESSAGES: u64 = 1 << 22;

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank predict allreduce --ranks 65536 --bytes 1GiB --topology 8x8192
      65,536 ranks, eight on each of 8,192 hosts: every algorithm, the fastest first.
  polyrank predict allgather --ranks 64 --bytes 4M --svg curve.svg
      Ranks of one host, and a drawing of the time over all sizes up to 4 MiB.
  polyrank predict broadcast --ranks 4096 --bytes 64K --topology 8x512 --latency 2us
      A network with two microseconds from host to host.
  polyrank predict allreduce --ranks 8 --bytes 1M --link-costs host.costs --json
      The link costs that `polyrank bench --calibrate` measured.
  polyrank predict allreduce --ranks 4096 --bytes 1K --run
      Not paper alone: the executors of 16, 64, … 4,096 ranks run it in one process. Counts
      messages, connections and memory of a rank, and checks the results.

Times are a model's: what a message costs besides its bytes, what a byte costs, on a host and
between hosts, and what reducing costs. Where nothing was measured, links cost what they cost on a
two-core virtual machine, and the network is one of 25 Gbit/s.";

/// The options of `polyrank predict`.
#[derive(Args)]
pub(crate) struct PredictArguments {
    /// The collective
    #[arg(value_parser = collective, help = format!("The collective: {}", collective_names()))]
    collective: Collective,
    /// The number of ranks
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: u32,
    /// The size of the tensor, or of all ranks' blocks together
    #[arg(short, long, default_value = "1M", value_parser = sizes::parse)]
    bytes: u64,
    /// Ranks on each host, and hosts: "8x512" [default: one host]
    #[arg(short, long, value_name = "RANKSxHOSTS", value_parser = topology)]
    topology: Option<(u32, u32)>,
    /// Blocks differ in size, where they may
    #[arg(long)]
    uneven: bool,
    /// How ranks of one host reach each other
    #[arg(long, value_enum, default_value_t = WithinHostLink::SharedMemory)]
    within: WithinHostLink,
    /// A file of measured link costs, as `polyrank bench --calibrate` writes it
    #[arg(long, value_name = "FILE")]
    link_costs: Option<PathBuf>,
    /// Cores that the ranks of a host share, which --simulate leaves out [default: one for each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// Time from host to host: "2us", "150us", "30ms"
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    latency: Option<f64>,
    /// What a host's wire carries: "25" or "25Gbit/s", "1e2", "400Mbit/s", "3GB/s"
    #[arg(long, value_name = "RATE", value_parser = gigabits)]
    bandwidth: Option<f64>,
    /// Run the schedules of all ranks in model time too, where they have few enough messages
    #[arg(long)]
    simulate: bool,
    /// These algorithms alone [default: all]
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    algorithm: Vec<String>,
    /// Carry it out, with ever more ranks up to --ranks: every rank's executor, in this process,
    /// over an imagined network; counts what a rank sends, connects to and keeps in memory
    #[arg(long, conflicts_with_all = ["simulate", "svg"])]
    pub(super) run: bool,
    /// Print JSON, with the times over all sizes
    #[arg(long)]
    pub(super) json: bool,
    /// Draw the times over all sizes
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// How ranks of one host reach each other.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WithinHostLink {
    Process,
    SharedMemory,
    Loopback,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) collective: Collective,
    pub(super) on: Topology,
    pub(super) bytes: u64,
    pub(super) equal_blocks: bool,
    pub(super) link_costs: LinkCosts,
    /// The most messages of all ranks that are simulated; none if nothing is.
    pub(super) simulated: Option<u64>,
    /// The algorithms that are asked for, all if there are none.
    pub(super) algorithms: Vec<String>,
}

impl Question {
    /// The algorithms that are asked for and can answer, with their places among all.
    pub(super) fn usable(&self) -> impl Iterator<Item = (usize, &'static Algorithm)> {
        let all = self.collective.algorithms().iter().enumerate();
        all.filter(|(_, algorithm)| self.equal_blocks || !algorithm.needs_equal_blocks()).filter(
            |(_, algorithm)| {
                self.algorithms.is_empty() || self.algorithms.iter().any(|a| a == algorithm.name)
            },
        )
    }
}

impl PredictArguments {
    /// Checks what clap cannot, and reads the file of link costs.
    pub(super) fn question(&self) -> Result<Question, String> {
        let (per_host, hosts) = self.topology.unwrap_or((self.ranks, 1));
        if u64::from(per_host) * u64::from(hosts) != u64::from(self.ranks) {
            let all = u64::from(per_host) * u64::from(hosts);
            return Err(format!(
                "--topology {per_host}x{hosts} has {all} ranks, but --ranks is {}",
                self.ranks
            ));
        }
        let between = [("--latency", self.latency), ("--bandwidth", self.bandwidth)];
        if let Some((option, _)) = between.iter().find(|(_, given)| hosts == 1 && given.is_some()) {
            return Err(format!(
                "{option} is that between hosts, and all ranks are on one; say which are on which, \
                 as in --topology 8x512"
            ));
        }
        if self.run && self.ranks > MAX_RUN_RANKS {
            return Err(format!("--run takes up to {MAX_RUN_RANKS} ranks, not {}", self.ranks));
        }
        let known = self.collective.algorithms();
        if let Some(unknown) = self.algorithm.iter().find(|&a| known.iter().all(|k| k.name != a)) {
            let known: Vec<_> = known.iter().map(|known| known.name).collect();
            return Err(format!(
                "{} has no algorithm '{unknown}'; it has {}",
                self.collective.facts().name,
                known.join(", ")
            ));
        }
        Ok(Question {
            collective: self.collective,
            on: Topology::blocks(hosts, per_host),
            bytes: if self.collective.facts().has_data() { self.bytes } else { 0 },
            equal_blocks: !self.uneven,
            link_costs: self.link_costs()?,
            simulated: self.simulate.then_some(MAX_SIMULATED_MESSAGES),
            algorithms: self.algorithm.clone(),
        })
    }

    fn link_costs(&self) -> Result<LinkCosts, String> {
        let within = match self.within {
            WithinHostLink::Process => LinkClass::Process,
            WithinHostLink::SharedMemory => LinkClass::SharedMemory,
            WithinHostLink::Loopback => LinkClass::Loopback,
        };
        let calibration = match &self.link_costs {
            None => Calibration::default(),
            Some(path) => {
                let wrong = |why: String| format!("--link-costs {}: {why}", path.display());
                let text = env::read_link_costs(path).map_err(|error| wrong(error.to_string()))?;
                Calibration::decode(&text).map_err(|error| wrong(error.to_string()))?
            }
        };
        let mut link_costs = calibration.link_costs(within);
        if let Some(cores) = self.cores {
            link_costs.cores = f64::from(cores);
        }
        if let Some(latency_s) = self.latency {
            link_costs.between = Link { latency_s, ..link_costs.between };
        }
        if let Some(gigabits) = self.bandwidth {
            link_costs.wire_byte_s = 8e-9 / gigabits;
            link_costs.between.byte_s = link_costs.between.byte_s.min(link_costs.wire_byte_s);
        }
        Ok(link_costs)
    }
}

fn collective(text: &str) -> Result<Collective, String> {
    let found = Collective::ALL.into_iter().find(|known| known.facts().name == text);
    found.ok_or_else(|| {
        format!("'{text}' is not a collective; expected one of {}", collective_names())
    })
}

/// The names of all collectives, in a row.
fn collective_names() -> String {
    Collective::ALL.map(|known| known.facts().name).join(", ")
}

fn topology(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(['x', 'X', '*']);
    let parsed = numbers.and_then(|(per_host, hosts)| {
        Some((per_host.trim().parse().ok()?, hosts.trim().parse().ok()?))
    });
    match parsed {
        Some((per_host, hosts)) if per_host > 0 && hosts > 0 => Ok((per_host, hosts)),
        _ => Err("expected ranks on each host and hosts, as 8x512".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return Err("expected a number with its unit: ns, us, ms or s".to_owned()),
    };
    let seconds = digits.trim().parse::<f64>().map(|number| number * unit_s);
    match seconds {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a time between 0 and 60 s".to_owned()),
    }
}

/// Units of what a wire carries, powers of 1000 as everywhere on wires: bits and bytes differ in
/// their letter's case.
const RATES: [(&str, f64); 8] = [
    ("Gbit/s", 1.0),
    ("Gbps", 1.0),
    ("Mbit/s", 1e-3),
    ("Mbps", 1e-3),
    ("Tbit/s", 1e3),
    ("Tbps", 1e3),
    ("GB/s", 8.0),
    ("MB/s", 8e-3),
];

fn gigabits(text: &str) -> Result<f64, String> {
    let units = RATES.map(|(name, _)| name).join(", ");
    let letters = text.find(|letter: char| letter.is_ascii_alphabetic() && !"eE".contains(letter));
    let (digits, unit) = text.split_at(letters.unwrap_or(text.len()));
    let scale = match unit.trim() {
        "" => 1.0,
        unit => match RATES.into_iter().find(|(name, _)| *name == unit) {
            Some((_, gigabits)) => gigabits,
            None => return Err(format!("'{unit}' is not a unit; expected one of {units}")),
        },
    };
    match digits.trim().parse::<f64>().map(|number| number * scale) {
        Ok(gigabits) if (1e-6..=1e6).contains(&gigabits) => Ok(gigabits),
        Ok(_) => Err("expected more than 1 kbit/s, and up to 1000 Tbit/s".to_owned()),
        Err(_) => Err(format!(
            "expected a number of Gbit/s, as 25, or one with its unit, as 3GB/s; units are {units}"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::command_line::options;

    fn question(line: &str) -> Result<Question, String> {
        options::<PredictArguments>("predict", line)?.question()
    }

    #[test]
    fn a_topology_is_ranks_on_each_host_by_hosts() {
        let question = question("allreduce --ranks 12 --bytes 1GiB --topology 4x3").unwrap();
        assert_eq!((question.on.hosts(), question.on.most()), (3, 4));
        assert_eq!((question.bytes, question.collective), (1 << 30, Collective::Allreduce));
    }

    #[test]
    fn a_network_can_be_described() {
        let line = "barrier -n 4 -t 2x2 --latency 2us --bandwidth 400";
        let link_costs = question(line).unwrap().link_costs;
        assert_eq!(
            (link_costs.between.latency_s, link_costs.wire_byte_s),
            (2.0 * 1e-6, 8e-9 / 400.0)
        );
        assert!(link_costs.between.byte_s <= link_costs.wire_byte_s);
        for (text, gigabits_s) in [
            ("25", 25.0),
            ("400 Gbit/s", 400.0),
            ("3GB/s", 24.0),
            ("1e2", 100.0),
            ("1E2Mbit/s", 0.1),
        ] {
            assert_eq!(gigabits(text), Ok(gigabits_s), "{text}");
        }
        assert_eq!(gigabits("250Mbit/s"), Ok(0.25));
    }

    #[test]
    fn wrong_lines_are_refused_with_advice() {
        for (line, advice) in [
            ("allreduce -n 8 -t 3x3", "has 9 ranks, but --ranks is 8"),
            ("all_reduce -n 8", "expected one of allreduce"),
            ("allreduce -n 8 -t 8", "as 8x512"),
            ("allreduce -n 0", "--ranks"),
            ("allreduce -n 8 -b many", "not a size"),
            ("allreduce -n 8 --latency 5", "unit"),
            ("allreduce -n 8 --latency 5us", "--latency is that between hosts"),
            ("allreduce -n 8 -t 8x1 --bandwidth 5", "--bandwidth is that between hosts"),
            ("allreduce -n 8 -t 4x2 --bandwidth 1.2.3", "units are Gbit/s"),
            ("allreduce -n 8 -t 4x2 --bandwidth 5Gb", "'Gb' is not a unit; expected one of Gbit/s"),
            ("allreduce -n 8 -t 4x2 --bandwidth 0", "more than 1 kbit/s"),
            ("allreduce -n 8 --link-costs /nonexistent/costs", "/nonexistent/costs"),
        ] {
            let error = question(line).unwrap_err();
            assert!(error.contains(advice), "{line}: {error}");
        }
    }
}
