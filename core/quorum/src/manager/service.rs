//! The manager as the ranks of its group, other managers and the lighthouse see it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::{Code, Request, Response, Status};

use super::ManagerOptions;
use super::rank_connections::RankConnections;
use super::round::{Calls, Round, Waiting};
use crate::access::Token;
use crate::assignment::assignment;
use crate::client::{LighthouseClient, QuorumError};
use crate::deadline;
use crate::proto::manager_service_server::ManagerService;
use crate::proto::{
    CheckpointMetadataRequest, CheckpointMetadataResponse, KillRequest, KillResponse,
    ManagerQuorumRequest, ManagerQuorumResponse, Quorum, QuorumMember, ShouldCommitRequest,
    ShouldCommitResponse,
};
use crate::serve::Connection;

/// Most bytes of what a rank says of its checkpoint.
const MAX_METADATA: usize = 16 << 10;
/// How long the lighthouse is asked for a call that says nothing of it.
const USUAL_LIMIT: Duration = Duration::from_secs(60);

type QuorumCalls = Calls<ManagerQuorumRequest, Arc<Quorum>>;

/// The service.
pub(super) struct Service {
    options: ManagerOptions,
    lighthouse: LighthouseClient,
    /// Where others reach it.
    address: String,
    ranks: Arc<RankConnections>,
    known: Arc<Mutex<Known>>,
}

struct Known {
    quorums: Round<ManagerQuorumRequest, Arc<Quorum>>,
    commits: Round<bool, bool>,
    /// What each rank said last of its checkpoint.
    checkpoints: BTreeMap<i64, String>,
}

impl Service {
    pub(super) fn new(
        options: ManagerOptions,
        lighthouse: LighthouseClient,
        address: String,
        ranks: Arc<RankConnections>,
    ) -> Service {
        let known = Known {
            quorums: Round::new(options.world_size),
            commits: Round::new(options.world_size),
            checkpoints: BTreeMap::new(),
        };
        Service { options, lighthouse, address, ranks, known: Arc::new(Mutex::new(known)) }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn let_in<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let given = request.metadata().get("authorization").and_then(|it| it.to_str().ok());
        let is_let_in = |token: &Token| given.is_some_and(|given| token.is_in(given));
        if !self.options.token.as_ref().is_none_or(is_let_in) {
            return Err(Status::unauthenticated("the manager wants the token of its job"));
        }
        if let Some(connection) = request.extensions().get::<Connection>() {
            connection.admit();
        }
        Ok(())
    }

    /// Asks the lighthouse, and tells all ranks what came of it; stops asking when all of them have
    /// given up.
    fn ask(&self, mut calls: QuorumCalls, limit: Duration) {
        let mut member = QuorumMember {
            replica_id: self.options.replica_id.clone(),
            address: self.address.clone(),
            store_address: self.options.store_address.clone(),
            world_size: self.options.world_size as u64,
            data: self.options.data.clone(),
            ..QuorumMember::default()
        };
        for call in calls.values() {
            member.step = call.asked.step;
            member.shrink_only |= call.asked.shrink_only;
            member.commit_failures = member.commit_failures.max(call.asked.commit_failures);
            // All of them have committed it together.
            member.committed_in = call.asked.committed_in;
        }
        let lighthouse = self.lighthouse.clone();
        tokio::spawn(async move {
            let all_gone = async {
                for call in calls.values_mut() {
                    call.answer.closed().await;
                }
            };
            let outcome = tokio::select! {
                outcome = lighthouse.quorum(member, limit) => outcome.map(Arc::new),
                () = all_gone => return,
            };
            for call in calls.into_values() {
                // Who has given up meanwhile is not there.
                drop(call.answer.send(outcome.clone().map_err(|error| status(&error))));
            }
        });
    }
}

/// Waits for the answer, and stops waiting for it when the caller does.
async fn answered<T, A>(
    known: &Arc<Mutex<Known>>,
    round: fn(&mut Known) -> &mut Round<T, A>,
    rank: i64,
    (number, mut answer): Waiting<A>,
    limit: Option<Duration>,
) -> Result<A, Status> {
    struct Leaves<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Leaves<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let _leaves = Leaves(|| round(&mut lock()).leave(rank, number));
    let ended = |_| Status::unavailable("the manager ends");
    let Some(limit) = limit else { return (&mut answer).await.map_err(ended)? };
    match tokio::time::timeout(limit, &mut answer).await {
        Ok(answer) => answer.map_err(ended)?,
        Err(_) => Err(Status::deadline_exceeded(match round(&mut lock()).missing(rank, number) {
            Some(missing) => {
                format!("waits for ranks of the replica group that have not asked: {missing}")
            }
            None => "waits for the lighthouse".to_owned(),
        })),
    }
}

