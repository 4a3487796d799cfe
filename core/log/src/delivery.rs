//! Brings lines to whoever reads them: on a thread of its own, as readers may have to wait for a
//! lock that the writer of the line waits for. Knows nothing of who writes and who reads.
//!
//! Nobody waits in silence because a reader does: a warning that its reader has not taken within a
//! second goes to standard error. Threads wait by parking, and no lock is held while the process
//! forks: a forked child has none of the threads, and none of the lines, which are its parent's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use polyrank::process_mutex::{ProcessMutex, ProcessMutexGuard};
use polyrank::standard_error::write_line;
use tracing::Level;

use crate::filter;
use crate::record::Record;

/// Reads lines. False: nobody has taken this one, and it goes to standard error.
pub type Reader = dyn Fn(&Record) -> bool + Send + Sync;

/// The most lines that wait for their reader.
const MAX_WAITING: usize = 1000;
/// How long a warning waits for its reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether all is read.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);

struct Delivery {
    reader: Option<Arc<Reader>>,
    /// The process that all below is of.
    process: u32,
    waiting: VecDeque<Waiting>,
    /// Lines that found no room.
    lost: u64,
    /// What the reader has.
    in_hand: Option<Waiting>,
    /// The thread that reads.
    reading: Option<Thread>,
    /// Whether a thread looks after warnings.
    is_looked_after: bool,
    /// How many such threads write at this moment.
    writers: usize,
}

#[derive(Clone)]
struct Waiting {
    record: Record,
    since: Instant,
    is_written: bool,
}

static DELIVERY: ProcessMutex<Delivery> = ProcessMutex::new(Delivery {
    reader: None,
    process: 0,
    waiting: VecDeque::new(),
    lost: 0,
    in_hand: None,
    reading: None,
    is_looked_after: false,
    writers: 0,
});

/// Hands lines to `reader` from now on; without one they go to standard error.
pub fn set_reader(reader: Option<Arc<Reader>>) {
    let former = std::mem::replace(&mut lock().reader, reader);
    // Outside the lock: it belongs to the program.
    drop(former);
}

/// Waits until all lines were read; at most for `limit`.
pub fn flush(limit: Duration) {
    let until = Instant::now() + limit;
    while !lock().is_idle() && Instant::now() < until {
        thread::sleep(FLUSH_INTERVAL);
    }
}

/// Brings a line to its reader.
pub(crate) fn deliver(record: Record) {
    let mut delivery = lock();
    if delivery.reader.is_none() {
        drop(delivery);
        return write(&record);
    }
    let is_urgent = record.level <= Level::WARN;
    if delivery.waiting.len() >= MAX_WAITING {
        if !is_urgent {
            delivery.lost += 1;
            return;
        }
        drop(delivery);
        return write(&record);
    }
    let since = Instant::now();
    delivery.waiting.push_back(Waiting { record, since, is_written: false });
    if delivery.reading.is_none() {
        delivery.reading = start("polyrank-log", read_all);
    }
    if is_urgent && !delivery.is_looked_after {
        delivery.is_looked_after = start("polyrank-log-late", look_after).is_some();
    }
    let reading = delivery.reading.clone();
    drop(delivery);
    if let Some(reading) = reading {
        reading.unpark();
    }
}

fn start(name: &str, run: fn()) -> Option<Thread> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.ok().map(|handle| handle.thread().clone())
}

fn read_all() {
    loop {
        let (record, reader) = {
            let mut delivery = lock();
            let Some(next) = delivery.next() else {
                drop(delivery);
                thread::park();
                continue;
            };
            let record = next.record.clone();
            delivery.in_hand = Some(next);
            (record, delivery.reader.clone())
        };
        let is_read = reader.is_some_and(|reader| reader(&record));
        if !is_read && lock().is_left_to_its_reader() {
            write(&record);
        }
        // Only now: whoever waits for the end of it all may end the process.
        lock().in_hand = None;
    }
}

/// Writes warnings that are not read in time, until there are none.
fn look_after() {
    loop {
        let mut late = Vec::new();
        let left = {
            let mut delivery = lock();
            let all = &mut *delivery;
            let open = all.in_hand.iter_mut().chain(&mut all.waiting);
            let open = open.filter(|it| it.record.level <= Level::WARN && !it.is_written);
            let mut left = None;
            for it in open {
                let rest = PATIENCE.saturating_sub(it.since.elapsed());
                if rest.is_zero() {
                    it.is_written = true;
                    late.push(it.record.clone());
                } else {
                    left = Some(left.map_or(rest, |known: Duration| known.min(rest)));
                }
            }
            if left.is_none() {
                delivery.is_looked_after = false;
            }
            delivery.writers += 1;
            left
        };
        late.iter().for_each(write);
        lock().writers -= 1;
        match left {
            Some(left) => thread::sleep(left),
            None => return,
        }
    }
}

fn write(record: &Record) {
    write_line(&if filter::is_json() { record.json() } else { record.line() });
}

/// What is delivered in this process.
fn lock() -> ProcessMutexGuard<'static, Delivery> {
    let mut delivery = DELIVERY.lock();
    let process = std::process::id();
    if delivery.process != process {
        delivery.process = process;
        delivery.waiting.clear();
        delivery.lost = 0;
        delivery.in_hand = None;
        delivery.reading = None;
        delivery.is_looked_after = false;
        delivery.writers = 0;
    }
    delivery
}

impl Delivery {
    fn is_idle(&self) -> bool {
        self.in_hand.is_none() && self.waiting.is_empty() && self.lost == 0 && self.writers == 0
    }

    /// Whether nobody writes the line that the reader has; from now on its reader does.
    fn is_left_to_its_reader(&mut self) -> bool {
        self.in_hand.as_mut().is_some_and(|it| !std::mem::replace(&mut it.is_written, true))
    }

    /// The next line to read: what was lost is told once there is room again.
    fn next(&mut self) -> Option<Waiting> {
        if let Some(next) = self.waiting.pop_front() {
            return Some(next);
        }
        let lost = std::mem::take(&mut self.lost);
        (lost > 0).then(|| Waiting {
            record: Record {
                level: Level::INFO,
                target: "polyrank::log".to_owned(),
                message: format!("{lost} lines were lost: more came than were read"),
                at: SystemTime::now(),
                rank: None,
                group: None,
                operation: None,
                sequence: None,
                comm_name: None,
            },
            since: Instant::now(),
            is_written: false,
        })
    }
}
