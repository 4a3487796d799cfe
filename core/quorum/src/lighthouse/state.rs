//! What a lighthouse knows, behind one lock: the replicas, who waits for an answer, and counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::LighthouseOptions;
use super::connections::Connections;
use crate::proto::{Quorum, QuorumMember};
use crate::rules::{Decision, Reason, Refusal, Replicas};
use crate::serve::Connection;
use crate::words::names;

/// Most calls of one replica that wait at a time: one, and those that were given up and not yet
/// noticed.
const MAX_CALLS: usize = 16;

/// What a lighthouse knows.
pub(super) struct State {
    pub(super) options: LighthouseOptions,
    /// Moments are counted from here.
    began: Instant,
    known: Mutex<Known>,
}

/// What changes.
#[derive(Default)]
pub(super) struct Known {
    pub(super) replicas: Replicas,
    pub(super) counts: Counts,
    /// When the last quorum was made.
    pub(super) last_quorum: Option<Duration>,
    connections: Connections,
    /// Calls that wait, by replica.
    waiting: BTreeMap<String, Vec<Waiter>>,
    next_call: u64,
    /// What was logged last.
    said: String,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) quorums: u64,
    pub(super) quorum_requests: u64,
    pub(super) heartbeats: u64,
    /// Calls that ended without a quorum: given up, or too late.
    pub(super) given_up: u64,
    /// Requests that were refused for what they said, or for want of room.
    pub(super) refused: u64,
    /// Requests without the token.
    pub(super) denied: u64,
    pub(super) kills: u64,
}

struct Waiter {
    call: u64,
    answer: oneshot::Sender<Arc<Quorum>>,
}

/// A call that waits. Dropped, it waits no longer.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Receiver<Arc<Quorum>>,
    state: Arc<State>,
    replica_id: String,
    call: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.state.leave(&self.replica_id, self.call);
    }
}

impl State {
    pub(super) fn new(options: LighthouseOptions) -> State {
        // A clock beyond what an id can be begins with none.
        let seconds = i64::try_from(since_1970().as_secs()).unwrap_or_default();
        let replicas = Replicas::counting_from(options.quorum_ids_after.unwrap_or(seconds));
        let known = Mutex::new(Known { replicas, ..Known::default() });
        State { options, began: Instant::now(), known }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        // What a panic left half-done is not worth the whole job.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the rules again and again.
    pub(super) async fn tick_every(&self, tick: Duration) {
        let mut ticks = interval(tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let known = &mut self.lock();
            if let Err(reason) = self.settle(known) {
                known.say(&reason.lasting());
            }
        }
    }

    pub(super) fn heartbeat(&self, replica_id: &str) -> Result<(), Refusal> {
        let mut known = self.lock();
        known.counts.heartbeats += 1;
        let outcome = known.replicas.heartbeat(replica_id, self.now(), &self.options.quorum);
        known.counts.refused += u64::from(outcome.is_err());
        outcome
    }

    /// The heartbeats of a replica come by this connection: with it ends the replica, unless it
    /// comes by another.
    pub(super) fn watch(self: &Arc<State>, replica_id: &str, connection: &Connection) {
        if !self.lock().connections.note(replica_id, connection.number) {
            return;
        }
        let (state, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let number = connection.number;
            connection.ended().await;
            let dead_at = {
                let known = &mut *state.lock();
                let now = state.now();
                let gone = known.connections.end(number).into_iter();
                gone.filter_map(|id| known.replicas.disconnect(&id, now)).max()
            };
            let Some(dead_at) = dead_at else { return };
            tokio::time::sleep(dead_at.saturating_sub(state.now())).await;
            // Who waits for it need not wait for a tick.
            let _ = state.settle(&mut state.lock());
        });
    }

