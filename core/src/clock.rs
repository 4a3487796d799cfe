//! The time and the process id, in browsers too, and sleeping until a time where nothing may block.
//! Knows nothing of what is waited for.
//!
//! Where nothing may block, an event loop of the platform must call [`wake_sleepers`] at the time
//! that it returned last; [`set_alarm`] tells the loop of new times.

use std::future::Future;
use std::pin::Pin;
#[cfg(all(not(target_family = "wasm"), feature = "tcp"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use web_time::{Instant, SystemTime, UNIX_EPOCH};

/// Whether a thread may wait. In a browser, nothing arrives until it returns to the event loop.
pub const CAN_BLOCK: bool = !cfg!(target_family = "wasm");

/// The number of this process; in a browser, a number that each page and each worker makes up.
pub fn process_id() -> u32 {
    #[cfg(all(not(target_family = "wasm"), not(feature = "tcp")))]
    return std::process::id();
    // The system is asked once, because that takes longer than a small operation may.
    #[cfg(all(not(target_family = "wasm"), feature = "tcp"))]
    {
        static KNOWN: AtomicU64 = AtomicU64::new(0);
        let forks = u64::from(crate::fork::forks()) + 1;
        let known = KNOWN.load(Ordering::Relaxed);
        if known >> 32 == forks {
            return known as u32;
        }
        let id = std::process::id();
        KNOWN.store(forks << 32 | u64::from(id), Ordering::Relaxed);
        id
    }
    #[cfg(target_family = "wasm")]
    {
        static ID: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        // Without random numbers no group can be joined either, and that raises an error.
        *ID.get_or_init(|| crate::random::bytes().map_or(0, u32::from_le_bytes))
    }
}

/// `timeout` from now; a century from now if that is beyond the clock.
pub(crate) fn after(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(100 * 365 * 86_400))
}

/// Ends when [`wake_sleepers`] is called with `until` or a later time.
pub fn sleep_until(until: Instant) -> Sleep {
    Sleep { until, waker: None }
}

/// The future of [`sleep_until`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
pub struct Sleep {
    until: Instant,
    /// The waker that is in [`SLEEPERS`], if there is one.
    waker: Option<Waker>,
}

/// The sleeping futures: until when they sleep, and how they are woken.
static SLEEPERS: Mutex<Vec<(Instant, Waker)>> = Mutex::new(Vec::new());

/// What [`ring_alarm`] calls.
static ALARM: Mutex<Option<fn()>> = Mutex::new(None);

/// Wakes the futures that sleep until `now` or before. Returns when to call this again, if others
/// are still asleep.
pub fn wake_sleepers(now: Instant) -> Option<Instant> {
    let (due, next) = {
        let mut sleepers = lock();
        let due: Vec<_> = sleepers.extract_if(.., |(until, _)| *until <= now).collect();
        (due, sleepers.iter().map(|(until, _)| *until).min())
    };
    due.into_iter().for_each(|(_, waker)| waker.wake());
    next
}

/// Sets the function that is called whenever there is a new time to wait for, or new work to do. It
/// must only schedule a turn of the event loop, and do nothing itself.
pub fn set_alarm(alarm: fn()) {
    *ALARM.lock().unwrap_or_else(PoisonError::into_inner) = Some(alarm);
}

/// Reports that there is a new time to wait for, or new work to do.
pub(crate) fn ring_alarm() {
    let alarm = *ALARM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(alarm) = alarm {
        alarm();
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.until <= Instant::now() {
            self.leave();
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            self.leave();
            lock().push((self.until, context.waker().clone()));
            self.waker = Some(context.waker().clone());
            ring_alarm();
        }
        Poll::Pending
    }
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(waker) = self.waker.take() {
            let mut sleepers = lock();
            let ours =
                |(until, other): &(Instant, Waker)| *until == self.until && other.will_wake(&waker);
            if let Some(place) = sleepers.iter().position(ours) {
                sleepers.swap_remove(place);
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.waker.is_some() {
            self.leave();
            // The event loop need not wait for this time any more.
            ring_alarm();
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<(Instant, Waker)>> {
    SLEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn sleepers_are_woken_when_it_is_time_and_forgotten_when_they_leave() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let until = after(HOUR);
        let mut sleeps = [0, 1].map(|_| sleep_until(until));
        for sleep in &mut sleeps {
            assert!(Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let early = until - Duration::from_millis(1);
        assert!(wake_sleepers(early).is_some_and(|next| next <= until));
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        let [first, second] = sleeps;
        drop(first);
        wake_sleepers(until);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "one of them had left");
        drop(second);
        assert!(!lock().iter().any(|(_, known)| known.will_wake(&waker)));
        let mut over = sleep_until(Instant::now());
        assert!(Pin::new(&mut over).poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn a_limit_beyond_the_clock_is_far_away() {
        assert!(after(Duration::MAX) > after(HOUR));
    }
}
