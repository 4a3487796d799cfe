//! The events of the realm (a page or a worker): turns, in which everything is moved once, and when
//! the next one is due. Knows nothing of what is moved.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use js_sys::{Array, Function};
use polyrank::clock::Instant;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// Longest time of a timer: `setTimeout` takes no more than 2^31 - 1 ms.
const LONGEST: Duration = Duration::from_millis(1 << 30);

#[derive(Default)]
struct Events {
    /// Asks for a turn as soon as other events have had theirs.
    post: RefCell<Option<Function>>,
    /// Asks for a turn after some ms, in place of the one before.
    set_timer: RefCell<Option<Function>>,
    /// Called with the numbers of works that are done.
    on_completed: RefCell<Option<Function>>,
    completed: RefCell<Vec<f64>>,
    /// Whether a turn has been asked for.
    posted: Cell<bool>,
    turning: Cell<bool>,
    /// Whether this turn has yet to tell of works that are done.
    will_tell: Cell<bool>,
    /// When the timer asks for a turn.
    timer: Cell<Option<Instant>>,
}

thread_local! {
    static EVENTS: Events = Events::default();
}

/// Calls `post` to ask for a turn, and `set_timer` to ask for one after some ms.
pub(crate) fn listen(post: Function, set_timer: Function) {
    EVENTS.with(|events| {
        events.post.replace(Some(post));
        events.set_timer.replace(Some(set_timer));
    });
}

/// Calls `callback` with the numbers of watched works that are done.
#[wasm_bindgen(js_name = onCompleted)]
pub fn on_completed(callback: Function) {
    EVENTS.with(|events| events.on_completed.replace(Some(callback)));
}

/// Runs `advance`, which moves everything and says when it must be called again at the latest, and
/// sees to it that it is.
pub(crate) fn run_turn(advance: impl FnOnce(Instant) -> Option<Instant>) {
    EVENTS.with(|events| {
        if events.turning.replace(true) {
            request_turn();
            return;
        }
        // What is asked for from here on is not done yet.
        events.posted.set(false);
        events.will_tell.set(true);
        let next = advance(Instant::now());
        events.tell_completed();
        events.turning.set(false);
        let now = Instant::now();
        match next {
            Some(next) if next <= now => request_turn(),
            Some(next) => events.wake_at(next, now),
            None => events.clear_timer(),
        }
    });
}

/// The timer has fired.
pub(crate) fn forget_timer() {
    EVENTS.with(|events| events.timer.set(None));
}

/// Schedules a turn; it does not run immediately, so that this may be called in the middle of
/// things.
pub(crate) fn request_turn() {
    EVENTS.with(|events| {
        if let (false, Some(post)) = (events.posted.replace(true), &*events.post.borrow()) {
            // It is ours, and posts a message.
            let _ = post.call0(&JsValue::NULL);
        }
    });
}

/// Notes that the group of this number has failed: told by the number with a minus.
pub(crate) fn note_failed(group: u64) {
    note(-(group as f64));
}

/// The numbers of groups that have failed, of which `onCompleted` has not told; it will not.
#[wasm_bindgen(js_name = takeFailures)]
pub fn take_failures() -> Array {
    EVENTS.with(|events| {
        let (failed, completed): (Vec<f64>, Vec<f64>) =
            events.completed.take().into_iter().partition(|id| *id < 0.0);
        events.completed.replace(completed);
        failed.into_iter().map(|id| JsValue::from(-id)).collect()
    })
}

/// Notes that a work that is watched is done. Its owner learns of it in this turn or the next.
pub(crate) fn note_completed(id: f64) {
    note(id);
}

/// Notes that there are tasks for backends of this realm: told by the number infinity.
pub(crate) fn note_tasks() {
    note(f64::INFINITY);
}

fn note(id: f64) {
    let will_tell = EVENTS.with(|events| {
        events.completed.borrow_mut().push(id);
        events.will_tell.get()
    });
    if !will_tell {
        request_turn();
    }
}

impl Events {
    fn tell_completed(&self) {
        self.will_tell.set(false);
        let completed = self.completed.take();
        let callback = self.on_completed.borrow().clone();
        if let (false, Some(callback)) = (completed.is_empty(), callback) {
            let ids: Array = completed.into_iter().map(JsValue::from).collect();
            if let Err(error) = callback.call1(&JsValue::NULL, &ids) {
                web_sys::console::error_1(&error);
            }
        }
    }

    /// Sees to it that a turn is asked for at `when`. One that comes too early does no harm, and
    /// setting the timer anew with each packet would cost more than such a turn now and then.
    fn wake_at(&self, when: Instant, now: Instant) {
        if self.timer.get().is_some_and(|set| now < set && set <= when) {
            return;
        }
        let wait = (when - now).min(LONGEST);
        self.timer.set(Some(now + wait));
        self.set_timer(wait.as_millis() as u32 + 1);
    }

    /// A timer that is set keeps a Node process alive.
    fn clear_timer(&self) {
        if self.timer.take().is_some() {
            self.set_timer(0);
        }
    }

    fn set_timer(&self, ms: u32) {
        if let Some(set_timer) = &*self.set_timer.borrow() {
            // It is ours, and sets a timer, or none for 0.
            let _ = set_timer.call1(&JsValue::NULL, &JsValue::from(ms));
        }
    }
}
