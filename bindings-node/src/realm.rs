//! The state of one JavaScript thread: what it waits for, and how other threads notify it. Knows no
//! calls.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::{Env, Result};
use polyrank::calls::Answer;
use polyrank::calls::custom_backend::BackendTask;
use polyrank::calls::custom_store::StoreTask;
use polyrank::calls::event_loop::AdaptiveWait;
use polyrank::{CustomReduction, Error, Region};

use crate::convert::{Deferred, Js, Reference, ThreadWaker, raise_value, to_js};
use crate::memory::NativeMemory;

/// A notification for this thread.
pub(crate) enum Event {
    /// A watched operation is done.
    Completed(u32),
    /// The group of this number has failed.
    Failed(u64),
    /// A waiting call has ended; the number is that of its cancellation.
    Ended(Deferred, Option<u32>, polyrank::Result<Answer>),
    /// A call that allocates memory has ended.
    Made(Deferred, polyrank::Result<Region>),
    /// Nothing uses the memory any more whose owner is kept under this number.
    Unused(u32),
    /// A backend that this thread registered is asked for something.
    Task(Box<BackendTask>),
    /// A store that is an object of this thread is asked for something.
    StoreTask(Box<StoreTask>),
}

/// What the listener is told where tasks have come for backends or stores of its thread.
const TASKS_CAME: f64 = f64::INFINITY;

/// The part of a realm that other threads use.
pub(crate) struct Mailbox {
    waker: ThreadWaker,
    /// None once the thread ends.
    events: Mutex<Option<Vec<Event>>>,
}

/// The part of a realm that only its own thread uses.
pub(crate) struct Realm {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) adaptive_wait: AdaptiveWait,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Called with the numbers of completed operations.
    listener: Option<Reference>,
    /// Tells which lines have called.
    frame_teller: Option<Reference>,
    /// Events that are awaited: the process lives on for their sake.
    awaited: usize,
    last_id: u32,
    /// What ends the calls that run.
    cancellations: HashMap<u32, Arc<AtomicBool>>,
    /// Owners of memory that operations may use, by the number that its end is told with.
    owners: HashMap<u32, Reference>,
    /// What backends of this thread are asked for, until it is done.
    tasks: HashMap<u32, BackendTask>,
    /// Those of which the listener does not know what they are.
    new_tasks: VecDeque<u32>,
    /// As `tasks` and `new_tasks`, for stores.
    store_tasks: HashMap<u32, StoreTask>,
    new_store_tasks: VecDeque<u32>,
    /// Operators that are functions of this thread.
    reductions: HashMap<u32, CustomReduction>,
}

