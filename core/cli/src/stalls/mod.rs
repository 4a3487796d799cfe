//! Says once for all ranks what they have said of what they wait for long. They write it to a
//! folder; those of other hosts have their launcher tell node 0's. Says which of this host are
//! stopped, and whether they wait for each other in a circle, which `polyrank-trace` finds. Knows
//! nothing of what they wait for.

mod summary;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyrank::stall_report::{StallReport, read_all};
use polyrank_trace::{Job, Kind};

use crate::inspect;
use crate::job_store::JobStore;
use crate::launch::report::{of_same_replica, say};
use crate::launch::stopped::RankProcesses;
use crate::nodes::NodeStalls;
use summary::{StallKey, StallSummary, best_of_each};

/// The time from one look into the folder to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The number of looks from one question to the other nodes to the next.
const LOOKS_PER_QUESTION: u32 = 4;
/// How long an address of the store may take to accept a connection: what is cut off never does.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Reads what ranks have said, until it is dropped.
pub(crate) struct StallWatch {
    folder: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl StallWatch {
    /// Reads what ranks of this host write to `folder`, which is made, and what the launchers of
    /// the other `nodes` tell. It is said once who asks the `store` in which ranks meet, and which
    /// of these `processes` are stopped.
    ///
    /// # Errors
    /// The folder cannot be made, in words.
    pub(crate) fn start(
        folder: PathBuf,
        nodes: Option<NodeStalls>,
        store: String,
        processes: RankProcesses,
    ) -> Result<StallWatch, String> {
        let failed = |error| format!("{}: {error}", folder.display());
        folder.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let watch = StallWatch { folder, is_over: Arc::default() };
        let look_out = LookOut {
            folder: watch.folder.clone(),
            is_over: watch.is_over.clone(),
            nodes,
            store,
            is_store_told: false,
            processes,
            stopped: Vec::new(),
            circles: BTreeSet::new(),
            asked_about: BTreeSet::new(),
            summary: StallSummary::default(),
            told: Vec::new(),
            others: Vec::new(),
        };
        let thread = thread::Builder::new().name("stalls".to_owned());
        let started = thread.spawn(of_same_replica(move || look_out.run()));
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
    /// Where the ranks meet.
    store: String,
    /// Whether that was said.
    is_store_told: bool,
    /// Those of ranks of this host.
    processes: RankProcesses,
    /// What was said of those that are stopped.
    stopped: Vec<String>,
    /// What was said of circles.
    circles: BTreeSet<String>,
    /// The stalls about which ranks were asked last whether they are in a circle.
    asked_about: BTreeSet<StallKey>,
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
                // The other launchers do not know these processes.
                self.say_who_is_stopped();
            }
            return;
        }
        let all: Vec<_> = reports.iter().chain(&self.others).collect();
        let before = self.summary.told();
        let lines = self.summary.look(&all, Instant::now());
        lines.iter().for_each(|line| self.say(line));
        if self.summary.told() > before {
            let stalls = best_of_each(&all).into_keys().collect();
            self.say_who_is_stopped();
            self.say_who_knows_more(stalls);
        }
    }

    /// Says once of each rank that it is stopped, as long as it is.
    fn say_who_is_stopped(&mut self) {
        let stopped = self.processes.stopped();
        stopped.iter().filter(|line| !self.stopped.contains(line)).for_each(|line| self.say(line));
        self.stopped = stopped;
    }

    /// Says once how more is learnt, if there are groups to ask: before the first rendezvous, or
    /// where ranks meet elsewhere, there are none. Says of each circle once that it is one.
    fn say_who_knows_more(&mut self, stalls: BTreeSet<StallKey>) {
        // A circle is of ranks that wait in different calls. All ranks tell all that they have
        // called for it, which is asked again only of other calls.
        let may_be_circle = stalls.len() > 1 && stalls != self.asked_about;
        if self.is_store_told && !may_be_circle {
            return;
        }
        // The client of a store tries for long where nobody listens.
        let address = self.store.strip_prefix("tcp://").unwrap_or(&self.store);
        let is_there = is_served(address)
            && JobStore::open(&self.store).and_then(|store| store.groups()).is_ok();
        if !is_there {
            return;
        }
        if may_be_circle {
            let circles = circles(&self.store);
            if circles.is_some() {
                self.asked_about = stalls;
            }
            for (name, text) in circles.unwrap_or_default() {
                if self.circles.insert(name) {
                    self.say(&text);
                }
            }
        }
        if !self.is_store_told {
            self.is_store_told = true;
            self.say(&format!("`polyrank trace {}` says more", self.store));
        }
    }

    /// Says something of ranks, unless they are over: what is found out while they end, or after
    /// that, means nothing.
    fn say(&self, line: &str) {
        if !self.is_over.load(Ordering::SeqCst) {
            say(line);
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

/// Whether somebody listens there: HOST:PORT.
fn is_served(address: &str) -> bool {
    let mut addresses = address.to_socket_addrs().into_iter().flatten();
    addresses.any(|it| TcpStream::connect_timeout(&it, CONNECT_LIMIT).is_ok())
}

/// The circles in which ranks wait that meet in the store at `url`: what each is, and that with who
/// waits where for whom. None where the ranks cannot tell.
fn circles(url: &str) -> Option<Vec<(String, String)>> {
    let (told, _) = inspect::gather(url).ok()?;
    let job = Job::new(vec![polyrank_trace::read(url, &told.to_string()).ok()?]).ok()?;
    let all = job.findings().into_iter().filter(|finding| finding.kind == Kind::Deadlock);
    let text = |text: &str, details: &[String]| {
        format!("{text}{}", details.iter().map(|it| format!("; {it}")).collect::<String>())
    };
    Some(all.map(|it| (it.text.clone(), text(&it.text, &it.details))).collect())
}
