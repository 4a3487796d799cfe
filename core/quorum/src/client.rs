//! Asks a lighthouse, torchft's or this one.

use std::error::Error as _;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, TimeoutExpired};

use crate::access::Token;
use crate::proto::lighthouse_service_client::LighthouseServiceClient;
use crate::proto::manager_service_client::ManagerServiceClient;
use crate::proto::{
    CheckpointMetadataRequest, LighthouseHeartbeatRequest, LighthouseQuorumRequest,
    ManagerQuorumRequest, ManagerQuorumResponse, Quorum, QuorumMember, ShouldCommitRequest,
};

/// How often the other side is asked whether it is there, and how long it may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));
/// Between two attempts: the first and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// What a pause may be longer, so that a thousand replicas do not come at one moment.
const JITTER_MILLISECONDS: u64 = 100;
/// What a call may take longer than it asks the lighthouse to.
const GRACE: Duration = Duration::from_secs(1);

/// How a client asks.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How long a lighthouse that is not there is waited for.
    pub connect_timeout: Duration,
    /// What the lighthouse was started with.
    pub token: Option<Token>,
}

impl Default for ClientOptions {
    /// A minute, as torchft's managers have it.
    fn default() -> ClientOptions {
        ClientOptions { connect_timeout: Duration::from_secs(60), token: None }
    }
}

/// Why a client has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumError {
    /// It cannot be asked there.
    #[error("{address} is not the address of a lighthouse: {why}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody was there.
    #[error("nothing answers at {address}, after {} s: {cause}", waited.as_secs_f64())]
    Connect {
        /// Who was asked.
        address: String,
        /// How long.
        waited: Duration,
        /// What happened last.
        cause: String,
    },
    /// There was no answer in time; the words say what the lighthouse waited for.
    #[error("{0}")]
    Deadline(String),
    /// The lighthouse wants its token.
    #[error("{0}")]
    Denied(String),
    /// The lighthouse does not take this.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection to {address} was lost: {cause}")]
    Lost {
        /// Who was asked.
        address: String,
        /// What happened.
        cause: String,
    },
    /// The other side is no lighthouse, or has failed.
    #[error("{code}: {message}")]
    Other {
        /// What gRPC calls it.
        code: Code,
        /// What it says.
        message: String,
    },
}

/// What a manager says of ranks that call at different steps, besides who is where.
pub(crate) const DIFFERENT_STEPS: &str = "the ranks of the replica group are at different steps";

impl QuorumError {
    /// Whether it is because the ranks of the replica group are at different steps, as a manager of
    /// ours says.
    #[must_use]
    pub fn is_of_steps(&self) -> bool {
        matches!(self, QuorumError::Refused(message) if message.contains(DIFFERENT_STEPS))
    }
}

/// A connection to a lighthouse. Clones share it.
#[derive(Clone, Debug)]
pub struct LighthouseClient {
    address: String,
    service: Arc<Mutex<Connected>>,
    token: Option<Token>,
}

/// A connection, and how many there were before it.
#[derive(Clone, Debug)]
struct Connected {
    number: u64,
    service: LighthouseServiceClient<Channel>,
}

impl LighthouseClient {
    /// Connects to `http://host:port`, or `host:port`. A lighthouse that is not there yet is waited
    /// for.
    ///
    /// # Errors
    /// Nobody is there, or the address is none.
    pub async fn connect(
        address: &str,
        options: ClientOptions,
    ) -> Result<LighthouseClient, QuorumError> {
        let channel = connect(address, options.connect_timeout).await?;
        let connected = Connected { number: 0, service: LighthouseServiceClient::new(channel) };
        let service = Arc::new(Mutex::new(connected));
        Ok(LighthouseClient { address: address.to_owned(), service, token: options.token })
    }

