//! The launchers of one job on several hosts meet in a store, which one of them serves: who has
//! which ranks, whether all are still there, and how each start of the ranks ended.
//! Knows nothing of processes.
//!
//! ```text
//!  polyrank/N/node/K   what node K brings to start N of the ranks; who sets it first is node K
//!  polyrank/N/done     how many nodes' ranks have all ended well
//!  polyrank/N/end      how start N ended; the first to set it says so for all
//!  polyrank/beat/K     counts up while node K is there
//! ```

mod elastic;
mod replicas;
mod stalls;
mod watch;

use std::collections::BTreeSet;
use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use serde::{Deserialize, Serialize};

use crate::random;
pub(crate) use replicas::{EndOfAll, ReplicaNode};
pub(crate) use stalls::NodeStalls;

/// How long a launcher waits for the others before it says whom it waits for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The start of the ranks that a launcher joins that came later than the others.
const CURRENT: &str = "polyrank/current";
/// The name of the job.
const RUN_ID: &str = "polyrank/run_id";

/// Whether a launcher serves the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// If the endpoint is this host, and no other launcher of it was faster.
    IfHere,
    Always,
    Never,
}

/// How a launcher finds the others.
#[derive(Clone, Debug)]
pub(crate) struct NodeOptions {
    /// Where they meet.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) serving: Serving,
    /// The number of nodes; where they come and go, the most, and the fewest to begin with.
    pub(crate) node_count: u32,
    pub(crate) min_node_count: u32,
    /// This host's number, if it was told.
    pub(crate) node_rank: Option<u32>,
    /// This host's address for the others, if it was told.
    pub(crate) local_addr: Option<String>,
    /// How long all may take to come.
    pub(crate) join_timeout: Duration,
    /// How long others are waited for when there are enough nodes, but not all that may come.
    pub(crate) last_call: Duration,
    /// How often each says that it is there, and how often it may miss that.
    pub(crate) keep_alive: Duration,
    pub(crate) keep_alive_attempts: u32,
}

impl NodeOptions {
    /// Whether nodes come and go.
    fn is_elastic(&self) -> bool {
        self.min_node_count < self.node_count
    }

    /// How long a node may give no sign.
    fn silence_limit(&self) -> Duration {
        self.keep_alive * self.keep_alive_attempts
    }
}

/// What one node brings to a start of the ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The name of the host.
    pub(crate) host: String,
    pub(crate) local_world_size: u32,
    pub(crate) role: String,
    /// Where rank 0's store is, if this is node 0.
    pub(crate) master_addr: String,
    pub(crate) master_port: u16,
    /// Tells apart two nodes that offer the same.
    pub(crate) token: String,
}

/// Who takes part in a start of the ranks.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    pub(crate) restart: u32,
    /// How many of the starts before were because of nodes that came or went.
    pub(crate) changes: u32,
    pub(crate) node_rank: u32,
    pub(crate) offers: Vec<Offer>,
    /// The place of each node: its rank, unless nodes come and go.
    places: Vec<u32>,
    pub(crate) run_id: String,
}

/// How a start of the ranks ended, for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// All ranks ended well.
    Done,
    /// A rank failed, or a launcher was told to end.
    Failed {
        /// The node, and its host.
        node_rank: u32,
        host: String,
        /// What happened, in words.
        what: String,
        exit_code: i32,
        /// Whether another start may help.
        may_restart: bool,
        /// The signal that the launcher got, if that is what happened: it is for all ranks.
        signal: Option<i32>,
    },
    /// A launcher is not there any more, in words.
    Lost { what: String },
    /// A node has come, or the one at this place has gone: the others go on with another start.
    Changed { what: String, gone: Option<u32> },
}

impl Ending {
    /// The signal that is for all ranks, if a launcher got one.
    pub(crate) fn signal(&self) -> Option<i32> {
        match self {
            Ending::Failed { signal, .. } => *signal,
            Ending::Done | Ending::Lost { .. } | Ending::Changed { .. } => None,
        }
    }
}

/// This launcher among the others of its job.
pub(crate) struct Nodes {
    options: NodeOptions,
    store: Arc<TcpStore>,
    serves: bool,
    node_rank: Option<u32>,
    /// The number of nodes in the last start.
    count: u32,
    /// Where nodes come and go, the place of this one, and those that are expected in the next
    /// start: of the last one, as far as they are there.
    place: Option<u32>,
    expected: Option<BTreeSet<u32>>,
}

