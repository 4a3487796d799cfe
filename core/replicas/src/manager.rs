//! What the training loop calls.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyrank::ProcessGroup;
use polyrank::store::is_interrupted;

use crate::average;
use crate::error::ManagerError;
use crate::options::{ManagerOptions, bounded};
use crate::pieces::GroupTransport;
use crate::quorum;
use crate::rpc::Rpc;
use crate::setup::{self, Servers};
use crate::shared::{Asked, ManagerState, Phase, Shared, State};
use crate::state::{Model, StateError, of_functions};

/// How long rank 0 of a replica of several ranks waits for the others when it leaves: less than a
/// launcher waits for who is told to end, which is 5 s for `polyrank run`.
const RANKS_LIMIT: Duration = Duration::from_secs(3);
/// How often it is looked, while a manager leaves, whether those are done that are waited for.
const LEAVING_PAUSE: Duration = Duration::from_millis(5);

/// What is asked of a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartQuorum {
    /// Whether this replica takes a state if it is behind, and gives its own to others. Without,
    /// one that is behind does not participate.
    pub allow_heal: bool,
    /// Whether only replicas of the last quorum are let in.
    pub shrink_only: bool,
    /// How long it is waited for; `quorum_timeout` by default.
    pub timeout: Option<Duration>,
}

impl Default for StartQuorum {
    /// With healing, and with replicas that are new.
    fn default() -> StartQuorum {
        StartQuorum { allow_heal: true, shrink_only: false, timeout: None }
    }
}

impl StartQuorum {
    /// Sets [`StartQuorum::allow_heal`].
    #[must_use]
    pub fn allow_heal(mut self, allow_heal: bool) -> StartQuorum {
        self.allow_heal = allow_heal;
        self
    }

    /// Sets [`StartQuorum::shrink_only`].
    #[must_use]
    pub fn shrink_only(mut self, shrink_only: bool) -> StartQuorum {
        self.shrink_only = shrink_only;
        self
    }

    /// Sets [`StartQuorum::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> StartQuorum {
        self.timeout = Some(timeout);
        self
    }
}

/// One rank's part in training that goes on when replicas come and go: torchft's `Manager`. One
/// thread trains with it; any may ask how far it is.
///
/// Dropping it ends it, as a replica that dies; [`Manager::shutdown`] leaves in order.
pub struct Manager {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    servers: Mutex<Option<Servers>>,
}

impl fmt::Debug for Manager {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut shown = formatter.debug_struct("Manager");
        shown.field("replica_id", &self.shared.replica_id).field("state", &state);
        shown.field("group", &self.shared.group.group_name()).finish_non_exhaustive()
    }
}

impl Manager {
    /// Starts one. Rank 0 of the replica group waits for the lighthouse, the others for rank 0.
    ///
    /// # Errors
    /// [`ManagerError::Option`] for what cannot be; [`ManagerError::Start`],
    /// [`ManagerError::Store`] and [`ManagerError::Connect`] for what is not there in time.
    pub fn new(options: ManagerOptions) -> Result<Manager, ManagerError> {
        let options = options.resolve()?;
        let no_thread =
            |why: std::io::Error| ManagerError::Option(format!("the system has no thread: {why}"));
        let rpc = Rpc::new().map_err(no_thread)?;
        let setup::ReplicaGroup { replica_id, client, address, group, servers } =
            setup::meet(&options, &rpc)?;
        let transport = options.transport.clone();
        let transport = transport.unwrap_or_else(|| Arc::new(GroupTransport::new(group.clone())));
        let shared = Shared::new(options, (replica_id, address), group, transport, (rpc, client));
        let shared = Arc::new(shared);
        let own = shared.clone();
        let thread = thread::Builder::new().name("manager-quorum".to_owned());
        let thread = thread.spawn(move || quorum::serve(&own)).map_err(no_thread)?;
        let (thread, servers) = (Mutex::new(Some(thread)), Mutex::new(Some(servers)));
        Ok(Manager { shared, thread, servers })
    }

