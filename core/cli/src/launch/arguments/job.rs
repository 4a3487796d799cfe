//! What to start: the options of `polyrank run`, checked together. Knows nothing of processes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use polyrank::env::variable::Variable;

use super::hosts::{self, Host};
use super::options::{Binding, NodeCount, OutputArguments, RunArguments};
use super::parts::{Part, parts, rank_count};
use super::rendezvous::Meeting;
use super::streams::{LocalRanks, Stream, StreamSet};
use crate::nodes::NodeOptions;

/// The port of a job over several nodes, where no free one can be agreed on; PyTorch's choice too.
pub(super) const DEFAULT_PORT: u16 = 29500;

/// What to start on this host.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The programs in the order of their ranks.
    pub(crate) parts: Vec<Part>,
    /// The ranks that nobody starts: the job's last ones.
    pub(crate) external_count: u32,
    pub(crate) node_count: u32,
    pub(crate) node_rank: u32,
    pub(crate) master_addr: String,
    /// 0: pick a free one.
    pub(crate) master_port: u16,
    /// Where the launchers of several nodes meet, if they do not know their places.
    pub(crate) meeting: Option<NodeOptions>,
    /// The hosts on which launchers are started over ssh.
    pub(crate) hosts: Option<Vec<Host>>,
    /// The name by which the launcher that started this one knows it.
    pub(crate) agent: Option<String>,
    pub(crate) run_id: Option<String>,
    pub(crate) role: String,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) wdir: Option<PathBuf>,
    pub(crate) binding: Binding,
    pub(crate) output: Output,
    pub(crate) record: Option<PathBuf>,
    /// Where the ranks' statistics are served, if they are.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) max_restarts: u32,
    pub(crate) keep_going: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) pass_local_rank: bool,
    pub(crate) with_mpi: bool,
    /// How often the ranks are started, each time as a replica, if they are.
    pub(crate) replicas: Option<Replicas>,
    /// The replica that this is.
    pub(crate) replica: Option<ReplicaPlace>,
}

/// The replicas of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// With fewer the job does not go on.
    pub(crate) min: u32,
    pub(crate) lighthouse: JobLighthouse,
}

/// The lighthouse of the replicas of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobLighthouse {
    /// The launcher serves it.
    Served {
        /// How long replicas that ask wait for those that do not; none: as usual.
        join_timeout: Option<Duration>,
    },
    /// It is at this address, as an option says, or the variable of this name.
    Elsewhere { url: String, variable: Option<&'static str> },
}

/// Which of the replicas one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaPlace {
    pub(crate) number: u32,
    pub(crate) count: u32,
}

/// What is shown of the ranks' output, and what is kept.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) prefix: bool,
    pub(crate) timestamps: bool,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) redirects: StreamSet,
    pub(crate) tee: StreamSet,
    pub(crate) filter: Option<LocalRanks>,
}

impl Output {
    fn new(given: OutputArguments) -> Output {
        let none = StreamSet::All(0);
        // A folder for logs is of no use without logs.
        let tee = match (&given.redirects, &given.log_dir) {
            (None, Some(_)) => StreamSet::All(3),
            _ => none.clone(),
        };
        Output {
            prefix: !given.no_prefix,
            timestamps: given.timestamps,
            log_dir: given.log_dir,
            redirects: given.redirects.unwrap_or(none),
            tee: given.tee.unwrap_or(tee),
            filter: given.local_ranks_filter,
        }
    }

    /// Whether a stream of a rank goes to a file.
    pub(crate) fn is_kept(&self, local_rank: u32, stream: Stream) -> bool {
        [&self.redirects, &self.tee].iter().any(|set| set.contains(local_rank, stream))
    }

    /// Whether a stream of a rank is shown.
    pub(crate) fn is_shown(&self, local_rank: u32, stream: Stream) -> bool {
        let is_elsewhere =
            self.redirects.contains(local_rank, stream) && !self.tee.contains(local_rank, stream);
        let passes = self.filter.as_ref().is_none_or(|ranks| ranks.0.contains(&local_rank));
        passes && !is_elsewhere
    }

