//! Questions to all ranks of a job, through the store in which they meet. Knows nothing of what is
//! asked.
//!
//! Who asks counts up a number; each rank's watch sees that within a second, whatever the rank
//! does, and leaves its answer, with the last number, where everybody finds it.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::watch;
use crate::blocking::sleep;
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::store::Store;

/// The time from one look for answers to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What is asked for.
pub(super) struct Topic {
    /// The key of the last question's number.
    pub(super) questions: &'static str,
    /// What the keys of answers begin with.
    pub(super) answers: &'static str,
}

impl Topic {
    /// What those of `ranks` answer that do within `limit`; and the number of the question.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        store: &dyn Store,
        ranks: &[u32],
        limit: Duration,
    ) -> Result<(Vec<(u32, A)>, i64)> {
        let question = store.add_async(self.questions, 1).await?;
        store.add_async(watch::ASKED, 1).await?;
        let until = Instant::now() + limit;
        let (mut open, mut answers) = (ranks.to_vec(), Vec::new());
        while !open.is_empty() {
            let mut still = Vec::new();
            for rank in open {
                match self.answer_of(store, rank, question).await? {
                    Some(answer) => answers.push((rank, answer)),
                    None => still.push(rank),
                }
            }
            open = still;
            if open.is_empty() || Instant::now() >= until {
                break;
            }
            sleep(LOOK_INTERVAL).await?;
        }
        Ok((answers, question))
    }

    /// Takes the answers of `ranks` away, if nobody has asked since this `question`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn clear(
        &self,
        store: &dyn Store,
        ranks: &[u32],
        question: i64,
    ) -> Result<()> {
        if store.add_async(self.questions, 0).await? == question {
            for &rank in ranks {
                store.delete_key_async(&self.key_of(rank)).await?;
            }
        }
        Ok(())
    }

    /// Answers what was asked after the question `answered` as `rank`; the last question. What the
    /// keys in `store` begin with is `prefix`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn answer<A: Serialize>(
        &self,
        (store, prefix): (&dyn Store, &str),
        (rank, answered): (u32, i64),
        answer: impl Future<Output = A>,
    ) -> Result<i64> {
        let questions = format!("{prefix}{}", self.questions);
        if !store.check_async(&[&questions]).await? {
            return Ok(answered);
        }
        let last = store.add_async(&questions, 0).await?;
        if last > answered {
            // Strings and numbers always have a form.
            let answer = serde_json::to_vec(&(last, answer.await)).unwrap_or_default();
            store.set_async(&format!("{prefix}{}", self.key_of(rank)), &answer).await?;
        }
        Ok(last)
    }

    /// What a rank has answered to this `question`, or to a later one.
    async fn answer_of<A: DeserializeOwned>(
        &self,
        store: &dyn Store,
        rank: u32,
        question: i64,
    ) -> Result<Option<A>> {
        let key = self.key_of(rank);
        if !store.check_async(&[&key]).await? {
            return Ok(None);
        }
        let told: Option<(i64, A)> = serde_json::from_slice(&store.get_async(&key).await?).ok();
        Ok(told.filter(|(answered, _)| *answered >= question).map(|(_, answer)| answer))
    }

    fn key_of(&self, rank: u32) -> String {
        format!("{}/{rank}", self.answers)
    }
}
