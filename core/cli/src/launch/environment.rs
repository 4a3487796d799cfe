//! What each rank finds in its environment, and the port on which rank 0 will listen.
//! Knows nothing of processes or of what the ranks do with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use super::arguments::job::Job;
use crate::nodes::Roster;
use polyrank::env;
use polyrank::env::variable::{self, Variable};

/// What tells a rank its place in the job, in the order of [`JobEnvironment::variables`].
pub(super) const PLACE: [Variable; 13] = [
    variable::RANK,
    variable::LOCAL_RANK,
    variable::WORLD_SIZE,
    variable::LOCAL_WORLD_SIZE,
    variable::GROUP_RANK,
    variable::GROUP_WORLD_SIZE,
    variable::MASTER_ADDR,
    variable::MASTER_PORT,
    variable::POLYRANK_RUN_ID,
    variable::TORCHELASTIC_RUN_ID,
    variable::TORCHELASTIC_RESTART_COUNT,
    variable::TORCHELASTIC_MAX_RESTARTS,
    variable::TORCHELASTIC_ERROR_FILE,
];

/// What torchrun says too, for programs that ask for it; nothing of ours reads it.
const ROLE_NAME: &str = "ROLE_NAME";
const ROLE_RANK: &str = "ROLE_RANK";
const ROLE_WORLD_SIZE: &str = "ROLE_WORLD_SIZE";

/// Where the ranks of this host are in the job.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node_rank: u32,
    pub(super) node_count: u32,
    /// The first rank of this host.
    pub(super) first_rank: u32,
    /// The ranks of the whole job that are started, here and on the other hosts.
    pub(super) started_world_size: u32,
    /// The ranks of the whole job.
    pub(super) world_size: u32,
    role_first_rank: u32,
    role_world_size: u32,
    master_addr: String,
    master_port: u16,
}

impl Place {
    /// The place of a node that was told its number; all have as many ranks.
    pub(super) fn of_node(job: &Job, environment: &JobEnvironment) -> Place {
        let local = job.local_world_size();
        let first_rank = job.node_rank * local;
        let started_world_size = local * job.node_count;
        Place {
            node_rank: job.node_rank,
            node_count: job.node_count,
            first_rank,
            started_world_size,
            world_size: started_world_size + job.external_count,
            role_first_rank: first_rank,
            role_world_size: started_world_size,
            master_addr: job.master_addr.clone(),
            master_port: environment.master_port,
        }
    }

    /// The place of a node among those that have met.
    pub(super) fn in_roster(job: &Job, roster: &Roster) -> Place {
        let (before, all) = (&roster.offers[..roster.node_rank as usize], &roster.offers[..]);
        let ranks = |offers: &[crate::nodes::Offer]| -> u32 {
            offers.iter().map(|offer| offer.local_world_size).sum()
        };
        let of_role = |offers: &[crate::nodes::Offer]| -> u32 {
            let same = offers.iter().filter(|offer| offer.role == job.role);
            same.map(|offer| offer.local_world_size).sum()
        };
        let first = &roster.offers[0];
        Place {
            node_rank: roster.node_rank,
            node_count: all.len() as u32,
            first_rank: ranks(before),
            started_world_size: ranks(all),
            world_size: ranks(all) + job.external_count,
            role_first_rank: of_role(before),
            role_world_size: of_role(all),
            master_addr: first.master_addr.clone(),
            master_port: first.master_port,
        }
    }
}

impl Place {
    /// Where the ranks meet.
    pub(super) fn store_url(&self) -> String {
        format!("tcp://{}", self.store())
    }

    fn store(&self) -> String {
        let Place { master_addr, master_port, .. } = self;
        // An IPv6 address is in brackets.
        match master_addr.contains(':') && !master_addr.starts_with('[') {
            true => format!("[{master_addr}]:{master_port}"),
            false => format!("{master_addr}:{master_port}"),
        }
    }
}

/// The variables that are the same for every rank of a job.
pub(super) struct JobEnvironment {
    pub(super) master_port: u16,
    pub(super) run_id: String,
    /// Whether somebody chose the name.
    pub(super) is_named: bool,
    /// Keeps the port from being given to anybody else while the job runs.
    _reservation: Option<Socket>,
}

