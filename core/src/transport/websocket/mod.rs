//! Frames over WebSockets, straight to a rank or through the relay of the store's server.
//! Knows nothing of schedules, groups or stores.

mod pipe;

pub use pipe::{CHUNK_BYTES, Pipe, PipeState, Relay};