thread_local! {
    static REALM: RefCell<Option<Rc<Realm>>> = const { RefCell::new(None) };
    /// Whether this thread's environment ends.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// The realm of this thread.
pub(crate) fn realm(env: Env) -> Result<Rc<Realm>> {
    if let Some(realm) = REALM.with_borrow(Clone::clone) {
        return Ok(realm);
    }
    let waker = ThreadWaker::new(env, woken)?;
    let mailbox = Arc::new(Mailbox { waker, events: Mutex::new(Some(Vec::new())) });
    let realm = Rc::new(Realm {
        mailbox,
        adaptive_wait: AdaptiveWait::default(),
        state: RefCell::default(),
    });
    REALM.set(Some(realm.clone()));
    // Hooks run in reverse order: this one before Node frees the thread-safe function.
    env.add_env_cleanup_hook((), |()| end())?;
    Ok(realm)
}

/// The realm of this thread, if it has one.
pub(crate) fn current_realm() -> Option<Rc<Realm>> {
    REALM.try_with(|realm| realm.borrow().clone()).ok().flatten()
}

impl Mailbox {
    /// Notifies the thread, which may be gone.
    pub(crate) fn send(&self, event: Event) {
        let mut kept = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(events) = &mut *kept else {
            // Dropped without the lock, as that may tell others.
            drop(kept);
            return drop(event);
        };
        events.push(event);
        let is_first = events.len() == 1;
        drop(kept);
        // The next reader finds the events after the first one, too.
        if is_first {
            self.waker.wake();
        }
    }
}

impl Realm {
    /// A number that nothing else of this realm has.
    pub(crate) fn next_id(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.last_id = state.last_id.wrapping_add(1);
        state.last_id
    }

    /// Keeps the process alive for one more event.
    pub(crate) fn expect_event(&self, env: Env) {
        let mut state = self.state.borrow_mut();
        state.awaited += 1;
        if state.awaited == 1 {
            self.mailbox.waker.set_keeps_process_alive(env, true);
        }
    }

    fn event_came(&self, env: Env) {
        let mut state = self.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        if state.awaited == 0 {
            self.mailbox.waker.set_keeps_process_alive(env, false);
        }
    }

    /// Calls `listener` with the numbers of completed operations.
    pub(crate) fn listen(&self, listener: Js<'_>) -> Result<()> {
        let previous = self.state.borrow_mut().listener.replace(Reference::new(listener)?);
        previous.into_iter().for_each(Reference::forget);
        Ok(())
    }

    /// Has `tell` say which lines have called.
    pub(crate) fn tell_frames(&self, tell: Js<'_>) -> Result<()> {
        let previous = self.state.borrow_mut().frame_teller.replace(Reference::new(tell)?);
        previous.into_iter().for_each(Reference::forget);
        Ok(())
    }

    /// What says which lines have called.
    pub(crate) fn frame_teller<'a>(&self) -> Option<Js<'a>> {
        // Whoever asks in the middle of something else goes without.
        let state = self.state.try_borrow().ok()?;
        state.frame_teller.as_ref()?.get().ok()
    }

    /// What ends the call of this number, which runs from now on.
    pub(crate) fn flag(&self, id: u32) -> Arc<AtomicBool> {
        self.state.borrow_mut().cancellations.entry(id).or_default().clone()
    }

    /// Ends the waits of the call of this number, if it runs.
    pub(crate) fn cancel(&self, id: u32) {
        if let Some(flag) = self.state.borrow().cancellations.get(&id) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps a value until `Event::Unused` names this number of it.
    pub(crate) fn keep(&self, owner: Js<'_>) -> Result<u32> {
        let owner = Reference::new(owner)?;
        let id = self.next_id();
        self.state.borrow_mut().owners.insert(id, owner);
        Ok(id)
    }

    /// Releases a value that was kept.
    fn forget(&self, owner: u32) {
        let kept = self.state.borrow_mut().owners.remove(&owner);
        kept.into_iter().for_each(Reference::forget);
    }

    /// Takes the numbers of groups that have failed, which the listener is not told any more.
    pub(crate) fn take_failures(&self) -> Vec<f64> {
        let mut events = self.mailbox.events.lock().unwrap_or_else(PoisonError::into_inner);
        let events = events.get_or_insert_default();
        let failed = events.extract_if(.., |event| matches!(event, Event::Failed(_)));
        let number = |event| match event {
            Event::Failed(group) => group as f64,
            _ => 0.0,
        };
        failed.map(number).collect()
    }

    /// The number of the next task that has come.
    pub(crate) fn take_task(&self) -> Option<u32> {
        self.state.borrow_mut().new_tasks.pop_front()
    }

    /// What `look` sees of a task that is not done.
    pub(crate) fn with_task<T>(&self, id: u32, look: impl FnOnce(&BackendTask) -> T) -> Option<T> {
        self.state.borrow().tasks.get(&id).map(look)
    }

    /// Takes a task, which is done.
    pub(crate) fn remove_task(&self, id: u32) -> Option<BackendTask> {
        self.state.borrow_mut().tasks.remove(&id)
    }

    /// What `look` sees of the next task for a store that has come, and its number.
    pub(crate) fn take_store_task<T>(&self, look: impl FnOnce(u32, &StoreTask) -> T) -> Option<T> {
        let mut state = self.state.borrow_mut();
        let id = state.new_store_tasks.pop_front()?;
        state.store_tasks.get(&id).map(|task| look(id, task))
    }

    /// Takes a task for a store, which is done.
    pub(crate) fn remove_store_task(&self, id: u32) -> Option<StoreTask> {
        self.state.borrow_mut().store_tasks.remove(&id)
    }

    /// Keeps an operator; its number.
    pub(crate) fn keep_reduction(&self, reduction: CustomReduction) -> u32 {
        let number = reduction.number();
        self.state.borrow_mut().reductions.insert(number, reduction);
        number
    }

    /// Gives up an operator.
    pub(crate) fn remove_reduction(&self, number: u32) -> Option<CustomReduction> {
        self.state.borrow_mut().reductions.remove(&number)
    }

    fn receive(&self, env: Env) -> Result<()> {
        let events = {
            let mut events = self.mailbox.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.as_mut().map(std::mem::take).unwrap_or_default()
        };
        let (mut completed, mut outcome, mut has_tasks) = (Vec::new(), Ok(()), false);
        for event in events {
            match event {
                // Nobody waits for these.
                Event::Unused(owner) => {
                    self.forget(owner);
                    continue;
                }
                Event::Failed(group) => {
                    completed.push(-(group as f64));
                    continue;
                }
                Event::Task(task) => {
                    let id = self.next_id();
                    let mut state = self.state.borrow_mut();
                    state.tasks.insert(id, *task);
                    state.new_tasks.push_back(id);
                    has_tasks = true;
                    continue;
                }
                Event::StoreTask(task) => {
                    let id = self.next_id();
                    let mut state = self.state.borrow_mut();
                    state.store_tasks.insert(id, *task);
                    state.new_store_tasks.push_back(id);
                    has_tasks = true;
                    continue;
                }
                _ => self.event_came(env),
            }
            match event {
                Event::Unused(_) | Event::Failed(_) => {}
                Event::Task(_) | Event::StoreTask(_) => {}
                Event::Completed(id) => completed.push(f64::from(id)),
                Event::Ended(deferred, cancellation, result) => {
                    if let Some(id) = cancellation {
                        self.state.borrow_mut().cancellations.remove(&id);
                    }
                    // Whatever becomes of one call, the others get their answers.
                    let settled = Js::scope(env, || {
                        settle(env, deferred, result, |answer| to_js(env, answer))
                    });
                    outcome = outcome.and(settled);
                }
                Event::Made(deferred, result) => {
                    let settled = Js::scope(env, || {
                        settle(env, deferred, result, |region| {
                            NativeMemory::made(env, region).into_js(env)
                        })
                    });
                    outcome = outcome.and(settled);
                }
            }
        }
        if has_tasks {
            completed.push(TASKS_CAME);
        }
        if completed.is_empty() { outcome } else { self.tell(env, &completed).and(outcome) }
    }

    fn tell(&self, env: Env, completed: &[f64]) -> Result<()> {
        let listener = self.state.borrow().listener.as_ref().map(Reference::get).transpose()?;
        let Some(listener) = listener else { return Ok(()) };
        let ids = Js::array(env)?;
        for (index, &id) in completed.iter().enumerate() {
            ids.set_index(index as u32, Js::of_number(env, id)?)?;
        }
        listener.call(ids)
    }
}

fn settle<'a, T>(
    env: Env,
    deferred: Deferred,
    result: polyrank::Result<T>,
    value_of: impl FnOnce(T) -> Result<Js<'a>>,
) -> Result<()> {
    let value = match result {
        Ok(answer) => value_of(answer).map(Ok),
        Err(error) => raise_value(env, &error).map(Err),
    };
    match value {
        Ok(value) => deferred.settle(value),
        Err(failure) => {
            Js::forget_exception(env)?;
            let what = "the answer is more than a value of JavaScript can be";
            let error = Error::InvalidArgument { message: format!("{what}: {}", failure.reason) };
            deferred.settle(Err(raise_value(env, &error)?))
        }
    }
}

/// Whether the environment of this thread ends.
pub(crate) fn is_ending() -> bool {
    ENDING.get()
}

/// Called on the thread of the realm when something happened elsewhere.
fn woken(env: Env) {
    let Some(realm) = REALM.with_borrow(Clone::clone) else { return };
    // What fails here is an exception of the listener, which is pending and Node's to report.
    let _ = realm.receive(env);
}

/// The environment of this thread ends: what its calls wait for is of no interest any more.
fn end() {
    ENDING.set(true);
    let Some(realm) = REALM.with_borrow_mut(Option::take) else { return };
    realm.mailbox.waker.end();
    let events = realm.mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut state = realm.state.borrow_mut();
    let tasks = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.store_tasks));
    drop(state);
    // Tasks that nobody will run tell their callers.
    drop((events, tasks));
    for flag in realm.state.borrow().cancellations.values() {
        flag.store(true, Ordering::Relaxed);
    }
}
