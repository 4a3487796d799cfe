//! The manager's own thread: asks for a quorum, makes the group of its members, and moves states.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::process_group::ConfigureOptions;
use polyrank_quorum::proto::{ManagerQuorumRequest, ManagerQuorumResponse};
use polyrank_quorum::{ClientOptions, QuorumError};

use crate::error::ManagerError;
use crate::options::WorldSizeMode;
use crate::shared::{Asked, Membership, Pending, Shared};
use crate::state::Received;
use crate::transport::{StatePeer, TransportError};

/// Between two calls for a quorum that failed, or had too few replicas.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a manager that was there may take to be reached.
const REACH_LIMIT: Duration = Duration::from_secs(2);

/// Serves the program's quorums until the manager ends.
pub(crate) fn serve(shared: &Arc<Shared>) {
    shared.is_own_thread();
    while let Some(asked) = shared.next_asked() {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(shared, asked)));
        shared.end_quorum(outcome.unwrap_or_else(|_| {
            // What the program registered runs here; the panic hook has told of it.
            let message = "what saves the program's state has panicked";
            let error = ManagerError::Reported(message.to_owned());
            // Who takes the state would wait for it.
            shared.report(None, error.clone());
            Err(error)
        }));
    }
}

fn run(shared: &Shared, asked: Asked) -> Result<(), ManagerError> {
    let found = ask(shared, asked)?;
    let place = Place::new(shared, &found)?;
    let is_new = place.enter(shared, asked, &found);
    if shared.lock().is_closed {
        return Err(shared.closed());
    }
    if is_new && let Err(error) = configure(shared, &place, &found) {
        shared.report(None, error);
        return Ok(());
    }
    if asked.allow_heal
        && let Err(error) = heal(shared, &place, &found)
    {
        if found.heal && !shared.lock().is_closed {
            shared.count_unhealed(&error);
        }
        shared.report(None, error);
    }
    Ok(())
}

fn ask(shared: &Shared, asked: Asked) -> Result<ManagerQuorumResponse, ManagerError> {
    let request = {
        let state = shared.lock();
        // A group that is broken is made anew only in a quorum of another number.
        let is_broken = shared.group.size() > 0 && shared.group.is_broken();
        ManagerQuorumRequest {
            group_rank: i64::from(shared.options.rank()),
            step: state.own.step,
            checkpoint_metadata: shared.transport.metadata(),
            shrink_only: asked.shrink_only,
            init_sync: shared.options.init_sync,
            commit_failures: state.commit_failures.max(i64::from(is_broken)),
            committed_in: state.committed_in,
        }
    };
    let mut tries_left = shared.options.quorum_retries;
    loop {
        let (client, request) = (shared.client.clone(), request.clone());
        let call = async move { client.quorum(request, asked.timeout).await };
        let cause = match shared.rpc.run(call).ok_or_else(|| shared.closed())? {
            Ok(found) => return Ok(found),
            Err(cause) => cause,
        };
        let is_of_steps = cause.is_of_steps();
        if is_of_steps {
            shared.take_again();
        }
        if matches!(cause, QuorumError::Lost { .. }) {
            // Was it the lighthouse, or the manager that asks it?
            reach_manager(shared)?;
        }
        let (replica, rank) = (shared.replica_id.clone(), shared.options.rank());
        let error = ManagerError::Quorum { replica, rank, cause };
        // Also if it is over: the program asks anew at once.
        pause(shared)?;
        if tries_left == 0 || is_of_steps || !error.is_retryable() {
            return Err(error);
        }
        tries_left -= 1;
        tracing::warn!("{error}: tried again, {tries_left} times more");
    }
}

/// Waits a little before what has failed is tried again.
pub(crate) fn pause(shared: &Shared) -> Result<(), ManagerError> {
    let pause = async { tokio::time::sleep(PAUSE).await };
    shared.rpc.run(pause).ok_or_else(|| shared.closed())
}

/// Sees that the manager of the replica group is there still.
fn reach_manager(shared: &Shared) -> Result<(), ManagerError> {
    let options = ClientOptions { connect_timeout: REACH_LIMIT, token: None };
    let reached = shared.rpc.connect(&shared.address, options).ok_or_else(|| shared.closed())?;
    let replica = shared.replica_id.clone();
    reached.map(drop).map_err(|cause| ManagerError::Connect { replica, cause })
}

