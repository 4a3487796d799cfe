//! Default groups that meet one after another: whether a store that was found is about to end with
//! the group before. Knows nothing of how a store is found.

use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use std::time::Duration;

use super::{RankClaim, Rendezvous, explained, is_shortage, timed_out};
use crate::blocking::sleep;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::random;

/// Key that tells one store from another.
const IDENTITY: &str = "polyrank/identity";

/// Pause before a store that just ended is looked for again.
const PAUSE: Duration = Duration::from_millis(5);

/// The stores in which this process met.
static MET: ProcessMutex<Vec<Vec<u8>>> = ProcessMutex::new(Vec::new());

/// Meets by calling `find` with the time that is left, again if what it found was the store of a
/// group that ended. Returns this rank's place in the default group `name`, whose keys are kept
/// apart from those of earlier groups in the same store.
///
/// # Errors
/// Those of `find` and of [`RankClaim::take`]; [`Error::RendezvousTimeout`] if rank 0 has not come
/// when the time is up; [`Error::Network`] if the store ends.
pub(crate) async fn meet(
    timeout: Duration,
    name: &str,
    mut find: impl AsyncFnMut(Duration) -> Result<Rendezvous>,
) -> Result<(Rendezvous, RankClaim)> {
    let start = Instant::now();
    let mut left = timeout;
    loop {
        let met = find(left).await?;
        let may_end = met.ends_with_rank_0 && !met.hosting && !lock().is_empty();
        match enter(&met, name, left).await {
            Ok(claim) => return Ok((met, claim)),
            Err(Error::Network { .. }) if may_end && (timeout.is_zero() || left > PAUSE) => {
                drop(met);
                sleep(PAUSE).await?;
                left = remaining(timeout, start);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What is left of `timeout`. Zero means no limit at all, so a limit that is used up is not zero.
pub(crate) fn remaining(timeout: Duration, start: Instant) -> Duration {
    if timeout.is_zero() {
        return timeout;
    }
    timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(1))
}

/// A failure after the store was found: if it ended, so did its host, unless it is this process
/// that can open no more files.
pub(crate) fn lost(error: Error, hosting: bool) -> Error {
    match explained(error) {
        error if is_shortage(&error) => error,
        Error::Network { message } if !hosting => Error::Network {
            message: format!(
                "lost the store while the ranks were joining; its host, which is rank 0 unless \
                 another process serves it, ended or gave up: {message}"
            ),
        },
        error => error,
    }
}

/// Takes this rank's place in the group `name`, within `left`.
pub(crate) async fn enter(met: &Rendezvous, name: &str, left: Duration) -> Result<RankClaim> {
    take_place(met, name, left).await.map_err(|error| lost(error, met.hosting))
}

async fn take_place(met: &Rendezvous, name: &str, left: Duration) -> Result<RankClaim> {
    let is_back = note(&met.store.compare_set_async(IDENTITY, b"", &random_name()?).await?);
    let claim = RankClaim::take(met, name).await?;
    if met.rank == 0 && met.ends_with_rank_0 {
        met.store.set_async(&claim.opened(), b"1").await?;
    } else if met.ends_with_rank_0 && is_back {
        // Either rank 0 continues with this store or it has not left yet, and the store ends then.
        let opened = met.store.wait_async(&[&claim.opened()], Some(left)).await;
        opened.map_err(|error| without_rank_0(met, left, error))?;
    }
    Ok(claim)
}

/// The error of the wait for rank 0. Other requests that take too long say nothing of rank 0.
fn without_rank_0(met: &Rendezvous, left: Duration, error: Error) -> Error {
    let Error::StoreTimeout { .. } = error else { return error };
    let message = format!(
        "rank 0 of {} did not join within {left:?}; this rank is back in the store of an earlier \
         group",
        met.world_size
    );
    timed_out(met.rank, vec![0], message)
}

/// Notes that this process is in the store `identity`; whether it was before.
fn note(identity: &[u8]) -> bool {
    let mut met = lock();
    let is_back = met.iter().any(|known| known == identity);
    if !is_back {
        met.push(identity.to_vec());
    }
    is_back
}

fn lock() -> ProcessMutexGuard<'static, Vec<Vec<u8>>> {
    MET.lock()
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
    use crate::store::{TcpStore, TcpStoreOptions};

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn who_returns_before_rank_0_has_left_waits_for_its_next_store() {
        let serve = || {
            let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true).timeout(LIMIT);
            Arc::new(TcpStore::without_waiting(options).unwrap())
        };
        let client = |port| -> Result<Rendezvous> {
            let options = TcpStoreOptions::new("127.0.0.1", port).timeout(LIMIT);
            let store = Arc::new(TcpStore::without_waiting(options)?);
            Ok(Rendezvous {
                store,
                rank: 1,
                world_size: 2,
                hosting: false,
                ends_with_rank_0: true,
                run_id: None,
                version: None,
                restart_count: None,
                is_of_launcher: false,
            })
        };
        let (first, second) = (serve(), serve());
        let (first_port, second_port) = (first.port(), second.port());
        block_on(meet(LIMIT, "g", async |_| client(first_port))).unwrap();
        let mut finds = 0;
        let mut first = Some(first);
        let (met, _claim) = block_on(meet(LIMIT, "g", async |_| {
            finds += 1;
            let met = client(if finds == 1 { first_port } else { second_port });
            // The host leaves when the rank is back in its old store.
            first.take();
            met
        }))
        .unwrap();
        assert_eq!(finds, 2);
        assert_eq!(met.rank, 1);
    }
}
