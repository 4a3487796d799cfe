//! The options of `polyrank run` by topic, as clap reads them and `--help` shows them.
//! Knows nothing of what they come to together.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::parts::{Form, MAX_RANKS_PER_NODE};
use super::rendezvous::RendezvousOptions;
use super::replicas::ReplicaArguments;
use super::streams::{LocalRanks, StreamSet};

/// The options of `polyrank run`.
#[derive(Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(super) ranks: RankOptions,
    #[command(flatten)]
    pub(super) nodes: NodeArguments,
    #[command(flatten)]
    pub(super) rendezvous: RendezvousOptions,
    #[command(flatten)]
    pub(super) hosts: HostArguments,
    #[command(flatten)]
    pub(super) replicas: ReplicaArguments,
    #[command(flatten)]
    pub(super) output: OutputArguments,
    #[command(flatten)]
    pub(super) metrics: MetricsArguments,
    #[command(flatten)]
    pub(super) endings: EndingArguments,
    #[command(flatten)]
    pub(super) agent: AgentArguments,
    /// The program and its arguments; a lone ":" starts the next program of the job
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS] [: …]")]
    pub(super) program: Vec<OsString>,
}

#[derive(Args)]
#[command(next_help_heading = "Ranks and programs")]
pub(super) struct RankOptions {
    /// Ranks on each host: a number, "cpu" (one per core), "gpu" (one per GPU), or "auto" (per GPU
    /// if there are any, else per core) [default: 1]
    #[arg(short = 'n', long, alias = "nproc", value_name = "N|cpu|gpu|auto")]
    pub(super) nproc_per_node: Option<String>,
    /// Ranks of the whole job, as mpirun's -np: dealt out to --hosts as far as each has room
    #[arg(long, value_name = "N", conflicts_with = "nproc_per_node")]
    pub(super) np: Option<String>,
    #[command(flatten)]
    pub(super) form: Form,
    /// Set a variable for the ranks; NAME alone takes the value that it has here, which ranks on
    /// other hosts would not have otherwise; may be repeated
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(super) variables: Vec<OsString>,
    /// The folder in which the ranks run [default: this one, on all hosts]
    #[arg(long, visible_alias = "wd", value_name = "DIR")]
    pub(super) wdir: Option<PathBuf>,
    /// Cores that each rank may use: its own core, or the socket or NUMA node that it shares with
    /// its neighbours (Linux)
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Binding::None)]
    pub(super) bind_to: Binding,
    /// Name of the ranks' role, in ROLE_NAME
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(super) role: String,
    /// Append --local-rank=N to the program's arguments, as torch.distributed.launch did
    #[arg(long)]
    pub(super) pass_local_rank: bool,
    /// Ranks of the job that join by URL from elsewhere, after those that are started
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_RANKS_PER_NODE)))]
    pub(super) external: u32,
    /// Have MPI's own launcher start the ranks, as the mpi backend needs it
    #[arg(long)]
    pub(super) with_mpi: bool,
    /// Not offered: the ranks are programs, and every one is started anew
    #[arg(long, hide = true, value_name = "METHOD")]
    pub(super) start_method: Option<String>,
}

/// What a rank is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Binding {
    Core,
    Socket,
    Numa,
    None,
}

#[derive(Args)]
#[command(next_help_heading = "Several nodes, this command on each (torchrun)")]
pub(super) struct NodeArguments {
    /// One host and a free port: what happens anyway unless other options say more
    #[arg(long, conflicts_with_all = ["node_rank", "master_addr", "master_port", "hosts"])]
    #[arg(conflicts_with = "hostfile")]
    pub(super) standalone: bool,
    /// Number of hosts; each runs this command once. MIN:MAX where they come and go: all ranks are
    /// started again then, unless there are --replicas
    #[arg(long, default_value = "1", value_name = "N|MIN:MAX")]
    pub(super) nnodes: NodeCount,
    /// This host's number, from 0 [default: 0, or what the rendezvous hands out]
    #[arg(long)]
    pub(super) node_rank: Option<u32>,
    /// Name or address of the host of rank 0 [default: 127.0.0.1 on one node]
    #[arg(long)]
    pub(super) master_addr: Option<String>,
    /// Port of rank 0's store; 0 picks a free one [default: 29500 on several nodes without a
    /// rendezvous, else 0]
    #[arg(long)]
    pub(super) master_port: Option<u16>,
    /// Name of this job, the same on every node [default: POLYRANK_RUN_ID, torchrun's or Slurm's
    /// name, else made up]
    #[arg(long)]
    pub(super) run_id: Option<String>,
}

/// A number of nodes, or in torchrun's form MIN:MAX the fewest and the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeCount {
    pub(super) min: u32,
    pub(super) max: u32,
}