    /// Asks for a quorum with this member in it, and waits for it. A lighthouse that goes away and
    /// comes back meanwhile is asked anew. It counts as one heartbeat: send more while it lasts.
    ///
    /// # Errors
    /// There was none in time (the error says why), or the lighthouse does not take the member.
    pub async fn quorum(
        &self,
        member: QuorumMember,
        limit: Duration,
    ) -> Result<Quorum, QuorumError> {
        let until = after(limit);
        let mut pauses = Pauses::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let request = LighthouseQuorumRequest { requester: Some(member.clone()) };
            let request = with_token(request, self.token.as_ref(), left);
            let mut service = self.connected().service;
            let answer = match timeout(left.saturating_add(GRACE), service.quorum(request)).await {
                Ok(Ok(answer)) => answer.into_inner().quorum,
                Ok(Err(status)) => {
                    let pause = pauses.next();
                    let left = until.saturating_duration_since(Instant::now());
                    if is_lost(&status) && left > pause {
                        tracing::debug!("the lighthouse is asked anew: {}", words(&status));
                        sleep(pause).await;
                        continue;
                    }
                    return Err(error(&self.address, &status, limit));
                }
                Err(_) => return Err(silent(&self.address, limit)),
            };
            return answer.ok_or_else(|| QuorumError::Other {
                code: Code::Internal,
                message: "the answer has no quorum".to_owned(),
            });
        }
    }

    /// Says that the replica is alive. If that fails, the next call is made over a new connection.
    ///
    /// # Errors
    /// It did not arrive in time, or the lighthouse does not take it.
    pub async fn heartbeat(&self, replica_id: &str, limit: Duration) -> Result<(), QuorumError> {
        let request = LighthouseHeartbeatRequest { replica_id: replica_id.to_owned() };
        let request = with_token(request, self.token.as_ref(), limit);
        let Connected { number, mut service } = self.connected();
        let outcome = match timeout(limit.saturating_add(GRACE), service.heartbeat(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(status)) => error(&self.address, &status, limit),
            Err(_) => silent(&self.address, limit),
        };
        if matches!(outcome, QuorumError::Deadline(_) | QuorumError::Lost { .. }) {
            self.leave(number);
        }
        Err(outcome)
    }

    fn connected(&self) -> Connected {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next call connects anew: the host at the other end of the connection may have vanished,
    /// and closed nothing. Those that wait for an answer by it do so until they give up.
    pub(crate) fn renew(&self) {
        self.leave(self.connected().number);
    }

    /// As [`LighthouseClient::renew`], unless that was done since there was this connection.
    fn leave(&self, number: u64) {
        // It was one when this client was made.
        let Ok(endpoint) = endpoint(&self.address) else { return };
        let mut connected = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.number == number {
            let service =
                LighthouseServiceClient::new(endpoint.connect_timeout(PAUSES.1).connect_lazy());
            *connected = Connected { number: number + 1, service };
        }
    }
}

/// A connection of a rank to the manager of its replica group, torchft's or ours. Clones share it.
#[derive(Clone, Debug)]
pub struct ManagerClient {
    address: String,
    service: ManagerServiceClient<Channel>,
    token: Option<Token>,
}

impl ManagerClient {
    /// Connects; a manager that is not there yet is waited for.
    ///
    /// # Errors
    /// Nobody is there, or the address is none.
    pub async fn connect(
        address: &str,
        options: ClientOptions,
    ) -> Result<ManagerClient, QuorumError> {
        let channel = connect(address, options.connect_timeout).await?;
        let service = ManagerServiceClient::new(channel);
        Ok(ManagerClient { address: address.to_owned(), service, token: options.token })
    }

    /// Asks for a quorum; it comes when all ranks of the group have asked.
    ///
    /// # Errors
    /// There was none in time, or ranks are at different steps; the error says why.
    pub async fn quorum(
        &self,
        asked: ManagerQuorumRequest,
        limit: Duration,
    ) -> Result<ManagerQuorumResponse, QuorumError> {
        let mut service = self.service.clone();
        let call = service.quorum(with_token(asked, self.token.as_ref(), limit));
        self.answer(call, limit).await
    }

    /// How the checkpoint of a rank of that group is to be had.
    ///
    /// # Errors
    /// It has not said so, or the manager does not answer.
    pub async fn checkpoint_metadata(
        &self,
        rank: i64,
        limit: Duration,
    ) -> Result<String, QuorumError> {
        let mut service = self.service.clone();
        let request = with_token(CheckpointMetadataRequest { rank }, self.token.as_ref(), limit);
        let answer = self.answer(service.checkpoint_metadata(request), limit).await?;
        Ok(answer.checkpoint_metadata)
    }

