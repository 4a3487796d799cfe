//! Calls from a language that has an event loop, which must not stand still: who waits in its
//! place, and how long it may wait itself. Knows no language.

mod adaptive_wait;
pub mod group_handles;
mod operation;
pub mod sequences;
pub mod threads;
mod waiters;

pub use adaptive_wait::AdaptiveWait;
pub use operation::LoopOperation;