fn status(error: &QuorumError) -> Status {
    let code = match error {
        QuorumError::Deadline(_) => Code::DeadlineExceeded,
        QuorumError::Denied(_) => Code::PermissionDenied,
        QuorumError::Refused(_) => Code::FailedPrecondition,
        QuorumError::Connect { .. } | QuorumError::Lost { .. } => Code::Unavailable,
        QuorumError::Address { .. } | QuorumError::Other { .. } => Code::Internal,
    };
    Status::new(code, format!("the lighthouse: {error}"))
}

#[tonic::async_trait]
impl ManagerService for Service {
    async fn quorum(
        &self,
        request: Request<ManagerQuorumRequest>,
    ) -> Result<Response<ManagerQuorumResponse>, Status> {
        self.let_in(&request)?;
        let limit = deadline::of(request.metadata().as_ref()).map(|limit| limit.kept);
        let connection = request.extensions().get::<Connection>().cloned();
        let asked = request.into_inner();
        if asked.checkpoint_metadata.len() > MAX_METADATA {
            let message = format!("checkpoint_metadata has more than {MAX_METADATA} bytes");
            return Err(Status::invalid_argument(message));
        }
        let (rank, init_sync) = (asked.group_rank, asked.init_sync);
        let waiting = {
            let mut known = self.lock();
            let metadata = asked.checkpoint_metadata.clone();
            let (waiting, calls) = known.quorums.enter(rank, asked.step, asked)?;
            known.checkpoints.insert(rank, metadata);
            self.ranks.note(rank, connection);
            if let Some(calls) = calls {
                self.ask(calls, limit.unwrap_or(USUAL_LIMIT));
            }
            waiting
        };
        let quorum =
            answered(&self.known, |known| &mut known.quorums, rank, waiting, limit).await?;
        let id = &self.options.replica_id;
        let found = assignment(id, rank, &quorum, init_sync);
        found
            .map(Response::new)
            .ok_or_else(|| Status::not_found(format!("{id} is not in quorum {}", quorum.quorum_id)))
    }

    async fn checkpoint_metadata(
        &self,
        request: Request<CheckpointMetadataRequest>,
    ) -> Result<Response<CheckpointMetadataResponse>, Status> {
        self.let_in(&request)?;
        let rank = request.into_inner().rank;
        let found = self.lock().checkpoints.get(&rank).cloned();
        let checkpoint_metadata = found.ok_or_else(|| {
            Status::invalid_argument(format!("rank {rank} has not said where its checkpoint is"))
        })?;
        Ok(Response::new(CheckpointMetadataResponse { checkpoint_metadata }))
    }

    async fn should_commit(
        &self,
        request: Request<ShouldCommitRequest>,
    ) -> Result<Response<ShouldCommitResponse>, Status> {
        self.let_in(&request)?;
        let limit = deadline::of(request.metadata().as_ref()).map(|limit| limit.kept);
        let ShouldCommitRequest { should_commit, group_rank, step } = request.into_inner();
        let waiting = {
            let (waiting, calls) = self.lock().commits.enter(group_rank, step, should_commit)?;
            let decision = calls.iter().flat_map(BTreeMap::values).all(|call| call.asked);
            for call in calls.into_iter().flat_map(BTreeMap::into_values) {
                drop(call.answer.send(Ok(decision)));
            }
            waiting
        };
        let should_commit =
            answered(&self.known, |known| &mut known.commits, group_rank, waiting, limit).await?;
        Ok(Response::new(ShouldCommitResponse { should_commit }))
    }

    async fn kill(&self, request: Request<KillRequest>) -> Result<Response<KillResponse>, Status> {
        self.let_in(&request)?;
        let message = request.into_inner().msg;
        tracing::warn!("{} is told to end: {message}", self.options.replica_id);
        (self.options.on_kill)(&message);
        Ok(Response::new(KillResponse {}))
    }
}
