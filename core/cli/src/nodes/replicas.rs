//! The launchers of a job whose replicas are on several hosts: which replicas each has, where their
//! lighthouse is, and whether enough of them are left. A node that comes or goes changes nothing
//! for the replicas of others. Knows nothing of processes.
//!
//! ```text
//!  polyrank/replicas/lighthouse   where it is
//!  polyrank/replicas/node/K       who is node K, and how many of its replicas are left
//!  polyrank/replicas/come         counts the nodes that have come
//!  polyrank/replicas/enough       is there when so many have come as the job begins with
//!  polyrank/replicas/end          why the job has ended for all
//!  polyrank/beat/K                counts up while node K is there
//! ```

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use serde::{Deserialize, Serialize};

use super::{Nodes, PATIENCE, beat, words};
use crate::random;

const LIGHTHOUSE: &str = "polyrank/replicas/lighthouse";
const COME: &str = "polyrank/replicas/come";
const ENOUGH: &str = "polyrank/replicas/enough";
const END: &str = "polyrank/replicas/end";

/// Who is a node, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Presence {
    host: String,
    /// Its replicas that run, or have ended well.
    left: u32,
    /// Whether its launcher is there; if not, another may take its place.
    is_here: bool,
    /// Tells apart two launchers of a host.
    token: String,
}

/// Why the job has ended for all nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndOfAll {
    pub(crate) what: String,
    pub(crate) exit_code: i32,
    /// The node that says so.
    pub(crate) node: u32,
}

/// This launcher among those of the other nodes.
pub(crate) struct ReplicaNode {
    nodes: Nodes,
    pub(crate) run_id: String,
    /// The number of this node.
    pub(crate) place: u32,
    presence: Mutex<Presence>,
}

impl Nodes {
    /// Says where the lighthouse is that this node serves.
    ///
    /// # Errors
    /// In words: the rendezvous is gone.
    pub(crate) fn tell_lighthouse(&self, url: &str) -> Result<(), String> {
        self.store.set(LIGHTHOUSE, url.as_bytes()).map_err(words)
    }

    /// Where the lighthouse is that another node serves.
    ///
    /// # Errors
    /// In words: nobody says it in time.
    pub(crate) fn lighthouse(&self) -> Result<String, String> {
        let url = self.store.get(LIGHTHOUSE).map_err(words)?;
        Ok(String::from_utf8_lossy(&url).into_owned())
    }

    /// The endpoint's host, by which all nodes reach the one that serves.
    pub(crate) fn endpoint_host(&self) -> &str {
        &self.options.host
    }

    /// This host's address for the others.
    pub(crate) fn address(&self) -> String {
        self.own_address()
    }

    /// Takes a place, and waits until there are enough nodes to begin; `count` says how many
    /// replicas a node has by its place.
    ///
    /// # Errors
    /// In words: the launchers are of another job, all places are taken, or too few nodes came.
    pub(crate) fn join(
        self,
        host: &str,
        count: impl Fn(u32) -> u32,
        (run_id, made_up): (Option<&str>, &str),
        say: impl Fn(&str),
    ) -> Result<ReplicaNode, String> {
        let run_id = self.agree_on_run(run_id, made_up)?;
        let random = random::bytes::<8>().map_err(|error| error.to_string())?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let presence = Presence { host: host.to_owned(), left: 0, is_here: true, token };
        let (place, presence) = self.take_place(&presence, count)?;
        self.store.add(&beat(place), 1).map_err(words)?;
        self.wait_for_enough(say)?;
        // Whoever serves the store was there just now; if it is gone, that is soon seen.
        self.store.set_timeout(self.options.silence_limit());
        Ok(ReplicaNode { nodes: self, run_id, place, presence: Mutex::new(presence) })
    }

