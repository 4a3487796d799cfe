//! Where nodes come and go (`--nnodes MIN:MAX`): who takes part in a start of the ranks, which all
//! nodes begin anew when that changes. Knows nothing of processes.
//!
//! ```text
//!  polyrank/N/node/K    what a node brings to start N of the ranks, at place K
//!  polyrank/N/roster    the places that take part in it; the node that serves, at place 0, says so
//! ```
//!
//! A node that comes later takes a place of the next start, and has this one end for all.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use polyrank::store::Store;
use serde::{Deserialize, Serialize};

use super::{CURRENT, Ending, Nodes, Offer, PATIENCE, Roster, key, node, words};

/// The time from one look at who has come to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Who takes part in a start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Places {
    /// In the order of their ranks.
    places: Vec<u32>,
    /// How many of the starts before were because of nodes that came or went.
    changes: u32,
}

impl Nodes {
    /// As [`Nodes::meet`], where nodes come and go; the names have been compared.
    pub(super) fn meet_elastic(
        &mut self,
        start: u32,
        changes: u32,
        offer: &Offer,
        (run_id, say): (String, &dyn Fn(&str)),
    ) -> Result<Roster, String> {
        let end = Instant::now() + self.options.join_timeout;
        let text = serde_json::to_vec(offer).map_err(|error| error.to_string())?;
        let mut start = start;
        loop {
            let is_known = match self.place.or(self.serves.then_some(0)) {
                Some(place) => self.take(start, place, &text)?,
                None => false,
            };
            let place = match self.place.or(self.serves.then_some(0)).filter(|_| is_known) {
                Some(place) => place,
                None => {
                    let (next, place) = self.come(&text, end, offer, say)?;
                    start = next;
                    place
                }
            };
            let all = match self.serves {
                true => self.choose(start, changes, end, say)?,
                false => self.hear(start, end, say)?,
            };
            if let Some(node_rank) = all.places.iter().position(|other| *other == place) {
                self.place = Some(place);
                return self.roster(start, node_rank as u32, all, run_id);
            }
            // It came when the others had begun.
            self.place = None;
        }
    }