impl Nodes {
    /// Serves the store, or connects to it.
    ///
    /// # Errors
    /// In words: nobody serves the store in time, or something else is at its port.
    pub(crate) fn open(options: NodeOptions) -> Result<Nodes, String> {
        let serves = match options.serving {
            Serving::IfHere => is_here(&options.host),
            Serving::Always => true,
            Serving::Never => false,
        };
        let endpoint = format!("{}:{}", options.host, options.port);
        let timeout = options.join_timeout;
        let new = |is_master| {
            let options = TcpStoreOptions::new(options.host.as_str(), options.port);
            let options = options.is_master(is_master).wait_for_workers(false).timeout(timeout);
            TcpStore::new(options)
        };
        let served = if serves { new(true) } else { new(false) };
        let (store, serves) = match served {
            Ok(store) => (store, serves),
            // Another launcher of this host was faster.
            Err(_) if serves && options.serving == Serving::IfHere => {
                let store = new(false).map_err(|error| not_there(&endpoint, &error))?;
                (store, false)
            }
            Err(error) if serves => {
                return Err(format!("the rendezvous at {endpoint} cannot be served: {error}"));
            }
            Err(error) => return Err(not_there(&endpoint, &error)),
        };
        let (count, store) = (options.node_count, Arc::new(store));
        Ok(Nodes { options, store, serves, node_rank: None, count, place: None, expected: None })
    }

    /// The port of the store.
    pub(crate) fn port(&self) -> u16 {
        self.store.port()
    }

    /// Whether this launcher serves the store.
    pub(crate) fn serves(&self) -> bool {
        self.serves
    }

    /// Offers this node's ranks for a start, and waits for the other nodes' offers. `run_id` is
    /// the job's name, as far as this launcher knows it, and `made_up` one for a job without.
    ///
    /// # Errors
    /// In words: not all nodes came in time, or they are of another job.
    pub(crate) fn meet(
        &mut self,
        (restart, changes): (u32, u32),
        mut offer: Offer,
        (run_id, made_up): (Option<&str>, &str),
        say: impl Fn(&str),
    ) -> Result<Roster, String> {
        let run_id = self.agree_on_run(run_id, made_up)?;
        let random = random::bytes::<8>().map_err(|error| error.to_string())?;
        offer.token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        if offer.master_addr.is_empty() {
            offer.master_addr = self.own_address();
        }
        if self.options.is_elastic() {
            let roster = self.meet_elastic(restart, changes, &offer, (run_id, &say))?;
            self.count = roster.offers.len() as u32;
            self.expected = Some(roster.places.iter().copied().collect());
            self.store.set_timeout(self.options.silence_limit());
            return Ok(roster);
        }
        let restart = self.current(restart)?;
        let node_rank = self.claim(restart, &offer)?;
        self.node_rank = Some(node_rank);
        self.store.add(&beat(node_rank), 1).map_err(words)?;
        let offers = self.wait_for_all(restart, say)?;
        // Whoever serves the store was there just now; if it is gone, that is soon seen.
        self.store.set_timeout(self.options.silence_limit());
        if self.serves {
            self.store.set(CURRENT, restart.to_string().as_bytes()).map_err(words)?;
        }
        let places = (0..self.options.node_count).collect();
        Ok(Roster { restart, changes, node_rank, offers, places, run_id })
    }

    /// Whether this launcher may go without ending the job.
    pub(crate) fn may_go(&self) -> bool {
        self.options.is_elastic() && !self.serves
    }

    /// How a start ends for the others when this launcher goes.
    pub(crate) fn going(&self, host: &str, why: &str) -> Ending {
        Ending::Changed { what: format!("{host} has gone: {why}"), gone: self.place }
    }

    /// Takes in how the last start ended: who has gone is not expected again.
    pub(crate) fn ended(&mut self, ending: &Ending) {
        if let (Ending::Changed { gone: Some(gone), .. }, Some(expected)) =
            (ending, &mut self.expected)
        {
            expected.remove(gone);
        }
    }

    /// Reports how this node's ranks ended; where all ended well, so the others' may yet fail.
    pub(crate) fn report(&self, restart: u32, ending: &Ending) {
        // An error means that the store is gone, which the watch reports.
        let _ = self.try_report(restart, ending);
    }

    /// Waits, if this node serves the store, until the others know how the job ended.
    pub(crate) fn leave(&self) {
        let (key, count) = ("polyrank/left", i64::from(self.count));
        let limit = self.options.silence_limit();
        let Ok(left) = self.store.add(key, 1) else { return };
        let all = "polyrank/all_left";
        if left >= count {
            let _ = self.store.set(all, b"1");
        } else if self.serves {
            let _ = self.store.wait(&[all], Some(limit));
        }
    }

    fn try_report(&self, restart: u32, ending: &Ending) -> polyrank::Result<()> {
        let own = match ending {
            Ending::Done => {
                let done = self.store.add(&key(restart, "done"), 1)?;
                (done >= i64::from(self.count)).then_some(&Ending::Done)
            }
            other => Some(other),
        };
        if let Some(text) = own.and_then(|ending| serde_json::to_vec(ending).ok()) {
            self.store.compare_set(&key(restart, "end"), b"", &text)?;
        }
        Ok(())
    }

