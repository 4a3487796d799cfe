//! Sessions whose sockets were lost: until when each is waited for, and whose wait ends early where
//! there are too many. Pure; knows sessions by number, and time as a number of milliseconds.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Sessions that have no socket now.
#[derive(Debug, Default)]
pub(super) struct DisconnectedSessions {
    by_number: HashMap<u64, Absence>,
    /// The ends of all waits, with the sessions' numbers.
    by_due: BTreeSet<(u64, u64)>,
    losses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    due_ms: u64,
    /// How many were lost before it.
    order: u64,
    source: Option<IpAddr>,
}

impl DisconnectedSessions {
    /// The session `number`, whose client is at `source`, is waited for until `due_ms`.
    pub(super) fn add(&mut self, number: u64, due_ms: u64, source: Option<IpAddr>) {
        self.remove(number);
        self.losses += 1;
        self.by_number.insert(number, Absence { due_ms, order: self.losses, source });
        self.by_due.insert((due_ms, number));
    }

    /// The session has come back, or is over.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(absence) = self.by_number.remove(&number) {
            self.by_due.remove(&(absence.due_ms, number));
        }
    }

    /// How many there are.
    pub(super) fn sessions(&self) -> usize {
        self.by_number.len()
    }

    /// When the first wait ends.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.by_due.first().map(|(due_ms, _)| *due_ms)
    }

    /// A session whose wait is over at `now_ms`.
    pub(super) fn overdue(&self, now_ms: u64) -> Option<u64> {
        let (due_ms, number) = self.by_due.first()?;
        (*due_ms <= now_ms).then_some(*number)
    }

    /// Whom to give up so that there is room: of the address that lost most, the one that was lost
    /// first, so that who makes them vanish pays for it.
    pub(super) fn most_expendable(&self) -> Option<u64> {
        let mut by_source: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for absence in self.by_number.values() {
            *by_source.entry(absence.source).or_default() += 1;
        }
        let rank = |absence: &Absence| {
            let others = by_source.get(&absence.source).copied().unwrap_or_default();
            (others, std::cmp::Reverse(absence.order))
        };
        let worst = self.by_number.iter().max_by_key(|(_, absence)| rank(absence));
        worst.map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn waits_end_in_order_and_only_those_of_lost_sessions() {
        let mut sessions = DisconnectedSessions::default();
        sessions.add(1, 900, None);
        sessions.add(2, 500, None);
        sessions.add(3, 700, None);
        sessions.remove(3);
        sessions.add(2, 800, None);
        assert_eq!((sessions.sessions(), sessions.next_due_ms()), (2, Some(800)));
        assert_eq!((sessions.overdue(799), sessions.overdue(800)), (None, Some(2)));
        sessions.remove(2);
        assert_eq!((sessions.overdue(5000), sessions.next_due_ms()), (Some(1), Some(900)));
        sessions.remove(1);
        assert_eq!((sessions.overdue(5000), sessions.next_due_ms()), (None, None));
    }

    #[test]
    fn room_is_made_where_most_vanish() {
        let [one, many] = ["10.0.0.1", "10.0.0.2"].map(|text| Some(text.parse().unwrap()));
        let mut sessions = DisconnectedSessions::default();
        sessions.add(1, 100, one);
        (2..5).for_each(|number| sessions.add(number, 50, many));
        sessions.add(2, 900, many);
        assert_eq!(sessions.most_expendable(), Some(3));
        sessions.remove(3);
        assert_eq!(sessions.most_expendable(), Some(4));
        sessions.remove(4);
        assert_eq!(sessions.most_expendable(), Some(1));
        sessions.remove(1);
        sessions.remove(2);
        assert_eq!(sessions.most_expendable(), None);
    }
}
