//! Default groups that meet one after another: which of them a store is for, and whether it is
//! about to end with the one before. Knows nothing of how a store is found.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Rendezvous;
use crate::clock::{self, Instant};
use crate::{Error, Result, random};

/// Key that tells one store from another.
const IDENTITY: &str = "polyrank/identity";

/// Pause before a store that just ended is looked for again.
const PAUSE: Duration = Duration::from_millis(5);

/// How often this process met in which store.
static MET: Mutex<Vec<(Vec<u8>, u32)>> = Mutex::new(Vec::new());

/// Meets by calling `find` with the time that is left, again if what it found was the store of a
/// group that ended. Returns a prefix that keeps the keys of this default group apart from those
/// of earlier ones in the same store, after a destroy or a restart of the ranks.
///
/// # Errors
/// Those of `find`; [`Error::RendezvousTimeout`] if rank 0 still hosts the store of an earlier
/// group when the time is up; [`Error::Network`] if the store ends.
pub(crate) async fn meet(
    timeout: Duration,
    mut find: impl AsyncFnMut(Duration) -> Result<Rendezvous>,
) -> Result<(Rendezvous, String)> {
    let start = Instant::now();
    let mut left = timeout;
    loop {
        let met = find(left).await?;
        let may_end = met.hosted && !met.hosting && !lock().is_empty();
        match enter(&met, left).await {
            Ok(prefix) => return Ok((met, prefix)),
            Err(Error::Network { .. }) if may_end && (timeout.is_zero() || left > PAUSE) => {
                drop(met);
                clock::sleep(PAUSE).await;
                if !timeout.is_zero() {
                    // Zero is no limit at all, so a limit that is used up is not zero.
                    let unused = timeout.saturating_sub(start.elapsed());
                    left = unused.max(Duration::from_millis(1));
                }
            }
            Err(Error::StoreTimeout { .. }) => {
                let message = format!(
                    "rank 0 of {} did not join within {timeout:?}: it still hosts the store of an \
                     earlier group",
                    met.world_size
                );
                return Err(Error::RendezvousTimeout { message });
            }
            Err(error) => return Err(lost(error, met.hosting)),
        }
    }
}

/// A failure after the store was found: if it ended, so did its host.
pub(crate) fn lost(error: Error, hosting: bool) -> Error {
    match error {
        Error::Network { message } if !hosting => Error::Network {
            message: format!(
                "lost the store while the ranks were joining; rank 0, or whoever hosts it, ended \
                 or gave up: {message}"
            ),
        },
        error => error,
    }
}

/// The prefix for this time in the store. What this process did in other stores does not count, as
/// other ranks may not have been there.
async fn enter(met: &Rendezvous, left: Duration) -> Result<String> {
    let identity = met.store.compare_set_async(IDENTITY, b"", &random_name()?).await?;
    let times = {
        let mut met = lock();
        match met.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                met.push((identity, 1));
                1
            }
        }
    };
    let restarts = std::env::var("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let prefix = format!("world{restarts}.{}", times - 1);
    let open = format!("polyrank/{prefix}/open");
    if met.rank == 0 && met.hosted {
        met.store.set_async(&open, b"1").await?;
    } else if met.hosted && times > 1 {
        // Either rank 0 goes on with this store or it has not left yet, and the store ends then.
        met.store.wait_async(&[&open], Some(left)).await?;
    }
    Ok(prefix)
}

fn lock() -> MutexGuard<'static, Vec<(Vec<u8>, u32)>> {
    MET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that no other process makes.
fn random_name() -> Result<Vec<u8>> {
    Ok(format!("{:032x}", u128::from_le_bytes(random::bytes()?)).into_bytes())
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::blocking::block_on;
    use crate::store::{HashStore, TcpStore, TcpStoreOptions};

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn each_time_in_a_store_has_its_own_prefix_whatever_happened_in_others() {
        for _ in 0..2 {
            let store = Arc::new(HashStore::new());
            for time in 0..3 {
                let find = async |_| Rendezvous::new(store.clone(), 0, 1);
                let (_, prefix) = block_on(meet(LIMIT, find)).unwrap();
                assert!(prefix.ends_with(&format!(".{time}")), "{prefix}");
            }
        }
    }

    #[test]
    fn who_returns_before_rank_0_has_left_waits_for_its_next_store() {
        let serve = || {
            let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).timeout(LIMIT);
            Arc::new(TcpStore::without_waiting(options).unwrap())
        };
        let client = |port| -> Result<Rendezvous> {
            let options = TcpStoreOptions::new("127.0.0.1", port).timeout(LIMIT);
            let store = Arc::new(TcpStore::without_waiting(options)?);
            Ok(Rendezvous { store, rank: 1, world_size: 2, hosting: false, hosted: true })
        };
        let (first, second) = (serve(), serve());
        let (first_port, second_port) = (first.port(), second.port());
        block_on(meet(LIMIT, async |_| client(first_port))).unwrap();
        let mut finds = 0;
        let mut first = Some(first);
        let (met, prefix) = block_on(meet(LIMIT, async |_| {
            finds += 1;
            let met = client(if finds == 1 { first_port } else { second_port });
            // The host leaves when the rank is back in its old store.
            first.take();
            met
        }))
        .unwrap();
        assert_eq!(finds, 2);
        assert!(prefix.ends_with(".0"), "{prefix}");
        assert_eq!(met.rank, 1);
    }
}
