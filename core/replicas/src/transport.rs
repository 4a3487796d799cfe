//! How the state of one replica comes to another, whatever the way.

use std::time::Instant;

use polyrank::Error;

/// Why a state did not travel.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The group failed, or a rank of it.
    #[error(transparent)]
    Group(#[from] Error),
    /// As [`TransportError::Group`], at this.
    #[error("{what} between this replica and replica {replica}: {cause}")]
    Lost {
        /// A piece of a state, or all of it.
        what: String,
        /// With whom it was moved.
        replica: String,
        /// What is wrong; it may be another rank that has failed.
        cause: Box<Error>,
    },
    /// It was not there in time.
    #[error(
        "{bytes} bytes of {all} had been moved when its time was over{missing}; raise state_timeout"
    )]
    Late {
        /// So many had.
        bytes: u64,
        /// Of so many; 0 if that was not known yet.
        all: u64,
        /// What was waited for, after a comma; may be empty.
        missing: String,
    },
    /// The source is at another step.
    #[error("the source sent the state of step {sent}, where that of step {expected} was expected")]
    Step {
        /// What came.
        sent: i64,
        /// What the quorum says.
        expected: i64,
    },
    /// A piece of it is not what its source says that it is, again and again.
    #[error(
        "piece {piece} of {pieces} came damaged from replica {replica} (rank {rank}) {times} \
         times; what is between the two hosts, or the memory of one of them, changes bytes"
    )]
    Damaged {
        /// Whose it is.
        replica: String,
        /// Its rank in the group.
        rank: u32,
        /// Which one, counted from 1.
        piece: u64,
        /// Of so many.
        pieces: u64,
        /// How often it came.
        times: u32,
    },
    /// It is larger than the memory.
    #[error("cannot allocate {0} bytes for a state")]
    Memory(u64),
    /// Another way has failed.
    #[error("{0}")]
    Other(String),
}

/// A rank that gives a state, or takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePeer<'a> {
    /// Its rank in the quorum, by which the group was made.
    pub rank: u32,
    /// The id of its replica.
    pub replica: &'a str,
}

/// How states travel: torchft's `CheckpointTransport`, for bytes. All replicas have the same. A
/// manager that is shut down waits for what runs here: keep to the deadline.
pub trait StateTransport: Send + Sync {
    /// How a state of this rank is to be had, for those that take it; may be empty.
    fn metadata(&self) -> String;

    /// Whether [`StateTransport::receive`] needs the `metadata` of the first source. Its manager is
    /// asked for it then, at the address that the quorum has, with the token of the job.
    fn needs_metadata(&self) -> bool {
        true
    }

    /// Whether [`StateTransport::receive`] takes a state from several ranks at once. If so, all
    /// ranks that are not behind give theirs, up to eight to each that is. If not, each rank that
    /// is behind has one source, as in torchft.
    fn takes_from_several(&self) -> bool {
        false
    }

    /// Gives `state`, that of `step`, to those ranks; or has it ready for them until
    /// [`StateTransport::disallow`].
    ///
    /// # Errors
    /// It did not get there.
    fn send(
        &self,
        destinations: &[StatePeer<'_>],
        step: i64,
        state: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), TransportError>;

    /// Takes the state of `step` from those ranks, of which there is one at least. `metadata` is
    /// that of the first, whose state it is to be if theirs differ.
    ///
    /// # Errors
    /// It did not come.
    fn receive(
        &self,
        sources: &[StatePeer<'_>],
        metadata: &str,
        step: i64,
        deadline: Instant,
    ) -> Result<Vec<u8>, TransportError>;

    /// The state changes from now on: none is given any longer.
    fn disallow(&self);
}
