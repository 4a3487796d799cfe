//! The generations of a group: how those that meet in one store under one name are told apart.
//! Pure; knows no store.

use std::fmt;

/// Which of the groups of one name, one after another in a store, a group is. Written as its
/// number, after the number of the launcher's restart where one is known: `3`, `1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// How often the launcher had started its ranks again.
    pub(super) restart_count: Option<u32>,
    number: u64,
}

impl Generation {
    /// The first one after so many restarts.
    pub(super) fn first(restart_count: Option<u32>) -> Generation {
        Generation { restart_count, number: 0 }
    }

    /// The one that a store names; the first one for what is not a generation's name.
    pub(super) fn read(text: &[u8]) -> Generation {
        let text = String::from_utf8_lossy(text);
        let (restart_count, number) = match text.split_once('.') {
            Some((restart_count, number)) => (restart_count.parse().ok(), number),
            None => (None, &*text),
        };
        Generation { restart_count, number: number.parse().unwrap_or(0) }
    }

    /// The one that a rank begins which knows so many restarts, in place of this one.
    pub(super) fn next(self, restart_count: Option<u32>) -> Generation {
        match restart_count.filter(|count| self.restart_count != Some(*count)) {
            Some(count) => Generation::first(Some(count)),
            None => Generation { number: self.number.wrapping_add(1), ..self },
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.restart_count {
            Some(count) => write!(f, "{count}.{}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_next_one_is_another() {
        let three = Generation::read(b"3");
        let restarted = Generation::read(b"1.4");
        assert_eq!((three.restart_count, restarted.restart_count), (None, Some(1)));
        for (generation, restart_count, next) in [
            (three, None, "4"),
            (three, Some(0), "0.0"),
            (restarted, None, "1.5"),
            (restarted, Some(1), "1.5"),
            (restarted, Some(2), "2.0"),
            (Generation::first(None), None, "1"),
            (Generation::first(Some(2)), Some(2), "2.1"),
        ] {
            assert_eq!(Generation::read(generation.to_string().as_bytes()), generation);
            assert_eq!(generation.next(restart_count).to_string(), next);
        }
    }
}