    /// Whether any stream goes to a file.
    pub(crate) fn has_logs(&self) -> bool {
        let none = StreamSet::All(0);
        self.log_dir.is_some() || self.redirects != none || self.tee != none
    }
}

impl Job {
    /// The ranks on this host.
    pub(crate) fn local_world_size(&self) -> u32 {
        self.parts.iter().map(|part| part.rank_count).sum()
    }
}

impl RunArguments {
    /// Checks what clap cannot and reads the parts of the job.
    pub(crate) fn job(self) -> Result<Job, String> {
        self.refuse()?;
        let count = self.ranks.np.clone().or_else(|| self.ranks.nproc_per_node.clone());
        let parts = parts(count.as_deref(), self.ranks.form, &self.program)?;
        let (hosts, parts) = match self.hosts(&parts)? {
            Some(hosts) if hosts.iter().all(Host::is_here) => {
                (None, hosts::parts_here(&hosts, parts))
            }
            hosts => (hosts, parts),
        };
        let node_count = self.nodes.nnodes.max;
        let given_rank = self.nodes.node_rank;
        let (meeting, address, given_rank) =
            match self.rendezvous.meeting(self.nodes.nnodes, given_rank)? {
                Meeting::Store(options) => (Some(options), None, given_rank),
                Meeting::Static { address, node_rank } => (None, address, node_rank),
            };
        let node_rank = given_rank.unwrap_or(0);
        if node_rank >= node_count {
            let last = node_count - 1;
            return Err(format!("--node-rank {node_rank} does not exist: nodes are 0 to {last}"));
        }
        let has_rank = meeting.as_ref().is_some_and(|meeting| meeting.node_rank.is_some());
        self.refuse_nodes(meeting.is_some(), has_rank)?;
        let (master_addr, master_port) =
            self.master(meeting.is_some() || hosts.is_some(), address)?;
        if self.endings.max_restarts > 0 && node_count > 1 && meeting.is_none() {
            return Err("--max-restarts over several nodes: the launchers must meet to restart \
                        together; give --rdzv-backend c10d --rdzv-endpoint HOST:PORT in place of \
                        --master-addr, or start them by --hosts"
                .to_owned());
        }
        let variables = self.ranks.variables.iter().map(variable);
        let variables = variables.collect::<Result<Vec<_>, _>>()?;
        let replicas = self.replicas.resolved(count.as_deref(), self.nodes.nnodes, &variables)?;
        let (record, metrics) = (self.output.record.clone(), self.metrics);
        Ok(Job {
            parts,
            external_count: self.ranks.external,
            node_count,
            node_rank,
            master_addr,
            master_port,
            meeting,
            hosts,
            agent: self.agent.agent,
            run_id: self.nodes.run_id.or(self.rendezvous.rdzv_id),
            role: self.ranks.role,
            variables,
            wdir: self.ranks.wdir,
            binding: self.ranks.bind_to,
            output: Output::new(self.output),
            record,
            metrics: metrics.metrics_port.map(|port| (metrics.metrics_host, port).into()),
            max_restarts: self.endings.max_restarts,
            keep_going: self.endings.keep_going,
            timeout: self.endings.timeout.map(Duration::from_secs_f64),
            grace: Duration::from_secs_f64(self.endings.grace),
            pass_local_rank: self.ranks.pass_local_rank,
            with_mpi: self.ranks.with_mpi,
            replicas,
            replica: None,
        })
    }