/// What the numbers of a quorum are, once they are known to be some.
struct Place {
    rank: u32,
    size: u32,
    /// Its number among those that are not behind, and how many these are.
    leading_rank: Option<u32>,
    leading_size: u32,
    /// Who takes this rank's state, or parts of it.
    takers: Vec<u32>,
    /// From whom this rank takes one; none if it does not.
    sources: Vec<u32>,
}

impl Place {
    fn new(shared: &Shared, found: &ManagerQuorumResponse) -> Result<Place, ManagerError> {
        let made = || {
            let number = |it: i64| u32::try_from(it).ok();
            let numbers =
                |all: &[i64]| all.iter().map(|it| number(*it)).collect::<Option<Vec<_>>>();
            let optional = |it: Option<i64>| it.map_or(Some(None), |it| number(it).map(Some));
            let source = optional(found.recover_src_replica_rank)?;
            let mut takers = numbers(&found.recover_dst_replica_ranks)?;
            let mut sources = Vec::from_iter(source);
            if shared.transport.takes_from_several() {
                // A manager of torchft names none of these.
                let others = numbers(&found.parts_dst_replica_ranks)?.into_iter();
                takers.extend(
                    others.filter(|it| !found.recover_dst_replica_ranks.contains(&i64::from(*it))),
                );
                let others = numbers(&found.parts_src_replica_ranks)?.into_iter();
                sources.extend(others.filter(|it| Some(*it) != source));
            }
            let place = Place {
                rank: number(found.replica_rank)?,
                size: number(found.replica_world_size)?,
                leading_rank: optional(found.max_replica_rank)?,
                leading_size: number(found.max_world_size)?,
                takers,
                sources,
            };
            let is_member = |rank: &u32| *rank < place.size && *rank != place.rank;
            let mut others = place.takers.iter().chain(&place.sources);
            let is_possible = place.rank < place.size && place.leading_size <= place.size;
            (is_possible && others.all(is_member)).then_some(place)
        };
        made().ok_or_else(|| ManagerError::Quorum {
            replica: shared.replica_id.clone(),
            rank: shared.options.rank(),
            cause: QuorumError::Refused(format!("the answer cannot be: {found:?}")),
        })
    }

    /// Notes who participates; whether the group has to be made anew.
    fn enter(&self, shared: &Shared, asked: Asked, found: &ManagerQuorumResponse) -> bool {
        // Who takes a state while the program computes does not participate in that step.
        let has_taken_before = !shared.options.use_async_quorum && asked.allow_heal;
        let (rank, size) = match has_taken_before {
            true => (Some(self.rank), self.size),
            false => (self.leading_rank, self.leading_size),
        };
        let has_spares = shared.options.world_size_mode == WorldSizeMode::FixedWithSpares;
        let is_first = found.max_step == 0 && shared.options.init_sync;
        let rank = match rank {
            // All but one take a state in this step, and that one, another for each rank of a
            // replica, must not be a spare: it counts as the first.
            Some(rank) if has_spares && is_first && !has_taken_before && size > 0 => {
                Some((rank + size - shared.options.rank() % size) % size)
            }
            rank => rank,
        };
        let (participating_rank, participants) = shared.options.participation(rank, size);
        let mut state = shared.lock();
        let replicas = found.replica_ids.clone();
        // Numbers alone come again if the lighthouse begins anew, as torchft's does at 0.
        let are_same = state.membership.replicas == replicas;
        state.membership = Membership { participating_rank, participants, replicas };
        state.quorum_id.replace(found.quorum_id) != Some(found.quorum_id) || !are_same
    }
}

fn configure(
    shared: &Shared,
    place: &Place,
    found: &ManagerQuorumResponse,
) -> Result<(), ManagerError> {
    let ManagerQuorumResponse { quorum_id, store_address, .. } = found;
    let (rank, began) = (shared.options.rank(), Instant::now());
    let address = format!("{store_address}/torchft/{quorum_id}/{rank}");
    let options = ConfigureOptions::new(address, place.rank, place.size)
        .replica_id(shared.replica_id.clone())
        .quorum_id(*quorum_id)
        .replica_rank(rank)
        .replica_world_size(shared.options.world_size())
        .timeout(shared.options.timeout);
    let during = || format!("making the group of quorum {quorum_id}");
    shared.group.configure(options).map_err(|cause| shared.of_group(&during(), cause))?;
    let (took, size) = (began.elapsed(), place.size);
    tracing::info!("quorum {quorum_id} of {size} replicas: the group was made in {took:?}");
    Ok(())
}

