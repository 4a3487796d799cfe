//! Spans that overlap, laid onto lanes where they do not. Knows no operation.

/// The lane of each span, from 0, and how many lanes there are. Spans are from start to end, in the
/// order of their starts.
pub(crate) fn lanes(spans: &[(i64, i64)]) -> (Vec<usize>, usize) {
    let mut ends: Vec<i64> = Vec::new();
    let lane = |(start, end): &(i64, i64)| {
        let free = ends.iter().position(|until| until <= start);
        let lane = free.unwrap_or_else(|| {
            ends.push(0);
            ends.len() - 1
        });
        // A span without length takes its place all the same.
        ends[lane] = (*end).max(start.saturating_add(1));
        lane
    };
    let found: Vec<usize> = spans.iter().map(lane).collect();
    let count = found.iter().max().map_or(1, |last| last + 1);
    (found, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_on_lanes_of_their_own() {
        assert_eq!(
            lanes(&[(0, 10), (10, 20), (15, 18), (18, 30), (19, 21)]),
            (vec![0, 0, 1, 1, 2], 3)
        );
        assert_eq!(lanes(&[(5, 5), (5, 5)]), (vec![0, 1], 2));
        assert_eq!(lanes(&[]), (vec![], 1));
    }
}
