//! What ranks of a group give to a call that all of them make, for each of them to see, through the
//! group's store: no operation of the group runs for it. Knows not what they call, nor a backend.

use std::sync::{Mutex, PoisonError};

use super::ProcessGroup;
use super::create::own_connection;
use super::group_calls::GroupCall;
use crate::fnv::Fnv;
use crate::generated::error::Result;
use crate::sorted::SortedMap;

/// How many such calls there were, by a number of the ranks that make them.
#[derive(Debug, Default)]
pub(super) struct SharedTexts {
    counts: Mutex<SortedMap<u64, u64>>,
}

impl ProcessGroup {
    /// What each of `ranks`, of which this is one, gives to `function`, in their order. All of them
    /// call it, in the same order if they call it several times.
    ///
    /// # Errors
    /// Those of [`ProcessGroup::split_group`] until all are there.
    pub(crate) async fn share_texts(
        &self,
        function: &str,
        ranks: &[u32],
        text: &str,
    ) -> Result<Vec<String>> {
        let Some(place) = ranks.iter().position(|&rank| rank == self.rank()) else {
            return Ok(Vec::new());
        };
        if ranks.len() == 1 {
            return Ok(vec![text.to_owned()]);
        }
        let members = Fnv::of(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
        let count = self.inner.shared_texts.next(members);
        let name = |count: u64| format!("{function}-{members:08x}-{count}");
        let key = |count: u64, rank: u32| format!("texts/{}/{rank}", name(count));
        let call =
            GroupCall { function: function.to_owned(), group: name(count), ranks: ranks.to_vec() };
        let place = place as u32;
        let timeout = self.timeout();
        let watch = self.watch_for_loss_of(ranks, &call.neighbours(place));
        let told = |error| self.error_of(&call, error, false);
        let given = async {
            let own = own_connection(&self.inner.store.underlying()?, ranks.len() as u32).await?;
            own.set_async(&key(count, self.rank()), text.as_bytes()).await.map(|()| own)
        };
        let own = watch.or_failure(given).await.map_err(told)?;
        self.assemble(&*own, (&call, ""), place, timeout, &watch).await?;
        let gathered = async {
            let keys: Vec<String> = ranks.iter().map(|&rank| key(count, rank)).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let texts = own.multi_get_async(&keys).await?;
            if count > 0 {
                // All have come to this call, and have read what was there for the last.
                own.delete_key_async(&key(count - 1, self.rank())).await?;
            }
            Ok(texts.into_iter().map(|text| String::from_utf8_lossy(&text).into_owned()).collect())
        };
        watch.or_failure(gathered).await.map_err(told)
    }
}

impl SharedTexts {
    /// The number of the call of these members that begins now.
    fn next(&self, members: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(members).or_default();
        *count += 1;
        *count - 1
    }
}
