//! Functions of the user that run before and after the operations of a group: which there are, and
//! when they are called. Knows neither schedules nor backends.
//!
//! An operation with hooks takes the long way: the fast paths look at one flag and decline. Hooks
//! are called outside every lock, in the order of their numbers. What a hook itself runs has none.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(feature = "tcp")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[cfg(feature = "tcp")]
use super::chaos::Faults;
use super::hook_arguments::of_collective;
use super::memberships::Memberships;
use super::{Inner, ProcessGroup};
use crate::backend::Backend;
use crate::clock::Instant;
use crate::completion::{WaitIntent, guarded, in_hook, is_in_hook};
use crate::generated::callback_arguments::{CompletionHookArgs, PostHookArgs, PreHookArgs};
use crate::generated::error::{Error, Result};
use crate::request::Request;
use crate::sorted::SortedMap;
use crate::work::Work;
use crate::work::comm_name::{self, CommName};

type PreHook = Arc<dyn Fn(&PreHookArgs<'_>) -> Result<()> + Send + Sync>;
type PostHook = Arc<dyn Fn(&PostHookArgs) + Send + Sync>;
type CompletionHook = Arc<dyn Fn(&CompletionHookArgs) + Send + Sync>;

/// A hook that is called once for each failure.
struct AbortHook {
    was_told: AtomicBool,
    hook: Box<dyn Fn() + Send + Sync>,
}

/// The hooks of a group.
#[derive(Default)]
pub(super) struct Hooks {
    /// Whether operations have hooks.
    is_watched: AtomicBool,
    known: Mutex<Arc<KnownHooks>>,
    /// How many operations had hooks.
    operations: AtomicU64,
    /// Whether a backend does not tell of its failure, so that its operations have to.
    asks_operations: AtomicBool,
    /// Whether this rank ended the group by its own will, of which abort hooks do not tell.
    is_own_end: AtomicBool,
    /// What the environment has happen before operations.
    #[cfg(feature = "tcp")]
    faults: OnceLock<Arc<Faults>>,
}

/// Hooks by their numbers.
#[derive(Clone, Default)]
struct KnownHooks {
    pre: SortedMap<i64, PreHook>,
    post: SortedMap<i64, PostHook>,
    completion: SortedMap<i64, CompletionHook>,
    abort: SortedMap<i64, Arc<AbortHook>>,
}

/// An operation with hooks that is about to be issued.
pub(crate) struct HookedOperation {
    group: Weak<Memberships>,
    hooks: Arc<KnownHooks>,
    name: &'static str,
    number: u64,
    comm_name: Option<CommName>,
    began: Instant,
}

impl Inner {
    /// As [`ProcessGroup::is_observed`].
    pub(super) fn is_observed(&self) -> bool {
        #[cfg(feature = "tcp")]
        if self.recorder.notes_calls() {
            return true;
        }
        self.has_hooks() || self.hints.change_operations() || CommName::current().is_some()
    }

    fn has_hooks(&self) -> bool {
        // Pages have hooks of their own, in JavaScript: here they would only be code to load.
        !cfg!(target_family = "wasm") && self.hooks.is_watched.load(Ordering::Relaxed)
    }
}

impl ProcessGroup {
    /// Calls `hook` before each operation of the group, in the order of numbers, on the thread that
    /// issues it. An error stops the operation: the call returns it, and the group is aborted, as
    /// the other ranks wait for this one. A hook of the same number is replaced.
    ///
    /// ```
    /// # use polyrank::store::HashStore;
    /// # use polyrank::{ProcessGroup, nan_check};
    /// # use std::sync::Arc;
    /// # let store = Arc::new(HashStore::new());
    /// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
    /// group.register_pre_hook(0, nan_check())?;
    /// group.register_pre_hook(1, |operation| {
    ///     println!("{} #{}", operation.name, operation.op_id);
    ///     Ok(())
    /// })?;
    /// let error = group.allreduce(&mut [1.0, f32::NAN], ()).unwrap_err();
    /// assert!(error.to_string().contains("NaN"));
    /// # Ok::<(), polyrank::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn register_pre_hook(
        &self,
        hook_id: i64,
        hook: impl Fn(&PreHookArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        self.unless_left()?;
        let hook: PreHook = Arc::new(hook);
        self.inner.hooks.change(|known| drop(known.pre.insert(hook_id, hook)));
        Ok(())
    }

    /// Forgets a hook; an unknown number is ignored.
    pub fn unregister_pre_hook(&self, hook_id: i64) {
        self.inner.hooks.change(|known| drop(known.pre.remove(&hook_id)));
    }

    /// Calls `hook` after each operation was issued, in the order of numbers. The work that it gets
    /// has no tensors: [`Work::result`] is empty.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn register_post_hook(
        &self,
        hook_id: i64,
        hook: impl Fn(&PostHookArgs) + Send + Sync + 'static,
    ) -> Result<()> {
        self.unless_left()?;
        let hook: PostHook = Arc::new(hook);
        self.inner.hooks.change(|known| drop(known.post.insert(hook_id, hook)));
        Ok(())
    }

    /// Forgets a hook; an unknown number is ignored.
    pub fn unregister_post_hook(&self, hook_id: i64) {
        self.inner.hooks.change(|known| drop(known.post.remove(&hook_id)));
    }

    /// Calls `hook` when an operation has ended, in the order of numbers, on the thread that
    /// notices the end: it must not wait for operations. Where that is another thread than the one
    /// that waits for the operation, that may go on before.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn register_completion_hook(
        &self,
        hook_id: i64,
        hook: impl Fn(&CompletionHookArgs) + Send + Sync + 'static,
    ) -> Result<()> {
        self.unless_left()?;
        let hook: CompletionHook = Arc::new(hook);
        self.inner.hooks.change(|known| drop(known.completion.insert(hook_id, hook)));
        Ok(())
    }

    /// Forgets a hook; an unknown number is ignored.
    pub fn unregister_completion_hook(&self, hook_id: i64) {
        self.inner.hooks.change(|known| drop(known.completion.remove(&hook_id)));
    }

    /// Calls `hook` once, when this rank finds or is told that the group has failed; operations of
    /// this rank that were in flight say so afterwards, so that it must not wait for them. At once
    /// if that is known already. Not if this rank aborts or leaves the group.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn register_abort_hook(
        &self,
        hook_id: i64,
        hook: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        self.unless_left()?;
        let hook = Arc::new(AbortHook { was_told: AtomicBool::new(false), hook: Box::new(hook) });
        let known = hook.clone();
        self.inner.hooks.change(|all| drop(all.abort.insert(hook_id, known)));
        self.tell_of_failures();
        // It may have been found before anybody was to be told.
        let has_failed = self.inner.backends().any(|backend| backend.failure().is_some());
        if has_failed && !self.inner.hooks.is_own_end.load(Ordering::Relaxed) {
            hook.tell();
        }
        Ok(())
    }

    /// Forgets a hook; an unknown number is ignored.
    pub fn unregister_abort_hook(&self, hook_id: i64) {
        self.inner.hooks.change(|known| drop(known.abort.remove(&hook_id)));
    }

    /// Whether the hooks are called only as long as one of these `handles` is there, which are all
    /// of this process, and nothing of the group is about to call one.
    #[doc(hidden)]
    pub fn keeps_hooks_alone(&self, handles: usize) -> bool {
        Arc::strong_count(&self.inner) == handles && self.inner.hooks.are_kept_alone()
    }

    /// Whether operations have hooks or hints, or those that this thread calls now a name of the
    /// user, so that none takes a fast path.
    #[doc(hidden)]
    pub fn is_observed(&self) -> bool {
        self.inner.is_observed() || !self.is_unwrapped()
    }

    /// What hooks learn of a collective of this group.
    pub(crate) fn hook_arguments<'a>(
        &self,
        request: &'a Request,
        waiting: WaitIntent,
    ) -> PreHookArgs<'a> {
        PreHookArgs { rank: self.rank(), ..of_collective(request, self.rank(), waiting) }
    }

    /// Calls the hooks before an operation, which `arguments` describes; none if it has no hooks.
    ///
    /// # Errors
    /// That of a hook. The group is aborted then.
    pub(super) fn before<'a>(
        &self,
        arguments: impl FnOnce() -> PreHookArgs<'a>,
    ) -> Result<Option<HookedOperation>> {
        if !self.inner.has_hooks() || is_in_hook() {
            return Ok(None);
        }
        let Hooks { operations, .. } = &*self.inner.hooks;
        let hooks = self.inner.hooks.lock().clone();
        let number = operations.fetch_add(1, Ordering::Relaxed);
        let comm_name = CommName::current();
        let told = comm_name.as_ref().map(CommName::text);
        let rank = self.rank();
        let arguments = PreHookArgs { op_id: number, rank, comm_name: told, ..arguments() };
        let name = arguments.name;
        #[cfg(feature = "tcp")]
        if let Some(faults) = self.inner.hooks.faults.get() {
            self.suffer(faults, name);
        }
        for (id, hook) in hooks.pre.iter() {
            let title = comm_name.as_ref().map_or_else(|| name.to_owned(), |it| it.beside(name));
            let why = |what: &str| format!("its pre-hook {id} stopped {title} #{number}: {what}");
            match in_hook(|| catch_unwind(AssertUnwindSafe(|| hook(&arguments)))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.abort_next(&why(&error.to_string()));
                    return Err(error);
                }
                Err(panic) => {
                    self.abort_next(&why(text_of(&*panic)));
                    resume_unwind(panic);
                }
            }
        }
        let group = Arc::downgrade(&self.inner);
        let began = Instant::now();
        Ok(Some(HookedOperation { group, hooks, name, number, comm_name, began }))
    }

    /// Calls the hooks after an operation, if it has any: it was issued, or that failed.
    pub(super) fn after(hooked: Option<HookedOperation>, issued: Result<Work>) -> Result<Work> {
        match (hooked, &issued) {
            (Some(hooked), Ok(work)) => hooked.issued(work),
            (Some(hooked), Err(error)) => hooked.ended(Some(error)),
            (None, _) => {}
        }
        comm_name::describe_error(issued)
    }

    /// The group has other members, whose failure abort hooks have not told of.
    pub(super) fn renew_hooks(&self) {
        self.inner.hooks.is_own_end.store(false, Ordering::Relaxed);
        let known = self.inner.hooks.lock().clone();
        known.abort.iter().for_each(|(_, hook)| hook.was_told.store(false, Ordering::Relaxed));
        if !known.abort.is_empty() {
            self.tell_of_failures();
        }
    }

    /// Has the backends tell of the failure of the group, for the abort hooks.
    fn tell_of_failures(&self) {
        let group = Arc::downgrade(&self.inner);
        let tell = move || {
            if let Some(inner) = group.upgrade() {
                inner.hooks.tell_of_abort();
            }
        };
        let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(tell);
        let tells = self.inner.backends().map(|backend| backend.set_failure_hook(tell.clone()));
        if !tells.fold(true, |all, tells| all & tells) {
            self.inner.hooks.asks_operations.store(true, Ordering::Relaxed);
            self.inner.hooks.is_watched.store(true, Ordering::Relaxed);
        }
    }
}

