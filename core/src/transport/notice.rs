//! What happened to a transport while its sink was out of reach, and is told later. Knows nothing
//! of what the sink makes of it.

use super::{LossReason, Rank, Sink};
use crate::wire::frame::Header;

/// What the sink has not been told yet.
pub(super) enum Notice {
    /// A frame to this rank has left.
    Sent(Rank, Header),
    /// The connection to this rank has ended.
    Lost(Rank, LossReason),
}

/// Tells `sink` all of `notices`, in their order; whether there were any.
pub(super) fn tell(notices: &mut Vec<Notice>, sink: &mut dyn Sink) -> bool {
    let moved = !notices.is_empty();
    for notice in notices.drain(..) {
        match notice {
            Notice::Sent(peer, header) => sink.sent(peer, &header),
            Notice::Lost(peer, why) => sink.lost(peer, why),
        }
    }
    moved
}
