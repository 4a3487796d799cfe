//! Finding out through the store why an operation stalls, where no frame tells: each rank that
//! stalls publishes what it ran last, and compares with what others published. Knows no transport.

use std::sync::Arc;

use crate::Result;
use crate::store::Store;
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::Fingerprint;

/// An operation's number, and what it is.
pub(super) type Numbered = (u64, Fingerprint);

/// Bytes of one published operation: the number and the fingerprint.
const RECORD_BYTES: usize = 8 + Fingerprint::BYTES;

/// Publishes what this rank runs and ran, and looks for a rank that ran something else under the
/// same number. `None` if nobody who published did.
///
/// # Errors
/// Those of the store: a store that is gone says nothing about the operation.
pub(super) fn compare(
    store: &Arc<dyn Store>,
    rank: u32,
    size: u32,
    ours: &[Numbered],
) -> Result<Option<Abort>> {
    store.set(&key(rank), &encode(ours))?;
    for other in (0..size).filter(|&other| other != rank) {
        if !store.check(&[&key(other)])? {
            continue;
        }
        let theirs = decode(&store.get(&key(other))?);
        if let Some(mismatch) = first_difference(rank, ours, other, &theirs) {
            return Ok(Some(mismatch));
        }
    }
    Ok(None)
}

fn key(rank: u32) -> String {
    format!("stalled/{rank}")
}

fn first_difference(
    rank: u32,
    ours: &[Numbered],
    other: u32,
    theirs: &[Numbered],
) -> Option<Abort> {
    let side = |rank, fingerprint| Side { rank, fingerprint, message_bytes: None };
    ours.iter()
        .filter_map(|&(sequence, mine)| {
            let &(_, yours) = theirs.iter().find(|(number, _)| *number == sequence)?;
            (mine != yours).then(|| Abort::Mismatch {
                sequence,
                one: side(rank, mine),
                other: side(other, yours),
            })
        })
        .next()
}

fn encode(operations: &[Numbered]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(operations.len() * RECORD_BYTES);
    for (sequence, fingerprint) in operations {
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&fingerprint.encode());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Vec<Numbered> {
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
    use crate::store::HashStore;

    fn operation(collective: u8) -> Fingerprint {
        Fingerprint { collective, elements: 10, ..Fingerprint::default() }
    }

    #[test]
    fn the_first_number_under_which_two_ranks_ran_different_operations_is_found() {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let ours = [(4, operation(0)), (5, operation(1))];
        assert_eq!(compare(&store, 0, 3, &ours).unwrap(), None, "nobody else published");
        let theirs = [(5, operation(2)), (6, operation(0))];
        let found = compare(&store, 2, 3, &theirs).unwrap();
        let Some(Abort::Mismatch { sequence: 5, one, other }) = found else { panic!("{found:?}") };
        assert_eq!((one.rank, one.fingerprint), (2, operation(2)));
        assert_eq!((other.rank, other.fingerprint), (0, operation(1)));
    }

    #[test]
    fn ranks_that_agree_or_never_met_are_no_mismatch() {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        compare(&store, 0, 2, &[(1, operation(0))]).unwrap();
        assert_eq!(compare(&store, 1, 2, &[(1, operation(0)), (2, operation(3))]).unwrap(), None);
    }

    #[test]
    fn what_is_not_a_list_of_operations_is_skipped() {
        assert_eq!(decode(b"rubbish"), []);
    }
}
