//! What a session was given for its client and the client has not taken, by who caused it: so that
//! it shows who fills the memory of the server. Pure; knows nothing of what the messages say.

use std::collections::{HashMap, VecDeque};

/// Who caused a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// The client, by asking the store.
    Request,
    /// The client, by speaking of ranks that are gone.
    Question,
    /// Other ranks, by going.
    Departure,
    /// The rank with this number, by sending something.
    Rank(u64),
}

/// The messages of one session that its client has not taken.
#[derive(Debug, Default)]
pub(super) struct UnreadMessages {
    /// In the order in which the session was given them.
    entries: VecDeque<(Cause, usize)>,
    bytes: HashMap<Cause, usize>,
}

impl UnreadMessages {
    /// The session was given a message that costs `bytes`.
    pub(super) fn enter(&mut self, cause: Cause, bytes: usize) {
        self.entries.push_back((cause, bytes));
        *self.bytes.entry(cause).or_default() += bytes;
    }

    /// The client has taken all messages but the last `left`.
    pub(super) fn settle(&mut self, left: usize) {
        while self.entries.len() > left
            && let Some((cause, bytes)) = self.entries.pop_front()
        {
            let Some(sum) = self.bytes.get_mut(&cause) else { continue };
            *sum -= bytes;
            if *sum == 0 {
                self.bytes.remove(&cause);
            }
        }
    }

    /// Bytes of messages that `cause` is to blame for.
    pub(super) fn bytes_of(&self, cause: Cause) -> usize {
        self.bytes.get(&cause).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_nobodys_any_more() {
        let mut unread = UnreadMessages::default();
        unread.enter(Cause::Rank(7), 100);
        unread.enter(Cause::Departure, 20);
        unread.enter(Cause::Rank(7), 3);
        unread.settle(3);
        assert_eq!(unread.bytes_of(Cause::Rank(7)), 103);
        unread.settle(1);
        assert_eq!(unread.bytes_of(Cause::Rank(7)), 3);
        assert_eq!(unread.bytes_of(Cause::Departure), 0);
        unread.settle(0);
        assert_eq!((unread.entries.len(), unread.bytes.len()), (0, 0));
    }
}