impl Hooks {
    fn change(&self, change: impl FnOnce(&mut KnownHooks)) {
        let mut known = self.lock();
        let mut changed = KnownHooks::clone(&known);
        change(&mut changed);
        let KnownHooks { pre, post, completion, abort } = &changed;
        let has_none = pre.is_empty() && post.is_empty() && completion.is_empty();
        let asks_operations = self.asks_operations.load(Ordering::Relaxed);
        #[cfg(feature = "tcp")]
        let has_none = has_none && self.faults.get().is_none();
        let is_watched = !has_none || (asks_operations && !abort.is_empty());
        self.is_watched.store(is_watched, Ordering::Relaxed);
        // What a hook holds is dropped after the lock, as dropping may run any code.
        let before = std::mem::replace(&mut *known, Arc::new(changed));
        drop(known);
        drop(before);
    }

    /// Has these happen before operations.
    #[cfg(feature = "tcp")]
    pub(super) fn set_faults(&self, faults: Arc<Faults>) {
        // Groups are given them once, when they are made.
        let _ = self.faults.set(faults);
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Forgets all: the group was left. Hooks may hold what holds the group.
    pub(super) fn clear(&self) {
        self.change(|known| *known = KnownHooks::default());
    }

    /// Whether nobody is about to call one.
    fn are_kept_alone(&self) -> bool {
        // Whoever asks does not wait: it may be the collector of a language.
        let Ok(known) = self.known.try_lock() else { return false };
        let KnownHooks { pre, post, completion, abort } = &**known;
        Arc::strong_count(&known) == 1
            && pre.iter().all(|(_, hook)| Arc::strong_count(hook) == 1)
            && post.iter().all(|(_, hook)| Arc::strong_count(hook) == 1)
            && completion.iter().all(|(_, hook)| Arc::strong_count(hook) == 1)
            && abort.iter().all(|(_, hook)| Arc::strong_count(hook) == 1)
    }

    /// This rank ends the group by its own will, of which abort hooks do not tell.
    pub(super) fn note_own_end(&self) {
        self.is_own_end.store(true, Ordering::Relaxed);
    }

    fn tell_of_abort(&self) {
        let known = self.lock().clone();
        if !self.is_own_end.load(Ordering::Relaxed) {
            known.abort.iter().for_each(|(_, hook)| hook.tell());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<KnownHooks>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AbortHook {
    /// Calls it, unless it was called before.
    fn tell(&self) {
        if !self.was_told.swap(true, Ordering::Relaxed) {
            guarded(|| in_hook(|| (self.hook)()));
        }
    }
}

impl HookedOperation {
    /// Calls the hooks after the operation was issued, as `work`, and sees to it that those are
    /// called that tell of its end.
    pub(super) fn issued(self, work: &Work) {
        let HookedOperation { group, hooks, name, number, comm_name, began } = self;
        let comm_name = comm_name.as_ref().map(CommName::text);
        if !hooks.post.is_empty() {
            let (work, comm_name) = (work.without_tensors(), comm_name.clone());
            let arguments = PostHookArgs { name, op_id: number, work, comm_name };
            hooks.post.iter().for_each(|(_, hook)| guarded(|| in_hook(|| hook(&arguments))));
        }
        let asks = |inner: &Arc<Memberships>| inner.hooks.asks_operations.load(Ordering::Relaxed);
        if group.upgrade().as_ref().is_some_and(asks) {
            work.on_outcome(move |outcome| {
                let failed = group.upgrade().filter(|_| outcome.is_err());
                if let Some(inner) =
                    failed.filter(|it| it.cuda.iter().any(is_broken) || is_broken(&it.cpu))
                {
                    inner.hooks.tell_of_abort();
                }
            });
        }
        if !hooks.completion.is_empty() {
            let hooks = hooks.clone();
            work.on_outcome(move |outcome| {
                let duration = began.elapsed();
                let error = outcome.as_ref().err().cloned();
                let op_id = number;
                hooks.complete(&CompletionHookArgs { name, op_id, duration, error, comm_name });
            });
        }
    }

    /// Calls the hooks that tell of its end, which has come: it could not be issued, say.
    pub(crate) fn ended(self, error: Option<&Error>) {
        let HookedOperation { hooks, name, number: op_id, began, comm_name, .. } = self;
        let (duration, error) = (began.elapsed(), error.cloned());
        let comm_name = comm_name.as_ref().map(CommName::text);
        hooks.complete(&CompletionHookArgs { name, op_id, duration, error, comm_name });
    }
}

impl KnownHooks {
    fn complete(&self, arguments: &CompletionHookArgs) {
        self.completion.iter().for_each(|(_, hook)| guarded(|| in_hook(|| hook(arguments))));
    }
}

fn is_broken(backend: &Arc<dyn Backend>) -> bool {
    backend.is_broken()
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
