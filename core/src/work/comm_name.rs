//! The name that a user gives to the operations that a block of code calls: of the block of this
//! thread, or of whatever a language calls one. Knows no operations.
//!
//! Programs that never had such a block look at one flag.

use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::context;
use crate::generated::error::{Error, Result};

/// What a user calls the operations of a block: `FSDP::all_gather (layer1)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommName(Arc<str>);

/// Whether there was a block in this process.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Where a language keeps the name that counts for what calls now.
static SOURCE: OnceLock<fn() -> Option<CommName>> = OnceLock::new();

thread_local! {
    static NAMES: RefCell<Vec<CommName>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with `name` as the name of all operations that it calls on this thread, in every
/// group: their errors say it, and hooks are given it. The innermost block counts.
///
/// ```
/// # use polyrank::store::HashStore;
/// # use polyrank::{ProcessGroup, record_comm};
/// # use std::sync::Arc;
/// # let store = Arc::new(HashStore::new());
/// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
/// let mut gradients = [1.0, 2.0];
/// record_comm("gradients of layer 1", || group.allreduce(&mut gradients, ()))?;
/// # Ok::<(), polyrank::Error>(())
/// ```
pub fn record_comm<R>(name: &str, f: impl FnOnce() -> R) -> R {
    CommName::new(name).apply(f)
}

/// As [`record_comm`], for what a future calls, whatever threads run it.
pub async fn record_comm_async<F: Future>(name: &str, future: F) -> F::Output {
    CommName::new(name).apply_to(future).await
}

/// Gives what this thread calls from now on a name, until it is called with none: for a language
/// that calls on one thread only, and does so immediately.
pub fn set_thread_comm_name(name: Option<&str>) {
    NAMES.with_borrow_mut(|names| match name {
        Some(name) => {
            IS_USED.store(true, Ordering::Relaxed);
            names.push(CommName::new(name));
        }
        None => drop(names.pop()),
    });
}

/// Has `source` say from now on which name counts, where no block of Rust does. The first one
/// stays.
pub fn set_comm_name_source(source: fn() -> Option<CommName>) {
    SOURCE.get_or_init(|| source);
    IS_USED.store(true, Ordering::Relaxed);
}

impl CommName {
    /// This name.
    pub fn new(name: &str) -> CommName {
        CommName(name.into())
    }

    /// The name that counts for what this thread calls now.
    pub fn current() -> Option<CommName> {
        if !IS_USED.load(Ordering::Relaxed) {
            return None;
        }
        context::innermost(&NAMES).or_else(|| SOURCE.get().and_then(|source| source()))
    }

    /// Runs `f` with this name, as [`record_comm`].
    pub fn apply<R>(&self, f: impl FnOnce() -> R) -> R {
        IS_USED.store(true, Ordering::Relaxed);
        context::within(&NAMES, self.clone(), f)
    }

    /// `future`, whose calls have this name, as [`record_comm_async`].
    pub(crate) fn apply_to<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        IS_USED.store(true, Ordering::Relaxed);
        context::within_async(&NAMES, self, future)
    }

    /// The text.
    pub fn text(&self) -> Arc<str> {
        self.0.clone()
    }

    /// What messages call an operation: `allreduce 'layer 1'`.
    pub(crate) fn beside(&self, operation: &str) -> String {
        let named = format!(" '{self}'");
        // What failed in a call of another may have it already.
        if operation.ends_with(&named) {
            operation.to_owned()
        } else {
            operation.to_owned() + &named
        }
    }

    /// `error`, with the name beside the collective that it is about: operation `sequence`, which
    /// is none where nothing was issued.
    pub(crate) fn describe(&self, mut error: Error, sequence: Option<u64>) -> Error {
        // A disagreement is told to all later operations, too.
        let is_earlier = matches!(&error, Error::CollectiveMismatch { sequence: disputed, .. }
            if Some(*disputed) != sequence);
        if is_earlier {
            return error;
        }
        if let Some(collective) = error.collective_mut() {
            *collective = self.beside(collective);
        }
        // c10d's words, which do not name the call.
        if let Error::MonitoredBarrier { message, collective, .. } = &mut error {
            message.push_str(&format!(" ({collective})"));
        }
        error
    }
}

impl Display for CommName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What messages call `operation` of the block that this thread is in, if it is in one.
pub(crate) fn titled(operation: &str) -> String {
    CommName::current().map_or_else(|| operation.to_owned(), |name| name.beside(operation))
}

/// `result`, whose error has the name of the block that this thread is in, if it is in one.
pub(crate) fn describe_error<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match CommName::current() {
        Some(name) => name.describe(error, None),
        None => error,
    })
}