    /// A replica asks for a quorum.
    ///
    /// # Errors
    /// There is no room for it; the reason in words.
    pub(super) fn join(self: &Arc<State>, member: QuorumMember) -> Result<Waiting, String> {
        let mut known = self.lock();
        known.counts.quorum_requests += 1;
        let replica_id = member.replica_id.clone();
        let calls = known.waiting.get(&replica_id).map_or(0, Vec::len);
        let outcome = if calls >= MAX_CALLS {
            Err(format!("{calls} calls of {replica_id} wait already"))
        } else {
            let joined = known.replicas.join(member, self.now(), &self.options.quorum);
            joined.map_err(|refusal| refusal.to_string())
        };
        if let Err(refusal) = outcome {
            known.counts.refused += 1;
            return Err(refusal);
        }
        let (sender, answer) = oneshot::channel();
        known.next_call += 1;
        let call = known.next_call;
        let calls = known.waiting.entry(replica_id.clone()).or_default();
        calls.push(Waiter { call, answer: sender });
        // Why there is none is for the next tick: thousands may come between two.
        if known.replicas.is_ready(self.now(), &self.options.quorum) {
            let _ = self.settle(&mut known);
        }
        drop(known);
        Ok(Waiting { answer, state: self.clone(), replica_id, call })
    }

    /// Why there is no quorum now, in words for a call that has waited for so long as it could.
    pub(super) fn reason(&self, limit: Duration) -> String {
        let patience = self.options.quorum.join_timeout;
        match self.lock().replicas.decide(self.now(), &self.options.quorum) {
            Decision::Waiting(reason @ Reason::Stragglers { .. }) if limit <= patience => format!(
                "{reason}; calls end before that whose limit, here {:.1} s, is not longer than the \
                 join timeout of {:.1} s",
                limit.as_secs_f64(),
                patience.as_secs_f64()
            ),
            Decision::Waiting(reason) => reason.to_string(),
            Decision::Ready(_) => "a quorum is about to be made".to_owned(),
        }
    }

    /// Who asked for a quorum under this id, or is in the last one: its manager's address.
    pub(super) fn manager_of(&self, replica_id: &str) -> Option<String> {
        let known = self.lock();
        let asking = known.replicas.joined().get(replica_id).map(|it| &it.member);
        let last = known.replicas.last().into_iter().flat_map(|quorum| &quorum.participants);
        let found = asking.into_iter().chain(last).find(|it| it.replica_id == replica_id);
        found.map(|member| member.address.clone())
    }

    fn leave(&self, replica_id: &str, call: u64) {
        let mut known = self.lock();
        // Without it, the call was answered.
        let Some(calls) = known.waiting.get_mut(replica_id) else { return };
        let before = calls.len();
        calls.retain(|waiter| waiter.call != call);
        let (after, is_empty) = (calls.len(), calls.is_empty());
        known.counts.given_up += u64::from(after < before);
        if is_empty {
            known.waiting.remove(replica_id);
            known.replicas.leave(replica_id);
        }
    }

    /// Answers those in the quorum that the rules allow, or says why there is none.
    fn settle(&self, known: &mut Known) -> Result<(), Reason> {
        let now = self.now();
        let quorum = known.replicas.settle(now, since_1970(), &self.options.quorum)?;
        known.counts.quorums += 1;
        known.last_quorum = Some(now);
        let ids: Vec<_> = quorum.participants.iter().map(|it| it.replica_id.as_str()).collect();
        known.say(&format!("quorum {}: {}", quorum.quorum_id, names(&ids)));
        let quorum = Arc::new(quorum);
        for member in &quorum.participants {
            for waiter in known.waiting.remove(&member.replica_id).into_iter().flatten() {
                // Who has given up meanwhile learns of it by not being there.
                drop(waiter.answer.send(quorum.clone()));
            }
        }
        Ok(())
    }
}

/// A clock before 1970 is taken as being there.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Known {
    /// Logs what is new.
    fn say(&mut self, words: &str) {
        if self.said != words {
            tracing::info!("lighthouse: {words}");
            words.clone_into(&mut self.said);
        }
    }
}
