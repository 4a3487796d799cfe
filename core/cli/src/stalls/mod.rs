//! Says once for all ranks what they have said of what they wait for long. They write it to a
//! folder; those of other hosts have their launcher tell node 0's. Knows nothing of what they wait
//! for.

mod summary;

use std::fs::{self, DirBuilder};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::stall_report::{StallReport, read_all};

use crate::job_store::JobStore;
use crate::launch::report::say;
use crate::nodes::NodeStalls;
use summary::{StallSummary, best_of_each};

/// The time from one look into the folder to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The number of looks from one question to the other nodes to the next.
const LOOKS_PER_QUESTION: u32 = 4;

/// Reads what ranks have said, until it is dropped.
pub(crate) struct StallWatch {
    folder: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl StallWatch {
    /// Reads what ranks of this host write to `folder`, which is made, and what the launchers of
    /// the other `nodes` tell. It is said once who asks the `store` in which ranks meet.
    ///
    /// # Errors
    /// The folder cannot be made, in words.
    pub(crate) fn start(
        folder: PathBuf,
        nodes: Option<NodeStalls>,
        store: String,
    ) -> Result<StallWatch, String> {
        let failed = |error| format!("{}: {error}", folder.display());
        folder.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let watch = StallWatch { folder, is_over: Arc::default() };
        let look_out = LookOut {
            folder: watch.folder.clone(),
            is_over: watch.is_over.clone(),
            nodes,
            store: Some(store),
            summary: StallSummary::default(),
            told: Vec::new(),
            others: Vec::new(),
        };
        let thread = thread::Builder::new().name("stalls".to_owned());
        let started = thread.spawn(move || look_out.run());
        started.map(|_| watch).map_err(|error| format!("no thread: {error}"))
    }

    /// Where ranks write.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        // It looks no more when the folder goes: it would find that nobody waits.
        self.is_over.store(true, Ordering::SeqCst);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct LookOut {
    folder: PathBuf,
    is_over: Arc<AtomicBool>,
    nodes: Option<NodeStalls>,
    /// Where the ranks meet, unless that was said.
    store: Option<String>,
    summary: StallSummary,
    /// What was told node 0.
    told: Vec<StallReport>,
    /// What ranks of other nodes have said.
    others: Vec<StallReport>,
}

impl LookOut {
    fn run(mut self) {
        for look in 0_u32.. {
            thread::sleep(LOOK_INTERVAL);
            if look % LOOKS_PER_QUESTION == 0 {
                self.ask_others();
            }
            let reports = read_all(&self.folder);
            // What was read was there if it is not over yet.
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            // A folder that cannot be read says nothing, neither that nobody waits.
            if let Ok(reports) = reports {
                self.look(reports);
            }
        }
    }

    fn look(&mut self, reports: Vec<StallReport>) {
        if let Some(nodes) = self.nodes.as_ref().filter(|nodes| !nodes.speaks()) {
            let reports: Vec<_> = reports.iter().collect();
            let reports: Vec<_> = best_of_each(&reports).into_values().collect();
            // Without the store the job ends, which others say.
            if reports != self.told && nodes.tell(&reports).is_ok() {
                self.told = reports;
            }
            return;
        }
        let all: Vec<_> = reports.iter().chain(&self.others).collect();
        let before = self.summary.told();
        for line in self.summary.look(&all, Instant::now()) {
            say(&line);
        }
        if self.summary.told() > before {
            self.say_who_knows_more();
        }
    }

    /// Says once how more is learnt, if there are groups to ask: before the first rendezvous, or
    /// where ranks meet elsewhere, there are none.
    fn say_who_knows_more(&mut self) {
        let is_there = |url: &mut String| {
            // The client of a store tries for long where nobody listens.
            let address = url.strip_prefix("tcp://").unwrap_or(url);
            TcpStream::connect(address).is_ok()
                && JobStore::open(url).and_then(|store| store.groups()).is_ok()
        };
        if let Some(url) = self.store.take_if(is_there) {
            say(&format!("`polyrank trace {url}` says more"));
        }
    }

    fn ask_others(&mut self) {
        let Some(nodes) = self.nodes.as_mut().filter(|nodes| nodes.speaks()) else { return };
        // Without the store the job ends, which others say.
        if let Ok(reports) = nodes.hear() {
            self.others = reports.to_vec();
        }
    }
}
