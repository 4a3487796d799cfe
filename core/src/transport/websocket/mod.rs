//! Frames for ranks that have only WebSockets: over ordered pipes of chunks, each of them a
//! WebSocket of its own or a channel through the store server. Knows nothing of schedules, groups
//! or stores.

mod pipe;
mod socket;

pub use self::pipe::{MAX_CHUNK_BYTES, Pipe, PipeState, Relay};
pub use self::socket::{Closed, Dialer, Socket, SocketEvent, close_code};
