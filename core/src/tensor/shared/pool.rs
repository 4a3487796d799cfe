//! Which parts of a pool are free. Pure arithmetic.

/// The free parts of a pool, in order; no two of them touch.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Start and end of each.
    parts: Vec<(usize, usize)>,
}

impl FreeList {
    /// A pool of `bytes`, all of them free.
    pub(super) fn new(bytes: usize) -> FreeList {
        FreeList { parts: vec![(0, bytes)] }
    }

    /// Takes `bytes` from the first part that has as many; where they begin.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let place = self.parts.iter().position(|(start, end)| end - start >= bytes)?;
        let (start, end) = &mut self.parts[place];
        let taken = *start;
        *start += bytes;
        if start == end {
            self.parts.remove(place);
        }
        Some(taken)
    }

    /// Gives back `bytes` at `at` that were taken.
    pub(super) fn give_back(&mut self, at: usize, bytes: usize) {
        let (mut start, mut end) = (at, at + bytes);
        let mut place = self.parts.partition_point(|part| part.0 < at);
        if place > 0 && self.parts[place - 1].1 == start {
            start = self.parts[place - 1].0;
            place -= 1;
            self.parts.remove(place);
        }
        if self.parts.get(place).is_some_and(|next| next.0 == end) {
            end = self.parts.remove(place).1;
        }
        self.parts.insert(place, (start, end));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_come_back_whole(
            sizes in proptest::collection::vec((1_usize..40, 0_usize..9), 1..60),
        ) {
            let mut free = FreeList::new(200);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (bytes, victim) in sizes {
                match free.take(bytes) {
                    Some(at) => {
                        prop_assert!(at + bytes <= 200);
                        let apart = |(other, length): &(usize, usize)| {
                            at + bytes <= *other || other + length <= at
                        };
                        prop_assert!(taken.iter().all(apart));
                        taken.push((at, bytes));
                    }
                    None if taken.is_empty() => {}
                    None => {
                        let (at, bytes) = taken.swap_remove(victim % taken.len());
                        free.give_back(at, bytes);
                    }
                }
            }
            for (at, bytes) in taken {
                free.give_back(at, bytes);
            }
            prop_assert_eq!(free.parts, [(0, 200)]);
        }
    }
}
