//! Which replicas of a job this host has, and where their lighthouse is: alone, or together with
//! the launchers of other hosts. Knows nothing of processes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use polyrank_quorum::Lighthouse;
use polyrank_quorum::host::{authority, is_loopback};

use super::super::arguments::job::{Job, JobLighthouse, Replicas};
use super::super::attempt::EXIT_TIMEOUT;
use super::super::environment;
use super::super::events::{asks_to_end, receive};
use super::super::record;
use super::super::report::{say, signal_name};
use super::Event;
use crate::lighthouse;
use crate::nodes::{NodeOptions, Nodes, ReplicaNode};

/// What this host has of a job.
pub(super) struct Place {
    pub(super) run_id: String,
    /// The number of the first replica here, how many there are here, and in the job.
    pub(super) first: u32,
    pub(super) here: u32,
    pub(super) count: u32,
    pub(super) lighthouse: String,
    /// It serves as long as this is kept.
    _served: Option<Lighthouse>,
    /// This host's address for others, and its launchers, if there are any.
    pub(super) address: Option<String>,
    pub(super) node: Option<Arc<ReplicaNode>>,
}

/// Why there is none.
pub(super) struct NoPlace {
    pub(super) exit_code: i32,
}

impl Place {
    /// The place of this host; other nodes are waited for, as far as there are any.
    pub(super) fn find(
        job: &Job,
        replicas: &Replicas,
        deadline: Option<Instant>,
        (events, inbox): (&Sender<Event>, &Receiver<Event>),
    ) -> Result<Place, NoPlace> {
        let found = match &job.meeting {
            None => alone(job, replicas),
            Some(options) => {
                let (job, replicas) = (job.clone(), replicas.clone());
                let (options, events) = (options.clone(), events.clone());
                // On a thread of its own, since a signal may come before the others do.
                thread::spawn(move || {
                    let place = among_nodes(&job, &replicas, options);
                    let _ = events.send(Event::Placed(Box::new(place)));
                });
                return wait(deadline, inbox);
            }
        };
        found.map_err(|message| {
            say(&message);
            NoPlace { exit_code: 1 }
        })
    }
}

fn wait(deadline: Option<Instant>, inbox: &Receiver<Event>) -> Result<Place, NoPlace> {
    loop {
        match receive(inbox, deadline) {
            Ok(Event::Placed(place)) => {
                return place.map_err(|message| {
                    say(&message);
                    NoPlace { exit_code: 1 }
                });
            }
            Ok(Event::Signal(signal)) if asks_to_end(signal) => {
                let name = signal_name(signal);
                say(&format!("{name} while the launchers of the other nodes were waited for"));
                return Err(NoPlace { exit_code: 128 + signal });
            }
            Ok(_) => {}
            Err(_) => {
                say("--timeout is over, and not all nodes have come");
                return Err(NoPlace { exit_code: EXIT_TIMEOUT });
            }
        }
    }
}

fn alone(job: &Job, replicas: &Replicas) -> Result<Place, String> {
    let (served, url) = match &replicas.lighthouse {
        JobLighthouse::Elsewhere { url, variable } => (None, elsewhere(url, *variable)),
        JobLighthouse::Served { join_timeout } => {
            let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let served = served(replicas.min, *join_timeout, localhost)?;
            let url = served.url();
            say(&format!("the lighthouse of the replicas is at {url}"));
            (Some(served), url)
        }
    };
    Ok(Place {
        run_id: environment::run_id(job),
        first: 0,
        here: replicas.count,
        count: replicas.count,
        lighthouse: url,
        _served: served,
        address: None,
        node: None,
    })
}

fn among_nodes(job: &Job, replicas: &Replicas, options: NodeOptions) -> Result<Place, String> {
    let is_elastic = options.min_node_count < options.node_count;
    let node_count = options.node_count;
    let nodes = Nodes::open(options)?;
    let mut served_here = None;
    let url = match &replicas.lighthouse {
        JobLighthouse::Elsewhere { url, variable } => elsewhere(url, *variable),
        JobLighthouse::Served { join_timeout } if nodes.serves() => {
            let host = nodes.endpoint_host().to_owned();
            let served = served(replicas.min, *join_timeout, listening(&host))?;
            let url = format!("http://{}", authority(&host, served.address().port()));
            nodes.tell_lighthouse(&url)?;
            say(&format!("the lighthouse of the replicas is at {url}"));
            served_here = Some(served);
            url
        }
        JobLighthouse::Served { .. } => nodes.lighthouse()?,
    };
    let of_node = |place: u32| match is_elastic {
        true => (place * replicas.count, replicas.count),
        false => dealt(replicas.count, node_count, place),
    };
    let given = environment::given_run_id(job);
    let made_up = environment::run_id(job);
    let address = nodes.address();
    let count_of = |place| of_node(place).1;
    let node = nodes.join(&record::host(), count_of, (given.as_deref(), &made_up), say)?;
    let (first, here) = of_node(node.place);
    Ok(Place {
        run_id: node.run_id.clone(),
        first,
        here,
        count: if is_elastic { replicas.count * node_count } else { replicas.count },
        lighthouse: url,
        _served: served_here,
        address: Some(address),
        node: Some(Arc::new(node)),
    })
}

/// The first replica of a node, and how many it has, where they are dealt out as evenly as can be.
fn dealt(replicas: u32, nodes: u32, node: u32) -> (u32, u32) {
    let (each, more) = (replicas / nodes, replicas % nodes);
    (node * each + node.min(more), each + u32::from(node < more))
}

/// Says which lighthouse it is where a variable names it, of which nobody may have thought.
fn elsewhere(url: &str, variable: Option<&str>) -> String {
    if let Some(name) = variable {
        say(&format!("the lighthouse of the replicas is that at {url}, which {name} names"));
    }
    url.to_owned()
}

fn served(min: u32, join_timeout: Option<Duration>, address: IpAddr) -> Result<Lighthouse, String> {
    lighthouse::of_job(min, join_timeout, address)
        .map_err(|error| format!("the lighthouse of the replicas cannot be served: {error}"))
}

/// Where a lighthouse listens that others reach at `host`.
fn listening(host: &str) -> IpAddr {
    let address = host.parse::<IpAddr>();
    match address {
        Ok(address) if address.is_loopback() => address,
        _ if is_loopback(host) => Ipv4Addr::LOCALHOST.into(),
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_dealt_out_evenly_and_in_order() {
        let all = |replicas, nodes| (0..nodes).map(|node| dealt(replicas, nodes, node)).collect();
        let found: Vec<(u32, u32)> = all(5, 3);
        assert_eq!(found, [(0, 2), (2, 2), (4, 1)]);
        let found: Vec<(u32, u32)> = all(4, 2);
        assert_eq!(found, [(0, 2), (2, 2)]);
    }

    #[test]
    fn a_lighthouse_is_open_to_others_only_where_there_are_any() {
        let at = |host| listening(host).to_string();
        assert_eq!(["localhost", "127.0.0.2", "::1"].map(at), ["127.0.0.1", "127.0.0.2", "::1"]);
        assert_eq!(["host-a", "10.0.0.1", "fd00::1"].map(at), ["0.0.0.0", "0.0.0.0", "::"]);
    }
}