/// Gives the state to those that are behind, or takes it.
fn heal(shared: &Shared, place: &Place, found: &ManagerQuorumResponse) -> Result<(), ManagerError> {
    let deadline = Instant::now() + shared.options.state_limit();
    if !place.takers.is_empty() {
        give(shared, &peers(found, &place.takers), found.max_step, deadline)?;
    }
    if found.heal && !place.sources.is_empty() {
        take(shared, &peers(found, &place.sources), found, deadline)?;
    }
    Ok(())
}

fn give(
    shared: &Shared,
    takers: &[StatePeer<'_>],
    step: i64,
    deadline: Instant,
) -> Result<(), ManagerError> {
    let to: Vec<&str> = takers.iter().map(|taker| taker.replica).collect();
    let during = format!("giving the state of step {step} to {}", to.join(", "));
    shared.unless_torn(&during)?;
    let (own, committed_in) = {
        let state = shared.lock();
        (state.own, state.committed_in)
    };
    let state = shared.registered.save(own, committed_in, deadline);
    let state = state.map_err(|why| shared.of_healing(during.clone(), why))?;
    let (bytes, began) = (state.len(), Instant::now());
    let sent = shared.transport.send(takers, step, state, deadline);
    sent.map_err(|why| shared.of_healing(during.clone(), why))?;
    tracing::info!("{during}: of {bytes} bytes, in {:?}", began.elapsed());
    Ok(())
}

fn take(
    shared: &Shared,
    sources: &[StatePeer<'_>],
    found: &ManagerQuorumResponse,
    deadline: Instant,
) -> Result<(), ManagerError> {
    let step = found.max_step;
    shared.lock().is_healing = true;
    let from: Vec<&str> = sources.iter().map(|source| source.replica).collect();
    let during = format!("taking the state of step {step} from {}", from.join(", "));
    let metadata = match shared.transport.needs_metadata() {
        true => metadata(shared, &during, found, deadline)?,
        false => String::new(),
    };
    let began = Instant::now();
    let bytes = shared.transport.receive(sources, &metadata, step, deadline);
    let bytes = bytes.map_err(|why| shared.of_healing(during.clone(), why))?;
    tracing::info!("{during}: {} bytes in {:?}", bytes.len(), began.elapsed());
    let received = Received::new(bytes).map_err(|why| shared.of_healing(during.clone(), why))?;
    if received.own.step != step {
        let sent = received.own.step;
        let wrong = TransportError::Step { sent, expected: step };
        return Err(shared.of_healing(during, wrong));
    }
    let mut state = shared.lock();
    let before = std::mem::replace(&mut state.own, received.own);
    state.pending = Some(Pending { received, before });
    Ok(())
}

/// How the state of the source is to be had, as its manager says.
fn metadata(
    shared: &Shared,
    during: &str,
    found: &ManagerQuorumResponse,
    deadline: Instant,
) -> Result<String, ManagerError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let options = ClientOptions {
        connect_timeout: shared.options.connect_timeout.min(left),
        token: shared.options.token.clone(),
    };
    let failed = |why: QuorumError| shared.of_healing(during.to_owned(), why);
    let connected = shared.rpc.connect(&found.recover_src_manager_address, options);
    let client = connected.ok_or_else(|| shared.closed())?.map_err(failed)?;
    let rank = i64::from(shared.options.rank());
    let limit = deadline.saturating_duration_since(Instant::now());
    let call = async move { client.checkpoint_metadata(rank, limit).await };
    shared.rpc.run(call).ok_or_else(|| shared.closed())?.map_err(failed)
}

fn peers<'a>(found: &'a ManagerQuorumResponse, ranks: &[u32]) -> Vec<StatePeer<'a>> {
    let replica = |rank: u32| found.replica_ids.get(rank as usize).map_or("?", String::as_str);
    ranks.iter().map(|rank| StatePeer { rank: *rank, replica: replica(*rank) }).collect()
}
