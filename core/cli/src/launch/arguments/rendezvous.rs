//! Where the launchers of a job over several nodes meet: torchrun's options `--rdzv-…`.
//! Knows nothing of stores.

use std::time::Duration;

use clap::Args;

use super::options::NodeCount;
use crate::nodes::{NodeOptions, Serving};

/// The port of a rendezvous whose endpoint names none; torchrun's too.
const DEFAULT_PORT: u16 = 29400;

/// How the launchers of several nodes find each other, as torchrun has it.
#[derive(Args)]
pub(super) struct RendezvousOptions {
    /// "static": every launcher is told its --node-rank; "c10d": the launchers meet at
    /// --rdzv-endpoint, which hands out the ranks, and restart together [default: static]
    #[arg(long, value_name = "static|c10d")]
    rdzv_backend: Option<String>,
    /// Where the launchers meet; the one on that host serves the others. With "static", the same
    /// as --master-addr and --master-port [default port: 29400]
    #[arg(long, value_name = "HOST[:PORT]")]
    rdzv_endpoint: Option<String>,
    /// Name of this job, as --run-id
    #[arg(long, value_name = "NAME")]
    pub(super) rdzv_id: Option<String>,
    /// More about the rendezvous: is_host=true|false, join_timeout=SECONDS (600),
    /// keep_alive_interval=SECONDS (5), keep_alive_max_attempt=N (3), rank=N,
    /// last_call_timeout=SECONDS (30): how long more nodes than MIN are waited for
    #[arg(long, value_name = "KEY=VALUE,…")]
    rdzv_conf: Option<String>,
    /// Address of this host for the others [default: that of its connection to the endpoint]
    #[arg(long, value_name = "ADDRESS")]
    local_addr: Option<String>,
}

/// What the options come to.
pub(super) enum Meeting {
    /// Each launcher knows its place.
    Static { address: Option<(String, Option<u16>)>, node_rank: Option<u32> },
    /// The launchers meet.
    Store(NodeOptions),
}

impl RendezvousOptions {
    /// Checks the options of a job over so many nodes.
    pub(super) fn meeting(
        &self,
        nodes: NodeCount,
        node_rank: Option<u32>,
    ) -> Result<Meeting, String> {
        let node_count = nodes.max;
        let conf = Conf::parse(self.rdzv_conf.as_deref().unwrap_or_default())?;
        let node_rank = node_rank.or(conf.rank);
        let endpoint = self.rdzv_endpoint.as_deref().map(endpoint).transpose()?;
        match self.rdzv_backend.as_deref().unwrap_or("static") {
            "static" => Ok(Meeting::Static { address: endpoint, node_rank }),
            // A job of one host has nobody to meet; torchrun's endpoint localhost:0 is of it.
            "c10d" if node_count == 1 => Ok(Meeting::Static { address: None, node_rank }),
            "c10d" => {
                if let Some(rank) = node_rank.filter(|rank| *rank >= node_count) {
                    let last = node_count - 1;
                    return Err(format!("node rank {rank} does not exist: nodes are 0 to {last}"));
                }
                let Some((host, port)) = endpoint else {
                    let example = "as in --rdzv-endpoint host-a:29400";
                    return Err(format!(
                        "--rdzv-backend c10d over several nodes needs the host that serves the \
                         rendezvous, {example}"
                    ));
                };
                Ok(Meeting::Store(NodeOptions {
                    host,
                    port: port.unwrap_or(DEFAULT_PORT),
                    serving: conf.serving,
                    node_count,
                    min_node_count: nodes.min,
                    node_rank,
                    local_addr: self.local_addr.clone(),
                    join_timeout: conf.join_timeout,
                    last_call: conf.last_call,
                    keep_alive: conf.keep_alive,
                    keep_alive_attempts: conf.keep_alive_attempts,
                }))
            }
            other => Err(format!(
                "--rdzv-backend {other} is not offered: \"static\" (each launcher has its \
                 --node-rank) and \"c10d\" (the launchers meet at --rdzv-endpoint) need no other \
                 server"
            )),
        }
    }
}

/// A host and, where it is named, a port.
fn endpoint(text: &str) -> Result<(String, Option<u16>), String> {
    let wrong = || format!("--rdzv-endpoint {text}: expected a host and a port, as in a:29400");
    let port = |port: &str| port.parse().map(Some).map_err(|_| wrong());
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, port(rest.strip_prefix(':').ok_or_else(wrong)?)?),
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, number)) => (host, port(number)?),
            None => (text, None),
        },
    };
    match host.is_empty() {
        true => Err(wrong()),
        false => Ok((host.to_owned(), port)),
    }
}

struct Conf {
    serving: Serving,
    rank: Option<u32>,
    join_timeout: Duration,
    last_call: Duration,
    keep_alive: Duration,
    keep_alive_attempts: u32,
}

impl Conf {
    fn parse(text: &str) -> Result<Conf, String> {
        let mut conf = Conf {
            serving: Serving::IfHere,
            rank: None,
            join_timeout: Duration::from_secs(600),
            last_call: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
            keep_alive_attempts: 3,
        };
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            conf.set(pair)
                .ok_or_else(|| format!("--rdzv-conf {pair}: expected one of those in --help"))?;
        }
        Ok(conf)
    }

    fn set(&mut self, pair: &str) -> Option<()> {
        let seconds = |text: &str| {
            let seconds = text.parse().ok().filter(|seconds| (0.001..=1e9).contains(seconds));
            seconds.map(Duration::from_secs_f64)
        };
        let (key, value) = pair.split_once('=')?;
        match key.trim() {
            "is_host" => match value.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "1" => self.serving = Serving::Always,
                "false" | "f" | "no" | "0" => self.serving = Serving::Never,
                _ => return None,
            },
            "rank" => self.rank = Some(value.parse().ok()?),
            // torchrun's static rendezvous has the limit under this name.
            "join_timeout" | "timeout" => self.join_timeout = seconds(value)?,
            "last_call_timeout" => self.last_call = seconds(value)?,
            "keep_alive_interval" => self.keep_alive = seconds(value)?,
            "keep_alive_max_attempt" => {
                self.keep_alive_attempts = value.parse().ok().filter(|count| *count > 0)?;
            }
            // What torchrun's agents need for elastic jobs, and these do not.
            "close_timeout" | "read_timeout" | "store_type" | "use_libuv" | "heartbeat_timeout" => {
            }
            _ => return None,
        }
        Some(())
    }
}