    /// Whether all ranks of the group want to commit the step.
    ///
    /// # Errors
    /// Not all have asked in time, or they are at different steps.
    pub async fn should_commit(
        &self,
        group_rank: i64,
        step: i64,
        should_commit: bool,
        limit: Duration,
    ) -> Result<bool, QuorumError> {
        let mut service = self.service.clone();
        let request = ShouldCommitRequest { should_commit, group_rank, step };
        let request = with_token(request, self.token.as_ref(), limit);
        Ok(self.answer(service.should_commit(request), limit).await?.should_commit)
    }

    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
        limit: Duration,
    ) -> Result<T, QuorumError> {
        match timeout(limit.saturating_add(GRACE), call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(error(&self.address, &status, limit)),
            Err(_) => Err(silent(&self.address, limit)),
        }
    }
}

fn silent(address: &str, limit: Duration) -> QuorumError {
    let seconds = limit.as_secs_f64();
    QuorumError::Deadline(format!("{address} has not answered in {seconds} s"))
}

fn error(address: &str, status: &Status, limit: Duration) -> QuorumError {
    let message = words(status);
    match status.code() {
        _ if is_over(status) => silent(address, limit),
        Code::DeadlineExceeded => QuorumError::Deadline(message),
        Code::Unauthenticated | Code::PermissionDenied => QuorumError::Denied(message),
        Code::InvalidArgument | Code::ResourceExhausted | Code::FailedPrecondition => {
            QuorumError::Refused(message)
        }
        _ if is_lost(status) => QuorumError::Lost { address: address.to_owned(), cause: message },
        code => QuorumError::Other { code, message },
    }
}

/// Connects, and waits so long for somebody to be there.
async fn connect(address: &str, limit: Duration) -> Result<Channel, QuorumError> {
    let endpoint = endpoint(address)?;
    let until = after(limit);
    let mut pauses = Pauses::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // The lookup of a name is no part of what the endpoint's own limit counts.
        let attempt = endpoint.clone().connect_timeout(left);
        let cause = match timeout(left, attempt.connect()).await {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) => chain(&error),
            Err(_) => "no answer in time".to_owned(),
        };
        let pause = pauses.next();
        if until.saturating_duration_since(Instant::now()) <= pause {
            let address = address.to_owned();
            return Err(QuorumError::Connect { address, waited: limit, cause });
        }
        tracing::debug!("{address} is tried again: {cause}");
        sleep(pause).await;
    }
}

pub(crate) fn endpoint(address: &str) -> Result<Endpoint, QuorumError> {
    let wrong = |why: String| QuorumError::Address { address: address.to_owned(), why };
    let url = match address.split_once("://") {
        None => format!("http://{address}"),
        Some(("http", _)) => address.to_owned(),
        Some((scheme, _)) => return Err(wrong(format!("{scheme}:// is not spoken, http:// is"))),
    };
    let endpoint = Endpoint::from_shared(url).map_err(|error| wrong(chain(&error)))?;
    Ok(endpoint
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true))
}

pub(crate) fn with_token<T>(message: T, token: Option<&Token>, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    // What is in a token can be in a header.
    if let Some(value) = token.and_then(|token| token.header().parse().ok()) {
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Whether the other side went away, rather than answered.
fn is_lost(status: &Status) -> bool {
    let is_of_transport =
        status.source().is_some_and(|source| source.is::<tonic::transport::Error>());
    match status.code() {
        Code::Unavailable => true,
        Code::Unknown => is_of_transport,
        Code::Cancelled => !is_over(status),
        _ => false,
    }
}

/// Whether it is tonic's own clock, here or there, that has ended the call. Otherwise a call that
/// is cancelled is one whose connection has ended: nobody cancels it here.
fn is_over(status: &Status) -> bool {
    status.code() == Code::Cancelled && status.message() == TimeoutExpired(()).to_string()
}

/// The moment after so long; one that no clock has is taken as a year from now.
fn after(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + Duration::from_secs(365 * 24 * 3600))
}

pub(crate) fn words(status: &Status) -> String {
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Many repeat what they were caused by.
        if !text.ends_with(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}

/// Pauses that become longer, each with a little more by chance.
struct Pauses {
    next: Duration,
    chance: RandomState,
}

impl Pauses {
    fn new() -> Pauses {
        Pauses { next: PAUSES.0, chance: RandomState::new() }
    }

    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(PAUSES.1);
        let chance = self.chance.hash_one(pause) % JITTER_MILLISECONDS;
        pause + Duration::from_millis(chance)
    }
}
