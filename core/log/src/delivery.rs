//! Brings lines to whoever reads them: on a thread of its own, as readers may have to wait for a
//! lock that the writer of the line waits for. Knows nothing of who writes and who reads.
//!
//! Nobody waits in silence because a reader does: a warning that its reader has not taken within a
//! second goes to standard error.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

use crate::filter;
use crate::record::Record;

/// Reads lines. False: nobody has taken this one, and it goes to standard error.
pub type Reader = dyn Fn(&Record) -> bool + Send + Sync;

/// The most lines that wait for their reader; later ones are counted only.
const MAX_WAITING: usize = 1000;
/// How long a warning waits for its reader.
const PATIENCE: Duration = Duration::from_secs(1);

struct Delivery {
    reader: Option<Arc<Reader>>,
    waiting: VecDeque<Waiting>,
    /// Lines that found no room.
    lost: u64,
    /// Since when the reader has had one in hand.
    in_hand: Option<Waiting>,
    /// The process whose thread reads, and the one whose thread looks after warnings; 0: none.
    reading: u32,
    looking: u32,
}

#[derive(Clone)]
struct Waiting {
    record: Record,
    since: Instant,
    is_written: bool,
}

static DELIVERY: Mutex<Delivery> = Mutex::new(Delivery::EMPTY);
static CHANGED: Condvar = Condvar::new();

/// Hands lines to `reader` from now on; without one they go to standard error.
pub fn set_reader(reader: Option<Arc<Reader>>) {
    let former = std::mem::replace(&mut lock().reader, reader);
    // Outside the lock: it belongs to the program.
    drop(former);
}

/// Waits until all lines were read; at most for `limit`.
pub fn flush(limit: Duration) {
    let until = Instant::now() + limit;
    let mut delivery = lock();
    // A forked child has none of its parent's threads.
    while delivery.reading == std::process::id()
        && (delivery.in_hand.is_some() || !delivery.waiting.is_empty())
    {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let waited = CHANGED.wait_timeout(delivery, left);
        delivery = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Brings a line to its reader.
pub(crate) fn deliver(record: Record) {
    let mut delivery = lock();
    if delivery.reader.is_none() {
        drop(delivery);
        return write(&record);
    }
    if delivery.waiting.len() >= MAX_WAITING {
        delivery.lost += 1;
        return;
    }
    let is_urgent = record.level <= Level::WARN;
    let since = Instant::now();
    delivery.waiting.push_back(Waiting { record, since, is_written: false });
    let process = std::process::id();
    if delivery.reading != process {
        // Lines that a parent had in hand are its own.
        delivery.in_hand = None;
        delivery.reading = if start("polyrank-log", read_all) { process } else { 0 };
    }
    if is_urgent && delivery.looking != process {
        delivery.looking = if start("polyrank-log-late", look_after) { process } else { 0 };
    }
    drop(delivery);
    CHANGED.notify_all();
}

fn start(name: &str, run: fn()) -> bool {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).is_ok()
}

fn read_all() {
    let mut delivery = lock();
    loop {
        let Some(next) = delivery.waiting.pop_front() else {
            let waited = CHANGED.wait(delivery);
            delivery = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let lost = std::mem::take(&mut delivery.lost);
        let record = next.record.clone();
        delivery.in_hand = Some(next);
        let reader = delivery.reader.clone();
        drop(delivery);
        let is_read = reader.is_some_and(|reader| reader(&record));
        delivery = lock();
        let is_written = delivery.in_hand.take().is_some_and(|it| it.is_written);
        CHANGED.notify_all();
        if lost > 0 || !(is_read || is_written) {
            drop(delivery);
            if lost > 0 {
                write_text(&format!("polyrank: {lost} lines of the log were lost: too many"));
            }
            if !(is_read || is_written) {
                write(&record);
            }
            delivery = lock();
        }
    }
}

/// Writes warnings that are not read in time, until there are none.
fn look_after() {
    let mut delivery = lock();
    loop {
        let all = &mut *delivery;
        let mut open: Vec<&mut Waiting> = all.in_hand.iter_mut().chain(&mut all.waiting).collect();
        open.retain(|it| it.record.level <= Level::WARN && !it.is_written);
        let Some(oldest) = open.iter().map(|it| it.since).min() else {
            delivery.looking = 0;
            return;
        };
        let left = (oldest + PATIENCE).saturating_duration_since(Instant::now());
        if left.is_zero() {
            let mut late = Vec::new();
            for it in open.into_iter().filter(|it| it.since.elapsed() >= PATIENCE) {
                it.is_written = true;
                late.push(it.record.clone());
            }
            drop(delivery);
            late.iter().for_each(write);
            delivery = lock();
        } else {
            let waited = CHANGED.wait_timeout(delivery, left);
            delivery = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn write(record: &Record) {
    write_text(&if filter::is_json() { record.json() } else { record.line() });
}

fn write_text(line: &str) {
    // Whoever has closed it does not want to know.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn lock() -> MutexGuard<'static, Delivery> {
    DELIVERY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Delivery {
    const EMPTY: Delivery = Delivery {
        reader: None,
        waiting: VecDeque::new(),
        lost: 0,
        in_hand: None,
        reading: 0,
        looking: 0,
    };
}
