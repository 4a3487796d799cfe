//! The group as the background thread sees it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Driver;
use crate::clock::Instant;
use crate::executor::background::GroupProgress;
use crate::transport::Interest;

impl GroupProgress for Driver {
    fn has_ended(&self) -> bool {
        self.bell.has_ended()
    }

    fn is_busy(&self) -> bool {
        Driver::is_busy(self)
    }

    fn is_watched(&self) -> bool {
        self.lock().is_watched()
    }

    fn release_idle_memory(&self) {
        self.lock().release_idle_memory();
    }

    fn is_joining(&self) -> bool {
        self.lock().is_joining()
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::SeqCst) && self.is_busy() && !GroupProgress::has_waiters(self)
    }

    fn turn_in_background(&self) -> bool {
        self.turn_once(&mut Vec::new(), |_, _| {})
    }

    fn poll_in_background(&self) -> bool {
        self.turn_once(&mut Vec::new(), |executor, _| executor.stay_awake())
    }

    fn background_interests(&self, interests: &mut Vec<Interest>) -> Option<Instant> {
        let mut executor = self.lock();
        if !executor.prepare_to_sleep(interests) {
            return Some(Instant::now());
        }
        executor.next_deadline()
    }

    fn report_stall(&self, limit: Duration) {
        if let Some(hook) = self.stall_hook.get()
            && self.stalled().is_some_and(|report| report.stalled_for >= limit)
        {
            hook();
        }
    }

    fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    fn set_driven_in_background(&self, is_driven: bool) {
        self.driven_in_background.store(is_driven, Ordering::SeqCst);
    }
}
