//! What takes time is written once, as a future. Whoever may block polls it once and has it.
//! Knows nothing of what takes time.
//!
//! That works because everything inside that waits does so in the way that it is told: a store that
//! can block answers a request when it is first polled (see [`Store::request`]), and a work is
//! waited for by [`Way::Blocking`].
//!
//! [`Store::request`]: crate::store::Store::request

use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[cfg(feature = "objects")]
use crate::Work;
use crate::clock::CAN_BLOCK;
#[cfg(feature = "objects")]
use crate::completion::Waiting;
use crate::{Error, Result};

/// How the caller of a function that takes time waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The thread waits, and drives what it waits for.
    Blocking,
    /// A task waits, and is woken.
    Awaiting,
}

impl Way {
    /// The way of a caller who blocks where that is possible.
    pub(crate) const NATURAL: Way = if CAN_BLOCK { Way::Blocking } else { Way::Awaiting };

    /// Whether the caller of an operation drives it.
    #[cfg(feature = "objects")]
    pub(crate) fn waiting(self) -> Waiting {
        match self {
            Way::Blocking => Waiting::Soon,
            Way::Awaiting => Waiting::Later,
        }
    }

    /// Waits for `work`.
    #[cfg(feature = "objects")]
    pub(crate) async fn wait_for(self, work: &Work) -> Result<()> {
        match self {
            Way::Blocking => work.wait(None),
            Way::Awaiting => work.clone().await,
        }
    }
}

/// The result of a future in which everything blocks.
///
/// # Errors
/// The future's own; [`Error::Unsupported`] if something in it cannot block, as in a browser.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Error::Unsupported {
            who: "a store that cannot block, as in a browser,".into(),
            operation: "calls that wait; the forms whose names end in `_async` do".into(),
        }),
    }
}