    /// What `save` gives belongs to the state of a replica, and `load` takes it. As
    /// [`Manager::register_model`], of two functions.
    ///
    /// # Errors
    /// There is a state of this name.
    pub fn register_state(
        &self,
        key: &str,
        save: impl Fn() -> Result<Vec<u8>, StateError> + Send + Sync + 'static,
        load: impl Fn(&[u8]) -> Result<(), StateError> + Send + Sync + 'static,
    ) -> Result<(), ManagerError> {
        self.shared.registered.add(key, of_functions(save, load))
    }

    /// `model` belongs to the state of a replica. All replicas register the same names, before the
    /// first quorum.
    ///
    /// # Errors
    /// There is a state of this name.
    pub fn register_model<M: Model + 'static>(
        &self,
        key: &str,
        model: Arc<M>,
    ) -> Result<(), ManagerError> {
        self.shared.registered.add(key, model)
    }

    /// A step begins: asks for a quorum. With `use_async_quorum` it returns at once; errors of the
    /// quorum are those of [`Manager::wait_quorum`]. Without, it returns when there is one, and
    /// this replica has the state that it lacked.
    ///
    /// # Errors
    /// [`ManagerError::Quorum`] if there is none, and the loop calls this again;
    /// [`ManagerError::Connect`] if the manager of the replica group is gone;
    /// [`ManagerError::CannotHeal`] if this replica could not take a state five times in a row;
    /// [`ManagerError::Closed`].
    pub fn start_quorum(&self, options: StartQuorum) -> Result<(), ManagerError> {
        let StartQuorum { allow_heal, shrink_only, timeout } = options;
        let shared = &self.shared;
        let timeout = timeout.map_or(shared.options.quorum_timeout, bounded);
        shared.ask(Asked { allow_heal, shrink_only, timeout })?;
        if shared.options.use_async_quorum {
            return Ok(());
        }
        shared.wait_quorum()?;
        if shared.lock().is_healing {
            shared.load_pending();
            // What it has counts from here on, in this step.
            shared.lock().is_healing = false;
        }
        Ok(())
    }

    /// Waits until the quorum is there, the group is made, and states have moved.
    ///
    /// # Errors
    /// [`ManagerError::Quorum`] if there is none: the step is not committed, and the next one asks
    /// again. [`ManagerError::Connect`] if the manager of the replica group is gone. What goes
    /// wrong after that is [`Manager::errored`].
    pub fn wait_quorum(&self) -> Result<(), ManagerError> {
        self.shared.wait_quorum()
    }

    /// Whether the step is committed: all ranks of the replica got through it, and enough replicas
    /// participate. Waits for the operations of the step, and loads a state that has come. With
    /// `true` the program changes its model. With `false` it does not, and begins the same step
    /// anew; [`Manager::errored`] says why.
    ///
    /// # Errors
    /// [`ManagerError::TooManyFailures`] beyond `max_retries`; [`ManagerError::Vote`] if the vote
    /// of several ranks has no result after `timeout`, and then the replica must be started anew.
    /// By default that is as long as a rank may need for its quorum, the group, a state and an
    /// operation that fails: `quorum_timeout` (once more for each of `quorum_retries`), twice
    /// `timeout`, and `state_timeout`. Less ends the replica if its ranks notice a failure at
    /// different times.
    pub fn should_commit(&self, timeout: Option<Duration>) -> Result<bool, ManagerError> {
        let shared = &self.shared;
        shared.unless_own_thread()?;
        if shared.lock().is_closed {
            return Err(shared.closed());
        }
        if matches!(shared.lock().phase, Phase::Unasked) {
            return Err(ManagerError::Order("call start_quorum before should_commit".to_owned()));
        }
        match shared.wait_quorum() {
            Ok(()) => {}
            // The step goes on.
            Err(error @ ManagerError::Interrupted) => return Err(error),
            Err(error) => shared.report(None, error),
        }
        self.settle_works();
        shared.load_pending();
        if let Err(error) = shared.unless_torn("committing a step") {
            shared.report(None, error);
        }
        let (step, wanted) = self.wish();
        let is_committed = self.vote(step, wanted, timeout);
        shared.transport.disallow();
        let is_committed = is_committed?;
        let mut state = shared.lock();
        state.phase = Phase::Unasked;
        if is_committed {
            // What another replica says of how far it is may be any number.
            state.own.step = state.own.step.saturating_add(1);
            let batches = i64::from(state.membership.participants);
            state.own.batches_committed = state.own.batches_committed.saturating_add(batches);
            state.committed_in = state.quorum_id.unwrap_or_default();
            state.commit_failures = 0;
            state.healed_from = None;
            return Ok(true);
        }
        self.count_failure(&mut state)?;
        let are_too_few = matches!(state.error, Some(ManagerError::TooFewReplicas { .. }));
        drop(state);
        if are_too_few {
            // Others come by and by. Who ends it meanwhile is told so by the next call.
            drop(quorum::pause(shared));
        }
        Ok(false)
    }

    /// Whether all ranks of the replica want to commit the step.
    fn vote(
        &self,
        step: i64,
        wanted: bool,
        timeout: Option<Duration>,
    ) -> Result<bool, ManagerError> {
        let shared = &self.shared;
        if shared.lock().is_closed {
            return Err(shared.closed());
        }
        if shared.options.world_size() == 1 {
            // Nobody else votes, and no answer can be lost.
            return Ok(wanted);
        }
        let limit = timeout.map_or_else(|| shared.options.step_limit(), bounded);
        let (client, rank) = (shared.client.clone(), shared.options.rank());
        let vote = async move { client.should_commit(i64::from(rank), step, wanted, limit).await };
        let vote = shared.rpc.run(vote).ok_or_else(|| shared.closed())?;
        let replica = shared.replica_id.clone();
        vote.map_err(|cause| ManagerError::Vote { replica, rank, step, cause })
    }

    /// Waits for the operations that nobody has waited for.
    fn settle_works(&self) {
        let works = std::mem::take(&mut self.shared.lock().works);
        for work in works {
            if let Err(cause) = work.wait(None) {
                self.shared.report(None, self.shared.of_group(work.name(), cause));
            }
        }
        let undivided = std::mem::take(&mut self.shared.lock().undivided);
        for (work, tensors, by) in undivided {
            // One that failed is reported above.
            if work.wait(None).is_ok() {
                drop(work.into_result());
                tensors.iter().for_each(|tensor| average::divide(tensor, by));
            }
        }
    }

    /// The step, and whether this rank wants to commit it.
    fn wish(&self) -> (i64, bool) {
        let shared = &self.shared;
        let state = &mut *shared.lock();
        let (participants, min) = (state.membership.participants, shared.options.min_replica_size);
        if state.error.is_none() && participants < min {
            let error = ManagerError::TooFewReplicas {
                replica: shared.replica_id.clone(),
                participants,
                min_replica_size: min,
            };
            tracing::warn!("step {}: {error}", state.own.step);
            state.error = Some(error);
        }
        // Not that of a state that it took: another rank of the replica may have failed to.
        (state.asked_step, state.error.is_none())
    }

    fn count_failure(&self, state: &mut State) -> Result<(), ManagerError> {
        state.commit_failures += 1;
        let failures = state.commit_failures;
        let max = self.shared.options.max_retries;
        let Some(max_retries) = max.filter(|max| failures > i64::from(*max)) else {
            return Ok(());
        };
        let replica = self.shared.replica_id.clone();
        let last = match &state.error {
            Some(error) => error.to_string(),
            None => "another rank of the replica did not get through it".to_owned(),
        };
        Err(ManagerError::TooManyFailures { replica, failures, max_retries, last })
    }

    /// The step cannot be committed: what the program noticed by itself. The other replicas do not
    /// wait for this one. Between two steps it is only logged.
    pub fn report_error(&self, error: impl fmt::Display) {
        self.shared.report(None, ManagerError::Reported(error.to_string()));
    }

    /// Why this step is not committed, as far as is known.
    #[must_use]
    pub fn errored(&self) -> Option<ManagerError> {
        self.shared.errored()
    }

    /// How many replicas participate in this step: by what averages are divided. Waits for the
    /// quorum; 0 if there is none.
    #[must_use]
    pub fn num_participants(&self) -> u32 {
        self.shared.num_participants()
    }

    /// The number of this replica among those that participate; none if it does not, as a spare
    /// or one that is behind. Waits for the quorum.
    #[must_use]
    pub fn participating_rank(&self) -> Option<u32> {
        self.shared.settled().membership.participating_rank
    }

    /// Whether what this rank has counts in this step. Waits for the quorum.
    #[must_use]
    pub fn is_participating(&self) -> bool {
        self.shared.settled().is_participating()
    }

    /// How many steps were committed.
    #[must_use]
    pub fn current_step(&self) -> i64 {
        self.state().step
    }

    /// How many batches of all replicas were in them.
    #[must_use]
    pub fn batches_committed(&self) -> i64 {
        self.state().batches_committed
    }

    /// How far training is, to be kept with a checkpoint. Between the quorum and `should_commit` of
    /// a step in which this replica takes a state, it is that of the state already, which the model
    /// is not: write checkpoints after `should_commit`.
    #[must_use]
    pub fn state(&self) -> ManagerState {
        self.shared.lock().own
    }

    /// Goes on from there. For a program that has read its checkpoint, before the first quorum, or
    /// after a state could not be loaded: this rank has the whole of one then.
    pub fn load_state(&self, own: ManagerState) {
        let mut state = self.shared.settled();
        state.own = own;
        state.committed_in = 0;
        state.is_torn = false;
    }

    /// What the replica is called, with what was appended.
    #[must_use]
    pub fn replica_id(&self) -> &str {
        &self.shared.replica_id
    }

    /// The ids of the replicas of the quorum, by their ranks in the group. Waits for the quorum.
    #[must_use]
    pub fn replicas(&self) -> Vec<String> {
        self.shared.settled().membership.replicas.clone()
    }

    /// The group whose members are the ranks of this number in all replicas.
    #[must_use]
    pub fn group(&self) -> &ProcessGroup {
        &self.shared.group
    }

    /// Leaves in order: ends what waits, leaves the group, and stops the manager of the replica
    /// group. A second call does nothing. In a replica of several ranks rank 0, which serves their
    /// manager, waits until the others have left, for 3 s at most.
    ///
    /// # Errors
    /// What the group says of how it was left.
    pub fn shutdown(&self) -> Result<(), ManagerError> {
        self.end(true)
    }

    fn end(&self, is_orderly: bool) -> Result<(), ManagerError> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        self.shared.close();
        // What saves the program's state may be the last that has the manager. The thread ends when
        // that has returned.
        let is_awaited = self.shared.unless_own_thread().is_ok();
        while is_awaited && !thread.is_finished() {
            // It may have begun to make the group just now.
            self.shared.abort_running();
            thread::sleep(LEAVING_PAUSE);
        }
        if is_awaited {
            // A panic has been printed by the thread itself.
            drop(thread.join());
        }
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner).take();
        // As long as it says that this replica is alive, the others wait for it, and leaving the
        // group waits for them. Other ranks of this replica may need it yet.
        if let Some(manager) = servers.as_ref().and_then(|servers| servers.manager.as_ref()) {
            manager.fall_silent();
        }
        let group = &self.shared.group;
        let is_ours = self.shared.options.group.is_none();
        let ended = if is_ours && is_orderly && group.size() > 0 && !group.is_broken() {
            group.shutdown().map_err(|cause| self.shared.of_group("leaving the group", cause))
        } else {
            if is_ours {
                group.abort();
            }
            Ok(())
        };
        self.shared.rpc.end();
        if let Some(manager) = servers.as_ref().and_then(|servers| servers.manager.as_ref())
            && is_orderly
        {
            let (own, began) = (i64::from(self.shared.options.rank()), Instant::now());
            let is_early = || began.elapsed() < RANKS_LIMIT && !is_interrupted();
            while manager.has_other_ranks(own) && is_early() {
                thread::sleep(LEAVING_PAUSE);
            }
        }
        drop(servers);
        ended
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Nobody asks what came of it.
        drop(self.end(false));
    }
}
