//! The options of a job of replicas, which fail and are started again each by itself. Knows nothing
//! of processes.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use polyrank::env::variable;

use super::job::{JobLighthouse, Replicas};
use super::options::NodeCount;
use super::parts::MAX_RANKS_PER_NODE;
use crate::lighthouse::duration;

/// What replicas there are, and where their lighthouse is.
#[derive(Args)]
#[command(next_help_heading = "Replicas that come and go (torchft)")]
pub(super) struct ReplicaArguments {
    /// Start the ranks so many times, each time as a replica: -n is the number of its ranks, which
    /// have a store of their own. If one of them fails, that replica alone is started again. With
    /// --nnodes N, the nodes share so many replicas; with MIN:MAX each that comes adds as many
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS_PER_NODE)))]
    #[arg(conflicts_with_all = ["hosts", "hostfile", "with_mpi", "external", "keep_going", "np"])]
    #[arg(conflicts_with_all = ["master_addr", "master_port", "agent"])]
    pub(super) replicas: Option<u32>,
    /// With fewer replicas the job does not go on, nor does its lighthouse let them train
    #[arg(long, value_name = "N", requires = "replicas", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    min_replicas: u32,
    /// The lighthouse that the replicas ask [default: that of TORCHFT_LIGHTHOUSE, or one that the
    /// launcher serves]
    #[arg(long, value_name = "http://HOST:PORT", requires = "replicas", value_parser = lighthouse)]
    lighthouse: Option<String>,
    /// How long replicas that ask wait for those that are alive and do not: longer than they are
    /// apart between two steps, and less than the limit of their calls [default: 30]
    #[arg(long, value_name = "SECONDS", requires = "replicas", conflicts_with = "lighthouse")]
    #[arg(value_parser = duration)]
    join_timeout: Option<Duration>,
}

impl ReplicaArguments {
    /// Checks the options of a job whose replicas have `rank_count` ranks, in words.
    pub(super) fn resolved(
        &self,
        rank_count: Option<&str>,
        nodes: NodeCount,
        variables: &[(OsString, OsString)],
    ) -> Result<Option<Replicas>, String> {
        let Some(count) = self.replicas else { return Ok(None) };
        let is_elastic = nodes.min < nodes.max;
        let most = if is_elastic { u64::from(count) * u64::from(nodes.max) } else { count.into() };
        if u64::from(self.min_replicas) > most {
            let min = self.min_replicas;
            return Err(format!(
                "--min-replicas {min} are more than there can be: --replicas {count} make {most}"
            ));
        }
        if !is_elastic && count < nodes.max {
            let nodes = nodes.max;
            return Err(format!(
                "--replicas {count} --nnodes {nodes}: each node has a replica at least"
            ));
        }
        if let Some(word) = rank_count.filter(|text| text.parse::<u32>().is_err() && count > 1) {
            return Err(format!(
                "-n {word} counts what this host has, and --replicas {count} share it: give the \
                 number of ranks of one replica, as in -n 2"
            ));
        }
        let lighthouse = self.lighthouse_of(variables)?;
        Ok(Some(Replicas { count, min: self.min_replicas, lighthouse }))
    }

    fn lighthouse_of(&self, variables: &[(OsString, OsString)]) -> Result<JobLighthouse, String> {
        if let Some(url) = &self.lighthouse {
            return Ok(JobLighthouse::Elsewhere { url: url.clone(), variable: None });
        }
        // A variable for the ranks goes before what this command has.
        let name = variable::TORCHFT_LIGHTHOUSE;
        let of_ranks = variables.iter().rev().find(|(own, _)| own == name.name());
        let of_ranks = of_ranks.map(|(_, value)| value.to_string_lossy().into_owned());
        let given = of_ranks.or_else(|| name.text());
        let Some(text) = given else {
            return Ok(JobLighthouse::Served { join_timeout: self.join_timeout });
        };
        let url = lighthouse(&text).map_err(|error| format!("{name}: {error}"))?;
        if self.join_timeout.is_some() {
            return Err(format!(
                "--join-timeout is for a lighthouse that the launcher serves, and {name} names \
                 that at {url}: unset it, or start that one with --join-timeout"
            ));
        }
        Ok(JobLighthouse::Elsewhere { url, variable: Some(name.name()) })
    }
}

/// An address as managers take it.
fn lighthouse(text: &str) -> Result<String, String> {
    let (host, port) = text
        .strip_prefix("http://")
        .and_then(|rest| rest.trim_end_matches('/').rsplit_once(':'))
        .unwrap_or_default();
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("{text}: expected http://HOST:PORT, as in http://host-a:29510")),
    }
}
