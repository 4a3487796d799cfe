//! Events of a transport that happened while its sink was not at hand, and are delivered later.
//! Knows nothing of what the sink does with them.

use super::{LossReason, Rank, Sink};
use crate::wire::frame::Header;

/// An event of which the sink was not notified yet.
pub(super) enum Notice {
    /// A frame to this rank has left.
    Sent(Rank, Header),
    /// The connection to this rank has ended.
    Lost(Rank, LossReason),
    /// The process of this rank, which was lost, has ended, and whether all that it had sent has
    /// arrived.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "it is of ranks with sockets"))]
    ProcessEnded(Rank, bool),
    /// The connection to this rank, which was lost, ended after all that it had sent.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "it is of ranks with sockets"))]
    EndedInSilence(Rank),
}

/// Delivers all `notices` to `sink`, in order. Returns whether there were any.
pub(super) fn tell(notices: &mut Vec<Notice>, sink: &mut dyn Sink) -> bool {
    let moved = !notices.is_empty();
    for notice in notices.drain(..) {
        match notice {
            Notice::Sent(peer, header) => sink.sent(peer, &header),
            Notice::Lost(peer, why) => sink.lost(peer, why),
            Notice::ProcessEnded(peer, all_arrived) => sink.process_ended(peer, all_arrived),
            Notice::EndedInSilence(peer) => sink.ended_in_silence(peer),
        }
    }
    moved
}
