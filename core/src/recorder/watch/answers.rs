//! What a rank tells others of itself when they ask: where it stands, what it has called, what it
//! does and has counted. Knows nothing of who asks.

use super::place::Place;
use super::{ASKED, PREFIX, key_of};
use crate::blocking::unblock;
use crate::call_site::call_site;
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::recorder::{gather, report};
use crate::store::Store;

/// What a rank has answered in a store.
#[derive(Default)]
pub(crate) struct Answers {
    /// What the keys of the watch begin with there.
    prefix: String,
    /// What stood at [`ASKED`] when this rank last answered.
    asked: i64,
    /// The last request for all that it remembers.
    dumped: i64,
    /// The last question for what it does and has counted.
    reported: i64,
}

impl Answers {
    /// In the store of the first group, whose ranks still wait for one another: nobody else answers
    /// for this one yet.
    pub(crate) fn before_group() -> Answers {
        Answers { prefix: format!("{PREFIX}/"), ..Answers::default() }
    }

    /// The number of the last question in `store`, if it was not answered.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn question(&self, store: &dyn Store) -> Result<Option<i64>> {
        let key = format!("{}{ASKED}", self.prefix);
        // Looking makes no key.
        if !store.check_async(&[&key]).await? {
            return Ok(None);
        }
        let asked = store.add_async(&key, 0).await?;
        Ok((asked != self.asked).then_some(asked))
    }

    /// Answers it as `rank`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn answer(
        &mut self,
        store: &dyn Store,
        rank: u32,
        question: i64,
    ) -> Result<()> {
        let place = move || Ok(Place::of(rank, question, Instant::now(), call_site()).encode());
        let place = unblock(place).await?;
        let prefix = self.prefix.as_str();
        store.set_async(&format!("{prefix}{}", key_of(rank)), &place).await?;
        self.asked = question;
        self.dumped = gather::answer((store, prefix), rank, self.dumped).await?;
        self.reported = report::answer((store, prefix), rank, self.reported).await?;
        Ok(())
    }
}