    fn agree_on_run(&self, run_id: Option<&str>, made_up: &str) -> Result<String, String> {
        // The node that serves names the job; the others compare.
        let agreed = match self.serves {
            true => self.store.compare_set(RUN_ID, b"", run_id.unwrap_or(made_up).as_bytes()),
            false => self.store.get(RUN_ID),
        };
        let agreed = String::from_utf8_lossy(&agreed.map_err(words)?).into_owned();
        match run_id {
            Some(name) if name != agreed => Err(format!(
                "the launchers at {}:{} start job '{agreed}', and this one '{name}': give all the \
                 same --rdzv-id, or another --rdzv-endpoint",
                self.options.host, self.options.port
            )),
            _ => Ok(agreed),
        }
    }

    /// The start to take part in: a launcher that was started again joins what the others do.
    fn current(&self, restart: u32) -> Result<u32, String> {
        if restart > 0 || !self.store.check(&[CURRENT]).map_err(words)? {
            return Ok(restart);
        }
        let text = self.store.get(CURRENT).map_err(words)?;
        let number: u32 = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        Ok(number + 1)
    }

    fn own_address(&self) -> String {
        if self.serves {
            return self.options.host.clone();
        }
        let address = self.store.local_address().map(|address| address.to_string());
        self.options.local_addr.clone().or(address).unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// Takes a place among the nodes: the one that was given or that this node had, or the first
    /// that is free. Place 0 is that of the node that serves, whose address all know.
    fn claim(&self, restart: u32, offer: &Offer) -> Result<u32, String> {
        let count = self.options.node_count;
        let text = serde_json::to_vec(offer).map_err(|error| error.to_string())?;
        let take = |rank: u32| {
            let held = self.store.compare_set(&node(restart, rank), b"", &text);
            held.map(|held| held == text).map_err(words)
        };
        if let Some(rank) = self.options.node_rank {
            return match take(rank)? {
                true => Ok(rank),
                false => Err(format!("node {rank} is there already: give each its --node-rank")),
            };
        }
        let places = match self.serves {
            true => 0..1,
            false => 1..count,
        };
        for rank in self.node_rank.into_iter().chain(places) {
            if take(rank)? {
                return Ok(rank);
            }
        }
        Err(format!(
            "all {count} nodes of the job are there already: --nnodes says how many there are"
        ))
    }

    fn wait_for_all(&self, restart: u32, say: impl Fn(&str)) -> Result<Vec<Offer>, String> {
        let keys: Vec<String> =
            (0..self.options.node_count).map(|rank| node(restart, rank)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let end = Instant::now() + self.options.join_timeout;
        let mut patience = PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.store.wait(&keys, Some(left.min(patience))).is_ok() {
                break;
            }
            let missing = self.missing(restart)?;
            if missing.is_empty() {
                continue;
            }
            let whom = format!(
                "{} of {} nodes are at the rendezvous {}:{}; missing: node {}",
                keys.len() - missing.len(),
                keys.len(),
                self.options.host,
                self.port(),
                missing.join(", ")
            );
            if left <= patience {
                return Err(self.too_late(&whom));
            }
            say(&whom);
            patience *= 2;
        }
        let offers = self.store.multi_get(&keys).map_err(words)?;
        let parsed = offers.iter().map(|offer| serde_json::from_slice(offer));
        parsed.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    /// The error when the time is over in which nodes have to come; `whom` says who came.
    fn too_late(&self, whom: &str) -> String {
        let seconds = self.options.join_timeout.as_secs_f64();
        format!(
            "{whom}. Start this command on all of them within {seconds} s (--rdzv-conf \
             join_timeout=…)"
        )
    }

    fn missing(&self, restart: u32) -> Result<Vec<String>, String> {
        let mut missing = Vec::new();
        for rank in 0..self.options.node_count {
            if !self.store.check(&[&node(restart, rank)]).map_err(words)? {
                missing.push(rank.to_string());
            }
        }
        Ok(missing)
    }
}

fn key(restart: u32, what: &str) -> String {
    format!("polyrank/{restart}/{what}")
}

fn node(restart: u32, rank: u32) -> String {
    key(restart, &format!("node/{rank}"))
}

fn beat(rank: u32) -> String {
    format!("polyrank/beat/{rank}")
}

fn words(error: polyrank::Error) -> String {
    format!("the rendezvous is gone: {error}")
}

fn not_there(endpoint: &str, error: &polyrank::Error) -> String {
    format!(
        "nothing serves the rendezvous at {endpoint}: {error}. Is the host of --rdzv-endpoint \
             one of the job's, and its launcher started?"
    )
}

/// Whether a name or an address is this host's: only an own address can be bound. Nothing is sent.
fn is_here(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs();
    addresses.into_iter().flatten().any(|address| UdpSocket::bind(address).is_ok())
}
