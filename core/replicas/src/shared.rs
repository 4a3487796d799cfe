//! What the program's threads and the manager's own know together: the step, and what came of its
//! quorum.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use polyrank::store::{INTERRUPT_CHECK_INTERVAL, is_interrupted};
use polyrank::{Error, ProcessGroup, Tensor, Work};
use polyrank_quorum::ManagerClient;

use crate::error::{HealingError, ManagerError};
use crate::options::{ManagerOptions, WorldSizeMode};
use crate::rpc::Rpc;
use crate::state::{Received, Registered, StateError};
use crate::transport::StateTransport;

/// In place of the quorum in which a step was committed: what this replica has is like nothing that
/// others have.
const TORN: i64 = -1;
/// So many states in a row that were not taken, and a replica stays out: each costs all a step.
const MAX_UNHEALED: u32 = 5;

/// How far training is; what torchft's `state_dict` has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerState {
    /// Steps that were committed.
    pub step: i64,
    /// Batches of all replicas that were in them.
    pub batches_committed: i64,
}

/// What is asked of a quorum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) allow_heal: bool,
    pub(crate) shrink_only: bool,
    pub(crate) timeout: Duration,
}

/// How far the quorum of this step is.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Nobody has asked for one.
    Unasked,
    /// The manager's thread is to ask.
    Asked(Asked),
    /// It asks, makes the group anew, and moves states.
    Running,
    /// There is one.
    Found,
    /// There is none.
    Failed(ManagerError),
}

/// What a quorum is to this rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Membership {
    /// Its number among those that participate; none if it does not.
    pub(crate) participating_rank: Option<u32>,
    /// How many participate.
    pub(crate) participants: u32,
    /// The ids of all, by their numbers in the group.
    pub(crate) replicas: Vec<String>,
}

/// The state of another replica, until the program's thread loads it.
pub(crate) struct Pending {
    pub(crate) received: Received,
    /// Where this replica was.
    pub(crate) before: ManagerState,
}

/// An operation that waits for the quorum.
pub(crate) type Queued = Box<dyn FnOnce(&Arc<Shared>) + Send>;

pub(crate) struct State {
    /// Counts the quorums that were asked for, so that what was begun earlier is known.
    pub(crate) turn: u64,
    pub(crate) own: ManagerState,
    /// The quorum in which its last step was committed; 0 if that is not known.
    pub(crate) committed_in: i64,
    pub(crate) commit_failures: i64,
    /// That of the last quorum.
    pub(crate) quorum_id: Option<i64>,
    pub(crate) phase: Phase,
    pub(crate) membership: Membership,
    pub(crate) error: Option<ManagerError>,
    pub(crate) is_healing: bool,
    pub(crate) pending: Option<Pending>,
    /// The step of the quorum that was asked for, at which all ranks of the replica were.
    pub(crate) asked_step: i64,
    /// Where this rank was before it took its state, if it has committed no step since.
    pub(crate) healed_from: Option<ManagerState>,
    /// How many states in a row were not taken.
    unhealed: u32,
    last_unhealed: String,
    /// Whether loading a state has failed, so that this rank may have parts of two: until one is
    /// loaded, it commits nothing, and gives nothing away.
    pub(crate) is_torn: bool,
    /// Operations of this step, which the vote waits for.
    pub(crate) works: VecDeque<Work>,
    /// Sums that are to be divided by this, of operations that the program has dropped.
    pub(crate) undivided: Vec<(Work, Vec<Tensor>, u32)>,
    /// Operations that were called while there was no quorum yet, in their order.
    pub(crate) queued: VecDeque<Queued>,
    /// Whether the manager's thread issues those, and later ones go behind them.
    is_issuing: bool,
    /// How many threads revoke the group of this step just now.
    revoking: u32,
    pub(crate) is_closed: bool,
}

