//! Ranks that are tasks of one thread, as in a page, and the event loop that runs them. What goes
//! first, a seed decides. Knows nothing of what the ranks do.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use polyrank::store::Store;

use super::later_store::LaterStore;

/// Guards against a hang and nothing else: ranks that never finish would keep this loop, and the
/// test run with it, for ever. Far beyond what anything here takes on a busy machine, so that no
/// test depends on how long it takes.
const PATIENCE: Duration = Duration::from_secs(600);

struct Task<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    bell: Arc<Bell>,
}

struct Bell {
    rung: AtomicBool,
    thread: Thread,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs `rank` for each of `size` ranks and hands back what they return, by rank.
pub(crate) fn interleaved<T, F: Future<Output = T>>(
    size: u32,
    seed: u64,
    rank: impl Fn(u32, Arc<dyn Store>) -> F,
) -> Vec<T> {
    println!("{size} ranks, seed {seed}");
    let store = LaterStore::new();
    let mut tasks: Vec<Task<'_, T>> = Vec::new();
    let futures: Vec<F> = (0..size).map(|number| rank(number, Arc::new(store.clone()))).collect();
    for future in futures {
        let bell = Bell { rung: AtomicBool::new(true), thread: std::thread::current() };
        tasks.push(Task { future: Some(Box::pin(future)), bell: Arc::new(bell) });
    }
    let mut results: Vec<Option<T>> = (0..size).map(|_| None).collect();
    let mut random = Random(seed);
    let begin = Instant::now();
    while results.iter().any(Option::is_none) {
        assert!(begin.elapsed() < PATIENCE, "seed {seed}: the ranks hang");
        let next = drive();
        let first = random.next() as usize;
        let mut moved = false;
        for index in (0..tasks.len()).map(|index| (index + first) % size as usize) {
            let task = &mut tasks[index];
            if !task.bell.rung.swap(false, Ordering::SeqCst) {
                continue;
            }
            moved = true;
            let waker = Waker::from(task.bell.clone());
            let Some(future) = &mut task.future else { continue };
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                task.future = None;
                results[index] = Some(result);
            }
        }
        if !store.answer_one(random.next()) && !moved {
            let now = Instant::now();
            let deadlines = store.next_deadline().into_iter().chain(next);
            let first = deadlines.chain([now + Duration::from_secs(1)]).min().unwrap();
            std::thread::park_timeout(first.saturating_duration_since(now));
        }
    }
    assert_eq!(store.requests(), 0, "seed {seed}: requests are left");
    results.into_iter().map(Option::unwrap).collect()
}

/// Moves the groups, where there is no thread that does.
fn drive() -> Option<Instant> {
    #[cfg(not(feature = "tcp"))]
    return polyrank::executor::drive_all(Instant::now());
    #[cfg(feature = "tcp")]
    None
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
