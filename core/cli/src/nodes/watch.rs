//! Waits for the end of a start of the ranks on all nodes, and notices a node that is gone.
//! Knows nothing of what the nodes do.

use std::thread;
use std::time::Instant;

use polyrank::store::{Store, TcpStore, TcpStoreOptions};

use super::{Ending, NodeOptions, Nodes, Roster, beat, key};

impl Nodes {
    /// Calls `on_end` once, on another thread, when start `restart` has ended for all nodes.
    pub(crate) fn watch(&self, roster: &Roster, on_end: impl FnOnce(Ending) + Send + 'static) {
        let watch = Watch {
            options: self.options.clone(),
            port: self.port(),
            restart: roster.restart,
            node_rank: roster.node_rank,
            places: roster.places.clone(),
            hosts: roster.offers.iter().map(|offer| offer.host.clone()).collect(),
        };
        thread::spawn(move || on_end(watch.until_end()));
    }
}

struct Watch {
    options: NodeOptions,
    port: u16,
    restart: u32,
    node_rank: u32,
    places: Vec<u32>,
    hosts: Vec<String>,
}

/// What is known of another node.
struct Sign {
    beats: Vec<u8>,
    since: Instant,
}

impl Watch {
    fn until_end(&self) -> Ending {
        self.try_until_end().unwrap_or_else(|error| Ending::Lost {
            what: format!(
                "the launcher that serves the rendezvous at {}:{} is gone: {error}",
                self.options.host, self.port
            ),
        })
    }

    fn try_until_end(&self) -> polyrank::Result<Ending> {
        // A connection of its own: a wait keeps it.
        let options = TcpStoreOptions::new(self.options.host.as_str(), self.port);
        let store = TcpStore::new(options.timeout(self.options.silence_limit()))?;
        let end = key(self.restart, "end");
        let keys: Vec<String> = self.places.iter().copied().map(beat).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut signs: Vec<Sign> = Vec::new();
        loop {
            store.add(&beat(self.places[self.node_rank as usize]), 1)?;
            if store.wait(&[&end], Some(self.options.keep_alive)).is_ok() {
                return Ok(ending(&store.get(&end)?));
            }
            let beats = store.multi_get(&keys)?;
            let now = Instant::now();
            if signs.is_empty() {
                signs = beats.into_iter().map(|beats| Sign { beats, since: now }).collect();
                continue;
            }
            for (sign, beats) in signs.iter_mut().zip(beats) {
                if sign.beats != beats {
                    *sign = Sign { beats, since: now };
                }
            }
            // What the others see when they look is the same; the first to say so says it for all.
            if let Some(lost) = self.lost(&signs, now) {
                let text = serde_json::to_vec(&lost).unwrap_or_default();
                return Ok(ending(&store.compare_set(&end, b"", &text)?));
            }
        }
    }

    fn lost(&self, signs: &[Sign], now: Instant) -> Option<Ending> {
        let limit = self.options.silence_limit();
        let is_lost = |sign: &Sign| now.saturating_duration_since(sign.since) > limit;
        let rank = signs.iter().position(is_lost)?;
        let (host, seconds) = (&self.hosts[rank], limit.as_secs_f64());
        let what =
            format!("the launcher of node {rank} ({host}) has given no sign for {seconds} s");
        // Without the one that serves there is no other start.
        Some(match self.options.is_elastic() && self.places[rank] != 0 {
            true => Ending::Changed { what, gone: Some(self.places[rank]) },
            false => Ending::Lost { what },
        })
    }
}

fn ending(text: &[u8]) -> Ending {
    serde_json::from_slice(text).unwrap_or_else(|error| Ending::Lost {
        what: format!("the end of the job cannot be read: {error}"),
    })
}