    fn roster(
        &mut self,
        restart: u32,
        node_rank: u32,
        all: Places,
        run_id: String,
    ) -> Result<Roster, String> {
        let keys: Vec<String> = all.places.iter().map(|place| node(restart, *place)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let offers = self.store.multi_get(&keys).map_err(words)?;
        let offers = offers.iter().map(|offer| serde_json::from_slice(offer));
        let offers = offers.collect::<Result<_, _>>();
        let offers = offers.map_err(|error: serde_json::Error| error.to_string())?;
        let Places { places, changes } = all;
        Ok(Roster { restart, changes, node_rank, offers, places, run_id })
    }

    fn take(&self, start: u32, place: u32, text: &[u8]) -> Result<bool, String> {
        let held = self.store.compare_set(&node(start, place), b"", text);
        held.map(|held| held == text).map_err(words)
    }

    /// Takes a place in the first start that has not begun, and has the others end the one before.
    fn come(
        &self,
        text: &[u8],
        end: Instant,
        offer: &Offer,
        say: &dyn Fn(&str),
    ) -> Result<(u32, u32), String> {
        let (began, mut is_told) = (Instant::now(), false);
        loop {
            let (next, taken) = match self.started()? {
                None => (0, BTreeSet::new()),
                Some((now, all)) => (now + 1, all.places.into_iter().collect()),
            };
            // From above, so that those that come back find their own.
            let places = (1..self.options.node_count).rev();
            for place in places.filter(|place| !taken.contains(place)) {
                if self.take(next, place, text)? {
                    if next > 0 {
                        self.end_for(next - 1, offer)?;
                    }
                    return Ok((next, place));
                }
            }
            let whom = format!("all {} nodes of the job are there", self.options.node_count);
            if end <= Instant::now() {
                return Err(format!("{whom} already: --nnodes says how many there may be"));
            }
            if !is_told && began.elapsed() > PATIENCE {
                is_told = true;
                say(&format!("{whom}; waiting for one to go"));
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Ends a start for all, because a node has come.
    fn end_for(&self, start: u32, offer: &Offer) -> Result<(), String> {
        let what = format!("{} has come", offer.host);
        let text = serde_json::to_vec(&Ending::Changed { what, gone: None }).unwrap_or_default();
        let held = self.store.compare_set(&key(start, "end"), b"", &text).map_err(words)?;
        match serde_json::from_slice(&held) {
            Ok(Ending::Done) => Err("the job is done".to_owned()),
            Ok(Ending::Failed { may_restart: false, what, .. }) => {
                Err(format!("the job has ended: {what}"))
            }
            _ => Ok(()),
        }
    }

    /// The last start that has begun, and who takes part in it.
    fn started(&self) -> Result<Option<(u32, Places)>, String> {
        if !self.store.check(&[CURRENT]).map_err(words)? {
            return Ok(None);
        }
        let text = self.store.get(CURRENT).map_err(words)?;
        let number: u32 = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        self.places(number).map(|all| Some((number, all)))
    }

    fn places(&self, start: u32) -> Result<Places, String> {
        let text = self.store.get(&key(start, "roster")).map_err(words)?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }

    /// Waits until enough nodes have come, and no more are to be expected; says who takes part.
    fn choose(
        &self,
        start: u32,
        changes: u32,
        end: Instant,
        say: &dyn Fn(&str),
    ) -> Result<Places, String> {
        let (min, max) = (self.options.min_node_count, self.options.node_count);
        let mut last_call = None;
        let (began, mut patience) = (Instant::now(), PATIENCE);
        let places = loop {
            let come = self.come_to(start)?;
            let now = Instant::now();
            if come.len() as u32 >= min {
                let until = *last_call.get_or_insert(now + self.options.last_call);
                let all_expected =
                    self.expected.as_ref().is_some_and(|expected| expected.is_subset(&come));
                if all_expected || come.len() as u32 == max || until <= now {
                    break come.into_iter().collect();
                }
            }
            let whom = || {
                let (host, port) = (&self.options.host, self.port());
                format!(
                    "{} of at least {min} nodes are at the rendezvous {host}:{port}",
                    come.len()
                )
            };
            if end <= now && last_call.is_none() {
                return Err(self.too_late(&whom()));
            }
            if last_call.is_none() && now.saturating_duration_since(began) > patience {
                say(&whom());
                patience *= 2;
            }
            thread::sleep(LOOK_INTERVAL);
        };
        let all = Places { places, changes };
        let text = serde_json::to_vec(&all).map_err(|error| error.to_string())?;
        self.store.set(&key(start, "roster"), &text).map_err(words)?;
        self.store.set(CURRENT, start.to_string().as_bytes()).map_err(words)?;
        Ok(all)
    }

    fn come_to(&self, start: u32) -> Result<BTreeSet<u32>, String> {
        let mut come = BTreeSet::new();
        for place in 0..self.options.node_count {
            if self.store.check(&[&node(start, place)]).map_err(words)? {
                come.insert(place);
            }
        }
        Ok(come)
    }

    /// Waits until it is said who takes part.
    fn hear(&self, start: u32, end: Instant, say: &dyn Fn(&str)) -> Result<Places, String> {
        // The one that serves waits until then, and says of whom; it needs a moment to say so.
        let limit = end.saturating_duration_since(Instant::now()) + self.options.last_call;
        let mut patience = PATIENCE;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.store.wait(&[&key(start, "roster")], Some(left.min(patience))).is_ok() {
                return self.places(start);
            }
            // Without a store that answers there is no more to wait for.
            self.store.check(&[CURRENT]).map_err(words)?;
            let (host, port) = (&self.options.host, self.port());
            let whom = format!("the rendezvous {host}:{port} has not enough nodes yet");
            if left <= patience {
                return Err(whom);
            }
            say(&whom);
            patience *= 2;
        }
    }
}
