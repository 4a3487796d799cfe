//! How the end of an operation is reported: the handle that is waited on, the error of a broken
//! group, and who drives the operation meanwhile. Modules that run operations may import this one;
//! it imports none of them.

mod abort_error;
mod handle;
mod rank_names;

#[cfg(feature = "tcp")]
pub(crate) use abort_error::LEAVES;
pub use abort_error::error_of;
pub(crate) use abort_error::{collective_name, inherited_error, tagged_name};
pub use handle::Completion;
#[cfg(feature = "tcp")]
pub(crate) use handle::is_in_callback;
pub(crate) use handle::{Notification, guarded, in_hook, is_in_hook};
pub(crate) use rank_names::rank_names;

/// Work at the end of an operation, before its completion is settled: scaling, copying out.
/// It runs under the progress lock, so it must not call user code.
pub type Outcome = Box<dyn FnOnce() + Send>;

/// Whether and when the caller of an operation waits for it, which decides what thread drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitIntent {
    /// The caller waits immediately.
    Soon,
    /// The caller most likely waits immediately, but need not.
    Likely,
    /// The caller does something else first.
    Later,
    /// As [`WaitIntent::Later`], by a caller that must not spend time on frames that have arrived:
    /// another thread starts to process them.
    OtherThread,
}