/// What all threads share.
pub(crate) struct Shared {
    /// With what the environment says.
    pub(crate) options: ManagerOptions,
    pub(crate) replica_id: String,
    pub(crate) group: ProcessGroup,
    pub(crate) transport: Arc<dyn StateTransport>,
    pub(crate) registered: Registered,
    pub(crate) rpc: Rpc,
    pub(crate) client: ManagerClient,
    /// Where the manager of the replica group is.
    pub(crate) address: String,
    state: Mutex<State>,
    changed: Condvar,
    /// The manager's own.
    thread: OnceLock<ThreadId>,
}

impl Shared {
    pub(crate) fn new(
        options: ManagerOptions,
        (replica_id, address): (String, String),
        group: ProcessGroup,
        transport: Arc<dyn StateTransport>,
        (rpc, client): (Rpc, ManagerClient),
    ) -> Shared {
        let state = State {
            turn: 0,
            own: ManagerState::default(),
            committed_in: 0,
            commit_failures: 0,
            quorum_id: None,
            phase: Phase::Unasked,
            membership: Membership::default(),
            error: None,
            is_healing: false,
            pending: None,
            unhealed: 0,
            last_unhealed: String::new(),
            asked_step: 0,
            healed_from: None,
            is_torn: false,
            works: VecDeque::new(),
            undivided: Vec::new(),
            queued: VecDeque::new(),
            is_issuing: false,
            revoking: 0,
            is_closed: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let registered = Registered::default();
        Shared {
            options,
            replica_id,
            group,
            transport,
            registered,
            rpc,
            client,
            address,
            state,
            changed,
            thread: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Shared::lock`], once `is_over` says so.
    fn wait_until(&self, is_over: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waiting = self.changed.wait_while(self.lock(), |state| !is_over(state));
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread is the manager's own.
    pub(crate) fn is_own_thread(&self) {
        // There is only one.
        let _ = self.thread.set(thread::current().id());
    }

    /// An error on the manager's own thread, on which the program's state is saved: it would wait
    /// for itself.
    pub(crate) fn unless_own_thread(&self) -> Result<(), ManagerError> {
        if self.thread.get() != Some(&thread::current().id()) {
            return Ok(());
        }
        let message = "what saves the program's state must not call what waits for the quorum, \
                       which waits for it";
        Err(ManagerError::Order(message.to_owned()))
    }

    /// Waits until no quorum is on its way, or whoever waits is wanted elsewhere. On the manager's
    /// own thread it is as far as it is.
    pub(crate) fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if self.unless_own_thread().is_err() {
            return state;
        }
        while state.is_on_its_way() {
            let waiting =
                self.changed.wait_timeout_while(state, INTERRUPT_CHECK_INTERVAL, |state| {
                    state.is_on_its_way()
                });
            state = waiting.unwrap_or_else(PoisonError::into_inner).0;
            if !state.is_on_its_way() {
                break;
            }
            // It may take a lock of the language's, for which the manager's thread waits.
            drop(state);
            let is_wanted = is_interrupted();
            state = self.lock();
            if is_wanted {
                break;
            }
        }
        state
    }

    /// Waits for the quorum of this step.
    pub(crate) fn wait_quorum(&self) -> Result<(), ManagerError> {
        let state = self.settled();
        match &state.phase {
            Phase::Failed(error) => Err(error.clone()),
            _ if state.is_closed => Err(self.closed()),
            _ if state.is_on_its_way() && self.unless_own_thread().is_ok() => {
                Err(ManagerError::Interrupted)
            }
            Phase::Unasked => {
                Err(ManagerError::Order("call start_quorum before waiting for a quorum".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// A step begins: what was of the one before is forgotten.
    pub(crate) fn ask(&self, asked: Asked) -> Result<(), ManagerError> {
        self.unless_own_thread()?;
        let mut state = self.settled();
        if state.is_closed {
            return Err(self.closed());
        }
        if state.is_on_its_way() {
            return Err(ManagerError::Interrupted);
        }
        if state.unhealed >= MAX_UNHEALED {
            return Err(ManagerError::CannotHeal {
                replica: self.replica_id.clone(),
                rank: self.options.rank(),
                failures: state.unhealed,
                last: state.last_unhealed.clone(),
            });
        }
        // Nobody has loaded it, so this replica is not where it was said to be.
        if let Some(Pending { before, .. }) = state.pending.take() {
            state.own = before;
        }
        state.turn += 1;
        state.asked_step = state.own.step;
        state.error = None;
        state.is_healing = false;
        state.works.clear();
        state.undivided.clear();
        state.phase = Phase::Asked(asked);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The next quorum that is to be asked for; none when the manager ends. For its thread.
    pub(crate) fn next_asked(&self) -> Option<Asked> {
        let mut state = self.wait_until(|state| {
            // Who revokes a group means that of the step before.
            state.is_closed || matches!(state.phase, Phase::Asked(_)) && state.revoking == 0
        });
        let Phase::Asked(asked) = state.phase else { return None };
        if state.is_closed {
            state.phase = Phase::Failed(self.closed());
            self.changed.notify_all();
            return None;
        }
        state.phase = Phase::Running;
        Some(asked)
    }

    /// The quorum has come, or not.
    pub(crate) fn end_quorum(self: &Arc<Self>, outcome: Result<(), ManagerError>) {
        let mut state = self.lock();
        state.is_issuing = true;
        state.phase = match outcome {
            Ok(()) => Phase::Found,
            Err(error) => {
                tracing::warn!("{error}");
                let replicas = std::mem::take(&mut state.membership.replicas);
                state.membership = Membership { replicas, ..Membership::default() };
                Phase::Failed(error)
            }
        };
        // What was reported meanwhile could not be told to the others.
        let is_lost = state.error.is_some();
        if is_lost {
            state.revoking += 1;
        }
        drop(state);
        if is_lost {
            self.revoke();
        }
        self.issue_queued();
    }

    /// Issues what waited for the quorum, in its order.
    fn issue_queued(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.queued.pop_front();
                state.is_issuing = next.is_some();
                next
            };
            match next {
                Some(issue) => issue(self),
                None => break,
            }
        }
        self.changed.notify_all();
    }

    /// Nothing is asked from now on; what waits ends.
    pub(crate) fn close(&self) {
        let queued = {
            let mut state = self.lock();
            state.is_closed = true;
            std::mem::take(&mut state.queued)
        };
        // Outside the lock: it ends works.
        drop(queued);
        self.rpc.close();
        self.changed.notify_all();
    }

    /// Ends what the manager's thread does, if it makes the group or moves a state.
    pub(crate) fn abort_running(&self) {
        if matches!(self.lock().phase, Phase::Running) {
            self.group.abort();
        }
    }

    /// The step that is under way, by its turn; none between two of them, and after the last.
    pub(crate) fn step(&self) -> Option<u64> {
        let state = self.lock();
        let is_in_step = !state.is_closed && !matches!(state.phase, Phase::Unasked);
        is_in_step.then_some(state.turn)
    }

    /// As [`Manager::errored`](crate::Manager::errored).
    pub(crate) fn errored(&self) -> Option<ManagerError> {
        self.lock().error.clone()
    }

    /// As [`Manager::num_participants`](crate::Manager::num_participants).
    pub(crate) fn num_participants(&self) -> u32 {
        let state = self.settled();
        if matches!(state.phase, Phase::Failed(_)) { 0 } else { state.membership.participants }
    }

    /// The first error of the step is kept; the other replicas are told that this one goes on
    /// without the rest of it. What belongs to an earlier step, as `turn` says, is not counted, and
    /// nothing is between two steps.
    pub(crate) fn report(&self, turn: Option<u64>, error: ManagerError) {
        {
            let mut state = self.lock();
            if turn.is_some_and(|turn| turn != state.turn) {
                return;
            }
            tracing::warn!("step {}: {error}", state.own.step);
            if state.error.is_some() || matches!(state.phase, Phase::Unasked) {
                return;
            }
            state.error = Some(error);
            if !matches!(state.phase, Phase::Found | Phase::Failed(_)) {
                // There may be another group in a moment; `end_quorum` sees to it.
                return;
            }
            state.revoking += 1;
        }
        self.revoke();
    }

    /// Ends what others wait for: they would wait until their time is over. `revoking` counts it.
    fn revoke(&self) {
        if self.group.size() > 1 && !self.group.is_broken() {
            drop(self.group.revoke());
        }
        self.lock().revoking -= 1;
        self.changed.notify_all();
    }

    /// What the group said, in the words of replicas.
    pub(crate) fn of_group(&self, during: &str, cause: Error) -> ManagerError {
        let failed = cause.rank().and_then(|rank| {
            let state = self.lock();
            state.membership.replicas.get(rank as usize).cloned()
        });
        let (replica, rank) = (self.replica_id.clone(), self.options.rank());
        let (during, cause) = (during.to_owned(), Box::new(cause));
        ManagerError::Group { replica, rank, during, cause, failed }
    }

    /// A state did not get where it was to.
    pub(crate) fn of_healing(
        &self,
        during: String,
        cause: impl Into<HealingError>,
    ) -> ManagerError {
        let (replica, rank) = (self.replica_id.clone(), self.options.rank());
        let cause = Box::new(cause.into());
        ManagerError::Healing { replica, rank, during, cause }
    }

    pub(crate) fn closed(&self) -> ManagerError {
        ManagerError::Closed { replica: self.replica_id.clone() }
    }

    /// Loads the state that has come, if one has. For the program's thread.
    pub(crate) fn load_pending(&self) {
        let Some(Pending { received, before }) = self.lock().pending.take() else { return };
        let deadline = Instant::now() + self.options.timeout;
        // What the program registered runs here.
        let loaded = catch_unwind(AssertUnwindSafe(|| self.registered.load(&received, deadline)));
        let loaded = loaded.unwrap_or_else(|_| Err(StateError::new("it has panicked")));
        {
            let mut state = self.lock();
            state.is_torn = loaded.is_err();
            if state.is_torn {
                // The next quorum has it take the state again.
                state.own = before;
            } else {
                state.unhealed = 0;
                state.healed_from = Some(before);
                state.committed_in = received.committed_in;
            }
        }
        if let Err(why) = loaded {
            let error = self.of_healing("loading the state of another".to_owned(), why);
            self.count_unhealed(&error);
            self.report(None, error);
        }
    }

    /// A state was not taken.
    pub(crate) fn count_unhealed(&self, error: &ManagerError) {
        let mut state = self.lock();
        state.unhealed += 1;
        state.last_unhealed = error.to_string();
    }

    /// The ranks of the replica are at different steps: this one has taken a state, and another one
    /// could not. The next quorum has all of them take one, and until then they are of no use.
    pub(crate) fn take_again(&self) {
        let mut state = self.lock();
        if let Some(before) = state.healed_from.take() {
            state.own = before;
            state.committed_in = TORN;
            // They vote on this one yet.
            state.asked_step = before.step;
            state.is_torn = true;
        }
    }

    /// An error if this rank may have parts of two states.
    pub(crate) fn unless_torn(&self, during: &str) -> Result<(), ManagerError> {
        if !self.lock().is_torn {
            return Ok(());
        }
        let why = "a state could not be loaded here, or only on some ranks of this replica: it is \
                   of no use before it has loaded one; if no other replica has a later step, start \
                   it anew from a checkpoint";
        Err(self.of_healing(during.to_owned(), StateError::new(why)))
    }
}

impl State {
    /// Whether there is to be a quorum, and is none yet, or what waited for it is not issued.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.is_issuing || matches!(self.phase, Phase::Asked(_) | Phase::Running)
    }

    /// Whether what this rank has counts in operations.
    pub(crate) fn is_participating(&self) -> bool {
        self.membership.participating_rank.is_some() && !self.is_healing
    }
}

impl ManagerOptions {
    /// How many of `size` participate, and whether `rank` does.
    pub(crate) fn participation(&self, rank: Option<u32>, size: u32) -> (Option<u32>, u32) {
        match self.world_size_mode {
            WorldSizeMode::Dynamic => (rank, size),
            WorldSizeMode::FixedWithSpares => {
                let most = self.min_replica_size;
                (rank.filter(|rank| *rank < most), size.min(most))
            }
        }
    }
}
