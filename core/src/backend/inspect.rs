//! Finding out through the store why an operation stalls, where no frame tells: each rank that
//! stalls publishes what it ran last, and compares with what others published. Knows no transport.

use crate::generated::error::Result;
use crate::store::Store;
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::Fingerprint;

/// An operation's number, and what it is.
pub(super) type NumberedFingerprint = (u64, Fingerprint);

/// Bytes of one published operation: the number and the fingerprint.
const RECORD_BYTES: usize = 8 + Fingerprint::BYTES;

/// What the store says of the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// A rank ran something else under a number of ours.
    pub(super) mismatch: Option<Abort>,
    /// Ranks that did not publish that they run, or ran, our latest operation: they are elsewhere.
    pub(super) elsewhere: Vec<u32>,
}

/// Publishes what this rank runs and ran, and compares with what the others published. Backends of
/// one group number their operations apart from one another: each has a `place` of its own.
///
/// # Errors
/// Those of the store: a store that is gone says nothing about the operation.
pub(super) async fn compare(
    store: &dyn Store,
    place: &str,
    (rank, size): (u32, u32),
    ours: &[NumberedFingerprint],
) -> Result<Comparison> {
    let key = |rank: u32| format!("{place}/{rank}");
    store.set_async(&key(rank), &encode(ours)).await?;
    let stalled = ours.iter().map(|(sequence, _)| *sequence).max();
    let mut comparison = Comparison::default();
    for other in (0..size).filter(|&other| other != rank) {
        let key = key(other);
        let published = store.check_async(&[&key]).await?;
        let theirs = if published { decode(&store.get_async(&key).await?) } else { Vec::new() };
        comparison.mismatch = first_difference(rank, ours, other, &theirs);
        if comparison.mismatch.is_some() {
            break;
        }
        if !theirs.iter().any(|(sequence, _)| Some(*sequence) == stalled) {
            comparison.elsewhere.push(other);
        }
    }
    Ok(comparison)
}

/// The first number under which two ranks ran different operations.
pub(super) fn first_difference(
    rank: u32,
    ours: &[NumberedFingerprint],
    other: u32,
    theirs: &[NumberedFingerprint],
) -> Option<Abort> {
    let side = |rank, fingerprint| Side { rank, fingerprint, message_bytes: None };
    ours.iter()
        .filter_map(|&(sequence, mine)| {
            let &(_, yours) = theirs.iter().find(|(number, _)| *number == sequence)?;
            (!mine.agrees_with(&yours)).then(|| Abort::Mismatch {
                sequence,
                one: side(rank, mine),
                other: side(other, yours),
            })
        })
        .next()
}

/// The bytes that are published.
pub(super) fn encode(operations: &[NumberedFingerprint]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(operations.len() * RECORD_BYTES);
    for (sequence, fingerprint) in operations {
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&fingerprint.encode());
    }
    bytes
}

/// Reads what [`encode`] wrote, as far as it can be that.
pub(super) fn decode(bytes: &[u8]) -> Vec<NumberedFingerprint> {
    bytes
        .as_chunks::<RECORD_BYTES>()
        .0
        .iter()
        .filter_map(|record| {
            let (sequence, fingerprint) = record.split_first_chunk::<8>()?;
            let fingerprint = Fingerprint::decode(fingerprint.first_chunk()?);
            Some((u64::from_le_bytes(*sequence), fingerprint))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::blocking::block_on;
    use crate::store::HashStore;

    fn compare(
        store: &dyn Store,
        rank: u32,
        size: u32,
        ours: &[NumberedFingerprint],
    ) -> Result<Comparison> {
        block_on(super::compare(store, "stalled", (rank, size), ours))
    }

    fn operation(collective: u8) -> Fingerprint {
        Fingerprint { collective, elements: 10, ..Fingerprint::default() }
    }

    #[test]
    fn the_first_number_under_which_two_ranks_ran_different_operations_is_found() {
        let store = HashStore::new();
        let ours = [(4, operation(0)), (5, operation(1))];
        let alone = Comparison { mismatch: None, elsewhere: vec![1, 2] };
        assert_eq!(compare(&store, 0, 3, &ours).unwrap(), alone, "nobody else published");
        let theirs = [(5, operation(2)), (6, operation(0))];
        let found = compare(&store, 2, 3, &theirs).unwrap().mismatch;
        let Some(Abort::Mismatch { sequence: 5, one, other }) = found else { panic!("{found:?}") };
        assert_eq!((one.rank, one.fingerprint), (2, operation(2)));
        assert_eq!((other.rank, other.fingerprint), (0, operation(1)));
    }

    #[test]
    fn ranks_that_agree_or_never_met_are_no_mismatch() {
        let store = HashStore::new();
        compare(&store, 0, 2, &[(1, operation(0))]).unwrap();
        let ahead = [(1, operation(0)), (2, operation(3))];
        let expected = Comparison { mismatch: None, elsewhere: vec![0] };
        assert_eq!(compare(&store, 1, 2, &ahead).unwrap(), expected);
    }

    #[test]
    fn backends_of_one_group_are_not_compared_with_one_another() {
        let store = HashStore::new();
        compare(&store, 0, 2, &[(1, operation(0))]).unwrap();
        let ours = [(1, operation(1))];
        let found = block_on(super::compare(&store, "nccl/stalled", (1, 2), &ours)).unwrap();
        assert_eq!(found, Comparison { mismatch: None, elsewhere: vec![0] });
    }

    #[test]
    fn what_is_not_a_list_of_operations_is_skipped() {
        assert_eq!(decode(b"rubbish"), []);
    }
}
