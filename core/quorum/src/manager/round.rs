//! Calls that all ranks of a replica group make, and that are answered together.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tonic::Status;

use crate::client::DIFFERENT_STEPS;
use crate::words::names;

/// The calls of one kind that wait.
pub(super) struct Round<T, A> {
    world_size: usize,
    calls: BTreeMap<i64, Call<T, A>>,
    next: u64,
}

/// What one rank asks.
pub(super) struct Call<T, A> {
    number: u64,
    step: i64,
    pub(super) asked: T,
    pub(super) answer: oneshot::Sender<Result<A, Status>>,
}

/// The calls of all ranks.
pub(super) type Calls<T, A> = BTreeMap<i64, Call<T, A>>;

/// A call that was taken in, and those of all ranks if it was the last.
pub(super) type Entered<T, A> = (Waiting<A>, Option<Calls<T, A>>);

/// A call that waits, and its number.
pub(super) type Waiting<A> = (u64, oneshot::Receiver<Result<A, Status>>);

impl<T, A> Round<T, A> {
    pub(super) fn new(world_size: usize) -> Round<T, A> {
        Round { world_size, calls: BTreeMap::new(), next: 0 }
    }

    /// A rank calls. When all have, their calls come back: all at one step, or else each of them
    /// has been told who is where. A rank that calls again takes the place of its first call.
    pub(super) fn enter(
        &mut self,
        rank: i64,
        step: i64,
        asked: T,
    ) -> Result<Entered<T, A>, Status> {
        let is_rank = usize::try_from(rank).is_ok_and(|rank| rank < self.world_size);
        if !is_rank {
            let message = format!("rank {rank} is none of the {} of the group", self.world_size);
            return Err(Status::invalid_argument(message));
        }
        let (answer, receiver) = oneshot::channel();
        self.next += 1;
        let waiting = (self.next, receiver);
        let call = Call { number: self.next, step, asked, answer };
        if let Some(before) = self.calls.insert(rank, call) {
            let message = format!("rank {rank} has asked anew");
            drop(before.answer.send(Err(Status::aborted(message))));
        }
        if self.calls.len() < self.world_size {
            return Ok((waiting, None));
        }
        let calls = std::mem::take(&mut self.calls);
        if calls.values().all(|call| call.step == step) {
            return Ok((waiting, Some(calls)));
        }
        let places: Vec<_> =
            calls.iter().map(|(rank, it)| format!("{rank}: {}", it.step)).collect();
        let message = format!("{DIFFERENT_STEPS} ({})", names(&places));
        for call in calls.into_values() {
            drop(call.answer.send(Err(Status::failed_precondition(message.clone()))));
        }
        Ok((waiting, None))
    }

    /// A call is over without an answer.
    pub(super) fn leave(&mut self, rank: i64, number: u64) {
        if self.calls.get(&rank).is_some_and(|call| call.number == number) {
            self.calls.remove(&rank);
        }
    }

    /// What the call is waiting for, in words.
    pub(super) fn missing(&self, rank: i64, number: u64) -> Option<String> {
        self.calls.get(&rank).filter(|call| call.number == number)?;
        let ranks = (0_i64..).take(self.world_size);
        let missing = ranks.filter(|rank| !self.calls.contains_key(rank)).map(|it| it.to_string());
        Some(names(&missing.collect::<Vec<_>>()))
    }
}