impl FromStr for NodeCount {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeCount, String> {
        let number = |text: &str| {
            let count = text.parse::<i64>();
            let count = count.map_err(|_| "expected a number of nodes, as in --nnodes 2")?;
            match u32::try_from(count).ok().filter(|count| (1..=65_536).contains(count)) {
                Some(count) => Ok(count),
                None => Err(format!("{count} is not in 1..=65536")),
            }
        };
        let (low, high) = text.split_once(':').unwrap_or((text, text));
        match (number(low)?, number(high)?) {
            (min, max) if min <= max => Ok(NodeCount { min, max }),
            (min, max) => Err(format!("{min}:{max}: expected MIN:MAX, as in --nnodes 1:4")),
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Several hosts, from here over ssh (mpirun)")]
pub(super) struct HostArguments {
    /// Start the ranks on these hosts: ssh runs this command on each, in the same folder; as many
    /// ranks on each as -n says, or as its own number. localhost and this host's own name need no
    /// ssh
    #[arg(short = 'H', long, visible_alias = "host", value_name = "HOST[:N],…")]
    #[arg(conflicts_with_all = ["nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint"])]
    pub(super) hosts: Option<String>,
    /// The same from a file: a line for each host, as in "a slots=4" or "a:4"
    #[arg(long, visible_alias = "machinefile", value_name = "FILE")]
    #[arg(conflicts_with_all = ["hosts", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint"])]
    pub(super) hostfile: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Output and logs")]
pub(super) struct OutputArguments {
    /// Show the ranks' lines as they are, without "[rank N] "
    #[arg(long, conflicts_with = "tag_output")]
    pub(super) no_prefix: bool,
    /// Show each line with its rank, which happens anyway
    #[arg(long, visible_alias = "prepend-rank")]
    pub(super) tag_output: bool,
    /// Show each line with the time (UTC) at which it came
    #[arg(long, visible_alias = "timestamp-output")]
    pub(super) timestamps: bool,
    /// Keep the ranks' output in files below DIR: NAME_…/attempt_N/LOCAL_RANK/stdout.log and
    /// stderr.log; without --redirects and --tee, all of it, which is shown as well
    #[arg(long, value_name = "DIR")]
    pub(super) log_dir: Option<PathBuf>,
    /// Streams that go to files and are not shown: 0 (none), 1 (stdout), 2 (stderr), 3 (both),
    /// for all ranks or for some of this host, as in 0:3,1:1
    #[arg(short = 'r', long, value_name = "STREAMS")]
    pub(super) redirects: Option<StreamSet>,
    /// Streams that go to files and are shown, in the same form
    #[arg(short = 't', long, value_name = "STREAMS")]
    pub(super) tee: Option<StreamSet>,
    /// Show the output of these ranks of the host alone; files have all of it
    #[arg(long, value_name = "N,…")]
    pub(super) local_ranks_filter: Option<LocalRanks>,
    /// Write what happened to FILE, as JSON: ranks, hosts, process ids, the store in which the
    /// ranks meet, how each ended and when, the first failure, restarts; also when the job fails
    /// or is interrupted
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Metrics")]
pub(super) struct MetricsArguments {
    /// Serve what the ranks of this host have called, counted, as OpenMetrics at
    /// http://127.0.0.1:PORT/metrics, for Prometheus; 0 picks a free port and says it. With
    /// --hosts, each host serves its own ranks', with --replicas, each replica, at PORT, PORT + 1 …
    #[arg(long, value_name = "PORT")]
    #[arg(conflicts_with = "with_mpi")]
    pub(super) metrics_port: Option<u16>,
    /// Address at which that is served; 0.0.0.0 is every one of this host, without passwords
    #[arg(long, value_name = "ADDRESS", requires = "metrics_port")]
    #[arg(default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(super) metrics_host: IpAddr,
}

#[derive(Args)]
#[command(next_help_heading = "Failures and endings")]
pub(super) struct EndingArguments {
    /// Start all ranks again when one fails, so many times; with --replicas, those of its replica
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) max_restarts: u32,
    /// Let the other ranks continue when one fails
    #[arg(long, conflicts_with = "max_restarts")]
    pub(super) keep_going: bool,
    /// End the job after so long, with exit code 124, and say which ranks still ran
    #[arg(long, value_name = "SECONDS", value_parser = limit)]
    pub(super) timeout: Option<f64>,
    /// Seconds between asking the ranks to stop (SIGTERM) and killing them (SIGKILL)
    #[arg(long, visible_alias = "shutdown-timeout", value_name = "SECONDS")]
    #[arg(default_value_t = 5.0, value_parser = seconds)]
    pub(super) grace: f64,
    /// Accepted for torchrun's sake: the end of a rank is noticed at once
    #[arg(long, value_name = "SECONDS")]
    pub(super) monitor_interval: Option<f64>,
}

/// What a launcher tells those that it starts on other hosts.
#[derive(Args)]
pub(super) struct AgentArguments {
    /// The launcher that is at the other end of standard input knows this one by this name
    #[arg(long, hide = true, value_name = "HOST")]
    pub(super) agent: Option<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("expected seconds between 0 and 86400, as in --grace 2.5".to_owned()),
    }
}

fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1e9 => Ok(value),
        _ => Err("expected seconds, as in --timeout 3600".to_owned()),
    }
}