    /// A place that nobody has, or whose node is gone. Place 0 is that of the node that serves.
    fn take_place(
        &self,
        presence: &Presence,
        count: impl Fn(u32) -> u32,
    ) -> Result<(u32, Presence), String> {
        let places = match (self.options.node_rank, self.serves) {
            (Some(rank), _) => rank..rank + 1,
            (None, true) => 0..1,
            (None, false) => 1..self.options.node_count,
        };
        // A launcher that was killed is known to be gone after that time.
        let until = Instant::now() + 2 * self.options.silence_limit();
        loop {
            for place in places.clone() {
                let own = Presence { left: count(place), ..presence.clone() };
                let text = serde_json::to_vec(&own).map_err(|error| error.to_string())?;
                let key = node(place);
                let mut held = self.store.compare_set(&key, b"", &text).map_err(words)?;
                if held != text && parse(&held).is_some_and(|other| !other.is_here) {
                    held = self.store.compare_set(&key, &held, &text).map_err(words)?;
                }
                if held == text {
                    return Ok((place, own));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.ended_within(left.min(self.options.keep_alive))?;
        }
        let count = self.options.node_count;
        Err(match self.options.node_rank {
            Some(rank) => format!("node {rank} is there already: give each its --node-rank"),
            None => format!(
                "all {count} nodes of the job are there already: --nnodes says how many there are"
            ),
        })
    }

    /// An error if the job ends within that time.
    fn ended_within(&self, limit: Duration) -> Result<(), String> {
        match self.store.wait(&[END], Some(limit)) {
            Ok(()) => Err("the job has ended".to_owned()),
            Err(_) => Ok(()),
        }
    }

    fn wait_for_enough(&self, say: impl Fn(&str)) -> Result<(), String> {
        let min = i64::from(self.options.min_node_count);
        if self.store.add(COME, 1).map_err(words)? >= min {
            self.store.set(ENOUGH, b"1").map_err(words)?;
        }
        let end = Instant::now() + self.options.join_timeout;
        let mut patience = PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.store.wait(&[ENOUGH], Some(left.min(patience))).is_ok() {
                return Ok(());
            }
            let come = self.store.add(COME, 0).map_err(words)?;
            let (host, port) = (&self.options.host, self.port());
            let whom = format!("{come} of {min} nodes are at the rendezvous {host}:{port}");
            if left <= patience {
                return Err(self.too_late(&whom));
            }
            say(&whom);
            patience *= 2;
        }
    }
}

impl ReplicaNode {
    /// Whether this node serves the rendezvous.
    pub(crate) fn serves(&self) -> bool {
        self.nodes.serves
    }

    /// Tells how many of this node's replicas are left; how many are on the others.
    pub(crate) fn tell_left(&self, left: u32) -> u32 {
        self.update(left, true);
        let others = self.others();
        // Without the store the job ends, which the watch says.
        others.map_or(u32::MAX / 2, |others| others.iter().map(|(_, other)| other.left).sum())
    }

    /// Ends the job on all nodes, if nobody has before.
    pub(crate) fn end_all(&self, what: &str, exit_code: i32) {
        let end = EndOfAll { what: what.to_owned(), exit_code, node: self.place };
        let text = serde_json::to_vec(&end).unwrap_or_default();
        // An error means that the store is gone, which ends the job, too.
        let _ = self.nodes.store.compare_set(END, b"", &text);
    }

