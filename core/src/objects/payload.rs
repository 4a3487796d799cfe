//! Payloads, encoded objects, from rank to rank: the calls, each blocking and as a future. Knows
//! nothing of how they travel.

use super::exchange::Exchange;
use crate::blocking::block_on;
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;

/// How a payload is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// CBOR, RFC 8949.
    Cbor,
    /// Python's pickle.
    Pickle,
}

/// One encoded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How it is encoded.
    pub codec: Codec,
    /// Its encoding.
    pub bytes: Vec<u8>,
}

/// Why a rank takes part without an object; the others are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingObject {
    /// It could not be encoded, or is none: all raise
    /// [`Error::InvalidType`](crate::Error::InvalidType).
    NotEncoded(String),
    /// A list has not as many objects, or places for them, as it needs: all raise
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument).
    UnfitList(String),
}

/// An encoded object, or why there is none.
pub type EncodedObject = std::result::Result<Payload, MissingObject>;

/// The objects of a scatter, or why there are none.
pub type EncodedList = std::result::Result<Vec<Payload>, MissingObject>;

impl ProcessGroup {
    /// All ranks get the payload of `root`; only the root passes one.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType) if the root could not encode its object;
    /// those of [`ProcessGroup::broadcast`].
    pub fn broadcast_payload(&self, mine: Option<EncodedObject>, root: u32) -> Result<Payload> {
        block_on(self.exchange().broadcast(mine, root))
    }

    /// As [`ProcessGroup::broadcast_payload`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::broadcast_payload`].
    pub async fn broadcast_payload_async(
        &self,
        mine: Option<EncodedObject>,
        root: u32,
    ) -> Result<Payload> {
        self.exchange().broadcast(mine, root).await
    }

    /// All ranks get every rank's payload, by rank.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType), on all ranks, if one of them could not
    /// encode its object; those of [`ProcessGroup::allgather`].
    pub fn all_gather_payloads(&self, mine: EncodedObject) -> Result<Vec<Payload>> {
        block_on(self.exchange().all_gather(mine))
    }

    /// As [`ProcessGroup::all_gather_payloads`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather_payloads`].
    pub async fn all_gather_payloads_async(&self, mine: EncodedObject) -> Result<Vec<Payload>> {
        self.exchange().all_gather(mine).await
    }

    /// `root` gets every rank's payload, by rank; the others get nothing.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType), on all ranks, if one of them could not
    /// encode its object; those of [`ProcessGroup::gather`].
    pub fn gather_payloads(&self, mine: EncodedObject, root: u32) -> Result<Option<Vec<Payload>>> {
        block_on(self.exchange().gather(mine, root))
    }

    /// As [`ProcessGroup::gather_payloads`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::gather_payloads`].
    pub async fn gather_payloads_async(
        &self,
        mine: EncodedObject,
        root: u32,
    ) -> Result<Option<Vec<Payload>>> {
        self.exchange().gather(mine, root).await
    }

    /// Each rank gets its payload of those of `root`; only the root passes them, one for each rank.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType), on all ranks, if the root could not
    /// encode one of its objects; [`Error::InvalidArgument`](crate::Error::InvalidArgument), on
    /// all ranks, if it has not one for each rank; those of [`ProcessGroup::scatter`].
    pub fn scatter_payloads(&self, all: Option<EncodedList>, root: u32) -> Result<Payload> {
        block_on(self.exchange().scatter(all, root))
    }

    /// As [`ProcessGroup::scatter_payloads`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::scatter_payloads`].
    pub async fn scatter_payloads_async(
        &self,
        all: Option<EncodedList>,
        root: u32,
    ) -> Result<Payload> {
        self.exchange().scatter(all, root).await
    }

    /// Sends a payload to `peer`; if it could not be encoded, the reason.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType) if it could not be encoded; those of
    /// [`ProcessGroup::send`].
    pub fn send_payload(&self, mine: EncodedObject, peer: u32) -> Result<()> {
        block_on(self.exchange().send(mine, peer))
    }

    /// As [`ProcessGroup::send_payload`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::send_payload`].
    pub async fn send_payload_async(&self, mine: EncodedObject, peer: u32) -> Result<()> {
        self.exchange().send(mine, peer).await
    }

    /// Receives a payload from `peer`, or from any rank; returns it with its sender.
    ///
    /// # Errors
    /// [`Error::InvalidType`](crate::Error::InvalidType) if the sender could not encode its object;
    /// those of [`ProcessGroup::recv`].
    pub fn recv_payload(&self, peer: Option<u32>) -> Result<(Payload, u32)> {
        block_on(self.exchange().recv(peer))
    }

    /// As [`ProcessGroup::recv_payload`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv_payload`].
    pub async fn recv_payload_async(&self, peer: Option<u32>) -> Result<(Payload, u32)> {
        self.exchange().recv(peer).await
    }

    /// Exchanges among this group's ranks, waited for as the caller waits.
    pub(crate) fn exchange(&self) -> Exchange<'_> {
        Exchange { group: self }
    }
}