impl JobEnvironment {
    /// Chooses the port and the name of the job.
    pub(super) fn new(job: &Job) -> io::Result<JobEnvironment> {
        let (master_port, reservation) = match job.master_port {
            0 => reserve_port()?,
            port => (port, None),
        };
        let given = given_run_id(job);
        let is_named = given.is_some();
        let run_id = match given {
            Some(name) => name,
            // Every node must derive the same name without talking to the others.
            // The address may be spelled in another way on each.
            None if job.node_count > 1 && job.meeting.is_none() => format!("port-{master_port}"),
            None => made_up_run_id(),
        };
        Ok(JobEnvironment { master_port, run_id, is_named, _reservation: reservation })
    }

    /// The ranks that join from elsewhere and the URL by which each does.
    pub(super) fn external_urls(&self, place: &Place) -> Vec<(u32, String)> {
        let (store, size) = (place.store(), place.world_size);
        let run_id = encoded(&self.run_id);
        let url = |rank| format!("ws://{store}/?rank={rank}&world_size={size}&run_id={run_id}");
        (place.started_world_size..size).map(|rank| (rank, url(rank))).collect()
    }

    /// The variables of one rank, by its number on this host; those of the user come last.
    pub(super) fn variables(
        &self,
        job: &Job,
        place: &Place,
        (restart, local_rank): (u32, u32),
        error_file: &Path,
    ) -> Vec<(OsString, OsString)> {
        let local_world_size = job.local_world_size();
        let values: [String; 12] = [
            (place.first_rank + local_rank).to_string(),
            local_rank.to_string(),
            place.world_size.to_string(),
            local_world_size.to_string(),
            place.node_rank.to_string(),
            place.node_count.to_string(),
            place.master_addr.clone(),
            place.master_port.to_string(),
            self.run_id.clone(),
            self.run_id.clone(),
            restart.to_string(),
            job.max_restarts.to_string(),
        ];
        let values = values.into_iter().map(OsString::from).chain([error_file.into()]);
        let mut variables: Vec<_> =
            PLACE.iter().map(|variable| variable.name()).zip(values).collect();
        let role_rank = place.role_first_rank + local_rank;
        variables.push((ROLE_NAME, job.role.clone().into()));
        variables.push((ROLE_RANK, role_rank.to_string().into()));
        variables.push((ROLE_WORLD_SIZE, place.role_world_size.to_string().into()));
        // A rank that is killed loses what Python still holds in its buffer: its last lines.
        let mut unless_set = vec![(variable::PYTHONUNBUFFERED, "1")];
        if local_world_size > 1 {
            // Each rank would otherwise start a thread per core in its numerical library.
            unless_set.push((variable::OMP_NUM_THREADS, "1"));
        }
        unless_set.retain(|(variable, _)| !variable.is_set());
        variables
            .extend(unless_set.iter().map(|(variable, value)| (variable.name(), value.into())));
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value));
        let is_own = |(name, _): &(OsString, OsString)| {
            !job.variables.iter().any(|(other, _)| OsStr::new(other) == name.as_os_str())
        };
        variables.filter(is_own).chain(job.variables.iter().cloned()).collect()
    }
}

/// The name of a job; if it has none, one that no other job has.
pub(super) fn run_id(job: &Job) -> String {
    given_run_id(job).unwrap_or_else(made_up_run_id)
}

/// The name of a job, if somebody chose one.
pub(super) fn given_run_id(job: &Job) -> Option<String> {
    job.run_id.clone().or_else(env::run_id)
}

fn made_up_run_id() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", since_1970.as_micros(), std::process::id())
}

/// `text` as a part of a URL's query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Finds a free port and holds on to it without listening.
///
/// On Linux two sockets with `SO_REUSEADDR` may share a port as long as at most one of them
/// listens, and a port that is bound is given to nobody who asks for any free one (socket(7),
/// ip(7)). So rank 0 can take this port and a stranger does not get it by chance. Elsewhere the
/// socket must be closed first, and a short race remains.
pub(crate) fn reserve_port() -> io::Result<(u16, Option<Socket>)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    let address = socket.local_addr()?.as_socket();
    let port = address.map(|address| address.port()).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((port, cfg!(target_os = "linux").then_some(socket)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_can_be_taken_by_rank_0_and_by_nobody_else() {
        let (port, _reservation) = reserve_port().unwrap();
        for _ in 0..200 {
            let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            assert_ne!(stranger.local_addr().unwrap().port(), port);
        }
        // The standard library sets SO_REUSEADDR, as every store server does.
        TcpListener::bind(("0.0.0.0", port)).unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