    fn refuse(&self) -> Result<(), String> {
        if let Some(method) = &self.ranks.start_method {
            return Err(format!(
                "--start-method {method} is not offered: every rank is a program that is started \
                 anew, as torchrun starts programs too; leave the option out"
            ));
        }
        if self.nodes.standalone && self.nodes.nnodes.max > 1 {
            let count = self.nodes.nnodes.max;
            return Err(format!("--standalone cannot be used with --nnodes {count}: it is 1 node"));
        }
        if self.ranks.np.is_some() && self.nodes.nnodes.max > 1 {
            return Err("-np is a number of ranks of the whole job; where each host runs this \
                        command by itself, give -n, the ranks of each host"
                .to_owned());
        }
        Ok(())
    }

    /// Refuses numbers of nodes that do not go with the rest.
    fn refuse_nodes(&self, they_meet: bool, has_rank: bool) -> Result<(), String> {
        let NodeCount { min, max } = self.nodes.nnodes;
        let of_replicas = self.replicas.replicas.is_some();
        if min < max && !they_meet {
            return Err(format!(
                "--nnodes {min}:{max}: launchers that come and go must meet; give --rdzv-backend \
                 c10d --rdzv-endpoint HOST:PORT"
            ));
        }
        if min < max && has_rank {
            return Err(format!(
                "--nnodes {min}:{max}: the rendezvous hands out the numbers of nodes that come and \
                 go; leave out --node-rank"
            ));
        }
        match of_replicas && max > 1 && !they_meet {
            true => Err("--replicas over several nodes: the launchers must meet; give \
                         --rdzv-backend c10d --rdzv-endpoint HOST:PORT"
                .to_owned()),
            false => Ok(()),
        }
    }

    /// The address and port of rank 0's store.
    fn master(
        &self,
        is_agreed: bool,
        endpoint: Option<(String, Option<u16>)>,
    ) -> Result<(String, u16), String> {
        let several = self.nodes.nnodes.max > 1 && !is_agreed;
        let (host, port) = endpoint.map_or((None, None), |(host, port)| (Some(host), port));
        let address = self.nodes.master_addr.clone().or(host);
        let address = match address {
            Some(address) => address,
            None if several => {
                let example = "as in --master-addr host-a";
                return Err(format!(
                    "--nnodes > 1 needs --master-addr, the host of node 0, {example}, or a \
                     rendezvous, as in --rdzv-backend c10d --rdzv-endpoint host-a:29400"
                ));
            }
            None => "127.0.0.1".to_owned(),
        };
        let usual = if several { DEFAULT_PORT } else { 0 };
        let port = self.nodes.master_port.or(port).unwrap_or(usual);
        if several && port == 0 {
            let advice = "give the same port on every node, as in --master-port 29500";
            return Err(format!(
                "--master-port 0 picks a port that other nodes cannot know; {advice}"
            ));
        }
        Ok((address, port))
    }

    fn hosts(&self, parts: &[Part]) -> Result<Option<Vec<Host>>, String> {
        let listed = match (&self.hosts.hosts, &self.hosts.hostfile) {
            (Some(list), _) => {
                hosts::from_list(list).map_err(|error| format!("--hosts {list}: {error}"))?
            }
            (None, Some(file)) => hosts::from_file(file)?,
            (None, None) => return Ok(None),
        };
        let total = self.ranks.np.as_deref().map(rank_count).transpose()?;
        let each = parts.first().map_or(1, |part| part.rank_count);
        let several = hosts::with_counts(listed, total, each)?;
        if parts.len() > 1 && several.iter().any(|host| host.rank_count != each) {
            return Err("a job of several programs has the same ranks on every host: give -n for \
                        each program, and no numbers to the hosts"
                .to_owned());
        }
        Ok(Some(several))
    }
}

/// A variable for the ranks, by its name and value, or by its name here.
fn variable(text: &OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
    let shown = text.to_string_lossy();
    let name = name.ok_or_else(|| format!("-x {shown}: expected NAME or NAME=VALUE"))?;
    let value = value.or_else(|| Variable::of_program(name));
    let value = value.ok_or_else(|| {
        format!("-x {name}: it is not set here; give it a value, as in -x {name}=1")
    })?;
    Ok((name.into(), value))
}
