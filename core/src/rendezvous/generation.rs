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

/// The generations that ranks of one group may come to: those that were refused and of which not
/// all ranks have heard it, oldest first, and then the present one. Written with commas between
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generations(Vec<Generation>);

impl Generations {
    /// Those that a store names; the first one if it names none.
    pub(super) fn read(text: &[u8]) -> Generations {
        Generations(text.split(|byte| *byte == b',').map(Generation::read).collect())
    }

    pub(super) fn has(&self, generation: Generation) -> bool {
        self.0.contains(&generation)
    }

    /// The first one that is not among `passed`.
    pub(super) fn first_beside(&self, passed: &[Generation]) -> Option<Generation> {
        self.0.iter().find(|generation| !passed.contains(generation)).copied()
    }

    /// With the one after the last, for a rank that knows so many restarts.
    pub(super) fn with_next(&self, restart_count: Option<u32>) -> Generations {
        let next = self.0.last().map(|last| last.next(restart_count));
        Generations(self.0.iter().copied().chain(next).collect())
    }

    /// Without `generation`; if that is the last, the one after it is in its place.
    pub(super) fn without(
        &self,
        generation: Generation,
        restart_count: Option<u32>,
    ) -> Generations {
        let all = match self.0.last() == Some(&generation) {
            true => self.with_next(restart_count),
            false => self.clone(),
        };
        Generations(all.0.into_iter().filter(|other| *other != generation).collect())
    }
}

impl fmt::Display for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, generation) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{generation}")?;
        }
        Ok(())
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

    #[test]
    fn a_rank_comes_to_the_first_generation_that_it_has_not_passed() {
        let present = Generations::read(b"3");
        let three = Generation::read(b"3");
        assert_eq!(present.first_beside(&[]), Some(three));
        assert_eq!(present.first_beside(&[three]), None);
        let both = present.with_next(None);
        assert_eq!((both.to_string().as_str(), present.to_string().as_str()), ("3,4", "3"));
        assert_eq!(Generations::read(b"3,4"), both);
        assert_eq!(both.first_beside(&[three]), Some(Generation::read(b"4")));
        for (without, left) in [("3", "4"), ("4", "3,5"), ("9", "3,4")] {
            let without = both.without(Generation::read(without.as_bytes()), None);
            assert_eq!(without.to_string(), left);
        }
        assert_eq!(present.without(three, None).to_string(), "4");
    }
}
