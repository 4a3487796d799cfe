//! What can go wrong, and what to do then.

use std::sync::Arc;

use polyrank::Error;
use polyrank_quorum::QuorumError;

use crate::state::StateError;
use crate::transport::TransportError;

/// What can go wrong. Each says for which replica, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// An option, or a variable of the environment, has a value that cannot be.
    #[error("{0}")]
    Option(String),
    /// The manager of the replica group does not start.
    #[error("the manager of replica {replica} does not start: {cause}")]
    Start {
        /// Which.
        replica: String,
        /// Why.
        cause: Arc<polyrank_quorum::ManagerError>,
    },
    /// The store of the replica group cannot be had, or does not know the manager.
    #[error(
        "the store {address} of the replica group: {cause}\nis it there, and has rank 0 of the \
         replica group started?"
    )]
    Store {
        /// Where it was looked for.
        address: String,
        /// What is wrong.
        cause: Box<Error>,
    },
    /// The manager of the replica group cannot be reached: its rank 0 is gone, or has not started.
    #[error(
        "the manager of replica {replica}: {cause}\nif rank 0 of the replica has ended, start all \
         of its ranks anew"
    )]
    Connect {
        /// Which.
        replica: String,
        /// Why.
        cause: QuorumError,
    },
    /// There is no quorum. [`Manager::start_quorum`](crate::Manager::start_quorum) asks again;
    /// [`ManagerError::is_retryable`] says whether that may help.
    #[error("replica {replica}, rank {rank}: no quorum: {cause}; start_quorum asks again")]
    Quorum {
        /// Who asked.
        replica: String,
        /// Its rank in the replica group.
        rank: u32,
        /// Why there is none.
        cause: QuorumError,
    },
    /// The group could not be made of the replicas of the quorum, or an operation failed. The step
    /// is not committed; the next quorum makes the group anew.
    #[error(
        "replica {replica}, rank {rank}: {during}: {cause}{}; the next start_quorum makes the \
         group anew",
        at(failed.as_deref())
    )]
    Group {
        /// Where it was noticed.
        replica: String,
        /// The rank in the replica group.
        rank: u32,
        /// What was being done.
        during: String,
        /// The group's error.
        cause: Box<Error>,
        /// The replica whose rank the group's error names.
        failed: Option<String>,
    },
    /// A state did not come, or could not be given. The step is not committed; the next quorum
    /// tries again.
    #[error("replica {replica}, rank {rank}: {during}: {cause}")]
    Healing {
        /// Where it was noticed.
        replica: String,
        /// The rank in the replica group.
        rank: u32,
        /// From whom, or to whom.
        during: String,
        /// What was wrong.
        cause: Box<HealingError>,
    },
    /// The vote of the replica group has no result. Its ranks may disagree on their step now: end
    /// this replica, and start it anew.
    #[error(
        "replica {replica}, rank {rank}: the vote on step {step} has no result: {cause}\nthe ranks \
         of the replica may be at different steps now: start all of them anew"
    )]
    Vote {
        /// Who voted.
        replica: String,
        /// The rank in the replica group.
        rank: u32,
        /// The step.
        step: i64,
        /// Why.
        cause: QuorumError,
    },
    /// So many steps in a row were not committed.
    #[error(
        "replica {replica}: {failures} steps in a row were not committed, of at most {max_retries} \
         (max_retries); the last because {last}"
    )]
    TooManyFailures {
        /// Which.
        replica: String,
        /// How many.
        failures: i64,
        /// How many there may be.
        max_retries: u32,
        /// Why the last was not.
        last: String,
    },
    /// This replica has failed to take a state so often, each time at the cost of a step of all, be
    /// it its own fault or that of who gave it: it asks for no quorum any longer. End it, since
    /// others wait for a replica that lives.
    #[error(
        "replica {replica}, rank {rank}: {failures} states in a row were not taken, and it stays \
         out now: end it, and start it anew when this is mended: {last}"
    )]
    CannotHeal {
        /// Which.
        replica: String,
        /// The rank in the replica group.
        rank: u32,
        /// How often.
        failures: u32,
        /// Why the last was not.
        last: String,
    },
    /// There are too few replicas to commit a step.
    #[error(
        "replica {replica}: {participants} of at least {min_replica_size} replicas participate \
         (min_replica_size); the step is repeated until more come"
    )]
    TooFewReplicas {
        /// Which.
        replica: String,
        /// How many there are.
        participants: u32,
        /// How many there must be.
        min_replica_size: u32,
    },
    /// The average of elements that cannot be divided exactly.
    #[error(
        "the average of {dtype} elements is not defined here: reduce them with SUM, and divide by \
         num_participants(), or make them floats"
    )]
    AverageOfIntegers {
        /// The elements.
        dtype: &'static str,
    },
    /// The call is wrong; the same would be so in each step.
    #[error("{0}")]
    Call(Box<Error>),
    /// The program reported it.
    #[error("{0}")]
    Reported(String),
    /// Calls are in the wrong order, or something was registered twice.
    #[error("{0}")]
    Order(String),
    /// The wait for the quorum was ended by a check of the thread, as for Ctrl-C.
    #[error("interrupted while waiting for the quorum")]
    Interrupted,
    /// It was shut down.
    #[error("the manager of replica {replica} was shut down")]
    Closed {
        /// Which.
        replica: String,
    },
}

/// Why a state was not taken, or not given.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealingError {
    /// It does not travel.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It cannot be made, or cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its manager does not say how it is to be had.
    #[error("its manager: {0}")]
    Manager(#[from] QuorumError),
}

impl ManagerError {
    /// Whether the loop may go on: the next step may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            ManagerError::Quorum { cause, .. } => match cause {
                QuorumError::Denied(_) | QuorumError::Address { .. } => false,
                QuorumError::Refused(_) => cause.is_of_steps(),
                _ => true,
            },
            ManagerError::Group { .. }
            | ManagerError::Healing { .. }
            | ManagerError::TooFewReplicas { .. }
            | ManagerError::Reported(_) => true,
            _ => false,
        }
    }
}

fn at(failed: Option<&str>) -> String {
    failed.map(|replica| format!(" (its rank is that of replica {replica})")).unwrap_or_default()
}
