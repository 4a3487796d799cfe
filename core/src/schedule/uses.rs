//! Which steps use which part of a block: segments that do not overlap, each with the uses that a
//! later step may have to wait for. Knows no actions, and nothing of what waits.
//!
//! A schedule of many ranks cuts its blocks into as many parts, of which a step uses a few: those
//! are found without looking at the others.

use super::Chunk;
use super::chunk::Fraction;

/// The uses of one block.
#[derive(Debug, Default)]
pub(super) struct BlockUses {
    /// By rising start; what nobody has used is between them.
    segments: Vec<Segment>,
}

/// A step that reads or writes a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) step: u32,
    pub(super) writes: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    start: Fraction,
    end: Fraction,
    uses: Vec<Use>,
}

impl BlockUses {
    /// The uses of some element of `chunk`, one of them perhaps several times.
    pub(super) fn of(&self, chunk: &Chunk) -> impl Iterator<Item = &Use> {
        let segments = self.segments[self.first_behind(chunk.start())..].iter();
        let end = chunk.end();
        segments.take_while(move |segment| segment.start < end).flat_map(|segment| &segment.uses)
    }

    /// Notes what uses `chunk`, which is not nothing. What writes it comes in place of the uses
    /// before: a step that waits for this one waits for those before it, too.
    pub(super) fn add(&mut self, chunk: &Chunk, added: Use) {
        let (start, end) = (chunk.start(), chunk.end());
        self.cut(start);
        self.cut(end);
        let mut at = self.first_behind(start);
        let mut covered = start;
        while covered < end {
            let next = self.segments.get(at).map_or(end, |segment| segment.start.min(end));
            if covered < next {
                self.segments.insert(at, Segment { start: covered, end: next, uses: Vec::new() });
            }
            let segment = &mut self.segments[at];
            if added.writes {
                segment.uses.clear();
            }
            segment.uses.push(added);
            covered = segment.end;
            at += 1;
        }
    }

    /// The first segment that does not end before `at`, or there.
    fn first_behind(&self, at: Fraction) -> usize {
        self.segments.partition_point(|segment| segment.end <= at)
    }

    /// Makes a segment around `at` two, of which one ends there.
    fn cut(&mut self, at: Fraction) {
        let index = self.first_behind(at);
        let Some(segment) = self.segments.get_mut(index).filter(|segment| segment.start < at)
        else {
            return;
        };
        let before = Segment { end: at, ..segment.clone() };
        segment.start = at;
        self.segments.insert(index, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Block;
    use proptest::prelude::*;

    /// What a list of all uses says.
    fn expected(all: &[(Chunk, Use)], chunk: &Chunk, element: usize) -> Vec<u32> {
        let has = |known: &Chunk| known.elements(360).contains(&element);
        let last_write = all.iter().rposition(|(known, added)| added.writes && has(known));
        let since = &all[last_write.unwrap_or(0)..];
        assert!(has(chunk));
        since.iter().filter(|(known, _)| has(known)).map(|(_, added)| added.step).collect()
    }

    fn chunks() -> impl Strategy<Value = (Chunk, bool)> {
        // Cuts of 360 elements that are all exact.
        let parts = prop::sample::select(vec![1u32, 2, 3, 4, 5, 6, 8, 9, 10, 12]);
        let spans = parts.prop_flat_map(|parts| {
            (0..parts).prop_flat_map(move |part| {
                (1..=parts - part).prop_map(move |count| Block::output(0).span(part, count, parts))
            })
        });
        (spans, any::<bool>())
    }

    proptest! {
        #[test]
        fn uses_are_those_since_the_last_write_of_each_element(
            all in prop::collection::vec(chunks(), 0..40),
        ) {
            let mut uses = BlockUses::default();
            let mut known: Vec<(Chunk, Use)> = Vec::new();
            for (step, (chunk, writes)) in (0..).zip(all) {
                let mut found: Vec<u32> = uses.of(&chunk).map(|used| used.step).collect();
                found.sort_unstable();
                found.dedup();
                let mut wanted: Vec<u32> = chunk
                    .elements(360)
                    .flat_map(|element| expected(&known, &chunk, element))
                    .collect();
                wanted.sort_unstable();
                wanted.dedup();
                prop_assert_eq!(found, wanted);
                let added = Use { step, writes };
                uses.add(&chunk, added);
                known.push((chunk, added));
            }
        }
    }
}
