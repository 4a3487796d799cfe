//! Streams, each a thread with a queue, and events. Knows no memory.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use super::driver::current_device;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The handles of the stream that every device has from the start.
const DEFAULT: [usize; 3] = [0, 1, 2];
/// The first handle that is given out. No address, so that following it shows.
const FIRST: usize = 0x100;

struct Registry<T> {
    next: usize,
    known: HashMap<usize, T>,
}

impl<T: Clone> Registry<T> {
    fn new() -> Mutex<Registry<T>> {
        Mutex::new(Registry { next: FIRST, known: HashMap::new() })
    }

    fn add(&mut self, item: T) -> usize {
        self.next += 0x10;
        self.known.insert(self.next, item);
        self.next
    }
}

fn streams() -> MutexGuard<'static, Registry<Sender<Job>>> {
    static STREAMS: OnceLock<Mutex<Registry<Sender<Job>>>> = OnceLock::new();
    STREAMS.get_or_init(Registry::new).lock().unwrap()
}

fn start() -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
    sender
}

pub(crate) fn create() -> usize {
    streams().add(start())
}

/// What is queued still runs.
pub(crate) fn destroy(stream: usize) -> bool {
    streams().known.remove(&stream).is_some()
}

/// Queues a job; false if there is no such stream.
pub(crate) fn push(stream: usize, job: Job) -> bool {
    let mut streams = streams();
    let stream = match DEFAULT.contains(&stream) {
        true => {
            let Some(device) = current_device() else { return false };
            let own = device as usize;
            streams.known.entry(own).or_insert_with(start);
            own
        }
        false => stream,
    };
    streams.known.get(&stream).is_some_and(|queue| queue.send(job).is_ok())
}

/// Waits for everything that was issued.
pub(crate) fn synchronize(stream: usize) -> bool {
    let (done, over) = channel();
    push(stream, Box::new(move || done.send(()).unwrap_or(()))) && over.recv().is_ok()
}

/// How often an event was recorded, and up to which of them it has come.
#[derive(Default)]
pub(crate) struct Event {
    moments: Mutex<(u64, u64)>,
    came: Condvar,
}

fn events() -> MutexGuard<'static, Registry<Arc<Event>>> {
    static EVENTS: OnceLock<Mutex<Registry<Arc<Event>>>> = OnceLock::new();
    EVENTS.get_or_init(Registry::new).lock().unwrap()
}

pub(crate) fn event() -> usize {
    events().add(Arc::default())
}

pub(crate) fn forget_event(event: usize) -> bool {
    events().known.remove(&event).is_some()
}

fn find(event: usize) -> Option<Arc<Event>> {
    events().known.get(&event).cloned()
}

pub(crate) fn record(event: usize, stream: usize) -> bool {
    let Some(event) = find(event) else { return false };
    let moment = {
        let mut moments = event.moments.lock().unwrap();
        moments.0 += 1;
        moments.0
    };
    push(
        stream,
        Box::new(move || {
            let mut moments = event.moments.lock().unwrap();
            moments.1 = moments.1.max(moment);
            event.came.notify_all();
        }),
    )
}

/// How far a recorded event is.
pub(crate) enum EventState {
    Complete,
    Pending,
    /// There is no such event.
    Unknown,
}

pub(crate) fn event_state(event: usize) -> EventState {
    let Some(event) = find(event) else { return EventState::Unknown };
    let moments = event.moments.lock().unwrap();
    if moments.1 >= moments.0 { EventState::Complete } else { EventState::Pending }
}

pub(crate) fn wait_for(stream: usize, event: usize) -> bool {
    let Some(event) = find(event) else { return false };
    let moment = event.moments.lock().unwrap().0;
    push(
        stream,
        Box::new(move || {
            let moments = event.moments.lock().unwrap();
            drop(event.came.wait_while(moments, |moments| moments.1 < moment).unwrap());
        }),
    )
}