    /// Says that the replicas of this node, of which so many have ended well, have ended. Waits, if
    /// this node serves the others, until they have, too, or until that time.
    pub(crate) fn leave(&self, left: u32, until: Option<Instant>) {
        self.update(left, false);
        let is_alone = || self.others().map_or(true, |all| !all.iter().any(|it| it.1.is_here));
        let is_late = || until.is_some_and(|until| until <= Instant::now());
        while self.serves() && !is_alone() && !is_late() {
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// How long a node may give no sign.
    pub(crate) fn silence_limit(&self) -> Duration {
        self.nodes.options.silence_limit()
    }

    /// Says from now on that this node is there, and, if it serves, which others are not. Calls
    /// `on_end` once, on another thread, when the job has ended for all.
    pub(crate) fn watch(
        &self,
        say: impl Fn(&str) + Send + 'static,
        on_end: impl FnOnce(EndOfAll) + Send + 'static,
    ) {
        let watch = Watch {
            options: self.nodes.options.clone(),
            port: self.nodes.port(),
            serves: self.serves(),
            place: self.place,
        };
        thread::spawn(move || on_end(watch.until_end(say)));
    }

    fn update(&self, left: u32, is_here: bool) {
        let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        (presence.left, presence.is_here) = (left, is_here);
        let text = serde_json::to_vec(&*presence).unwrap_or_default();
        let _ = self.nodes.store.set(&node(self.place), &text);
    }

    fn others(&self) -> polyrank::Result<Vec<(u32, Presence)>> {
        let mut all = presences(&self.nodes.store, self.nodes.options.node_count)?;
        all.retain(|(place, _)| *place != self.place);
        Ok(all)
    }
}

/// The time from one look at whether others are there to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

struct Watch {
    options: super::NodeOptions,
    port: u16,
    serves: bool,
    place: u32,
}

/// What is known of another node.
struct Sign {
    place: u32,
    beats: i64,
    since: Instant,
}

impl Watch {
    fn until_end(&self, say: impl Fn(&str)) -> EndOfAll {
        self.try_until_end(say).unwrap_or_else(|error| EndOfAll {
            what: format!(
                "the launcher that serves the rendezvous at {}:{} is gone: {error}",
                self.options.host, self.port
            ),
            exit_code: 1,
            node: 0,
        })
    }

    fn try_until_end(&self, say: impl Fn(&str)) -> polyrank::Result<EndOfAll> {
        // A connection of its own: a wait keeps it.
        let options = TcpStoreOptions::new(self.options.host.as_str(), self.port);
        let store = TcpStore::new(options.timeout(self.options.silence_limit()))?;
        let mut signs: Vec<Sign> = Vec::new();
        loop {
            store.add(&beat(self.place), 1)?;
            if store.wait(&[END], Some(self.options.keep_alive)).is_ok() {
                let text = store.get(END)?;
                return Ok(serde_json::from_slice(&text).unwrap_or_else(|error| EndOfAll {
                    what: format!("the end of the job cannot be read: {error}"),
                    exit_code: 1,
                    node: 0,
                }));
            }
            if self.serves {
                self.look_for_silent(&store, &mut signs, &say)?;
            }
        }
    }

    /// Gives the places of those away that have been silent for too long.
    fn look_for_silent(
        &self,
        store: &TcpStore,
        signs: &mut Vec<Sign>,
        say: &impl Fn(&str),
    ) -> polyrank::Result<()> {
        let (now, limit) = (Instant::now(), self.options.silence_limit());
        let others = presences(store, self.options.node_count)?;
        for (place, other) in
            others.iter().filter(|(place, other)| other.is_here && *place != self.place)
        {
            let beats = store.add(&beat(*place), 0)?;
            let sign = match signs.iter_mut().find(|sign| sign.place == *place) {
                Some(sign) => sign,
                None => {
                    signs.push(Sign { place: *place, beats, since: now });
                    continue;
                }
            };
            if sign.beats != beats {
                (sign.beats, sign.since) = (beats, now);
            } else if now.saturating_duration_since(sign.since) > limit {
                let gone = Presence { left: 0, is_here: false, ..other.clone() };
                let [old, new] =
                    [other, &gone].map(|it| serde_json::to_vec(it).unwrap_or_default());
                store.compare_set(&node(*place), &old, &new)?;
                let (host, seconds) = (&other.host, limit.as_secs_f64());
                say(&format!(
                    "the launcher of node {place} ({host}) has given no sign for {seconds} s: its \
                     replicas are gone, and another may take its place"
                ));
            }
        }
        Ok(())
    }
}

fn presences(store: &TcpStore, count: u32) -> polyrank::Result<Vec<(u32, Presence)>> {
    let mut all = Vec::new();
    for place in 0..count {
        let key = node(place);
        if store.check(&[&key])? {
            all.extend(parse(&store.get(&key)?).map(|presence| (place, presence)));
        }
    }
    Ok(all)
}

fn parse(text: &[u8]) -> Option<Presence> {
    serde_json::from_slice(text).ok()
}

fn node(place: u32) -> String {
    format!("polyrank/replicas/node/{place}")
}
