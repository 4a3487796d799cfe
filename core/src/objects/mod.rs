//! Collectives of values that are not tensors: whatever serde knows, as CBOR. Knows no transport.
//!
//! Ranks in other languages read the same values: a struct is a map of its fields, and what Python
//! calls a list of objects is one array, a `Vec` here.

mod exchange;
mod payload;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use payload::{Codec, EncodedList, EncodedObject, MissingObject, Payload};

use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;

impl ProcessGroup {
    /// All ranks get the object of `root`, in place of theirs.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it cannot be encoded, on all ranks, or is not a `T`; those of
    /// [`ProcessGroup::broadcast`].
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &mut T,
        root: u32,
    ) -> Result<()> {
        let payload = self.broadcast_payload(self.own(object, root), root)?;
        self.replace(object, &payload, root)
    }

    /// As [`ProcessGroup::broadcast_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::broadcast_object`].
    pub async fn broadcast_object_async<T: Serialize + DeserializeOwned>(
        &self,
        object: &mut T,
        root: u32,
    ) -> Result<()> {
        let payload = self.broadcast_payload_async(self.own(object, root), root).await?;
        self.replace(object, &payload, root)
    }

    /// All ranks get every rank's object, by rank.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if one cannot be encoded, on all ranks, or is not a `T`; those of
    /// [`ProcessGroup::allgather`].
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(&self, object: &T) -> Result<Vec<T>> {
        decode_all(&self.all_gather_payloads(encode(object))?)
    }

    /// As [`ProcessGroup::all_gather_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather_object`].
    pub async fn all_gather_object_async<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
    ) -> Result<Vec<T>> {
        decode_all(&self.all_gather_payloads_async(encode(object)).await?)
    }

    /// `root` gets every rank's object, by rank; the others get nothing.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if one cannot be encoded, on all ranks, or is not a `T`; those of
    /// [`ProcessGroup::gather`].
    pub fn gather_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
        root: u32,
    ) -> Result<Option<Vec<T>>> {
        let gathered = self.gather_payloads(encode(object), root)?;
        gathered.map(|payloads| decode_all(&payloads)).transpose()
    }

    /// As [`ProcessGroup::gather_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::gather_object`].
    pub async fn gather_object_async<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
        root: u32,
    ) -> Result<Option<Vec<T>>> {
        let gathered = self.gather_payloads_async(encode(object), root).await?;
        gathered.map(|payloads| decode_all(&payloads)).transpose()
    }

    /// Each rank gets its object of those of `root`; the others give none.
    ///
    /// # Errors
    /// [`Error::InvalidType`], on all ranks, if one cannot be encoded; [`Error::InvalidArgument`],
    /// on all ranks, if there is not one for each rank; those of [`ProcessGroup::scatter`].
    pub fn scatter_object<T: Serialize + DeserializeOwned>(
        &self,
        objects: &[T],
        root: u32,
    ) -> Result<T> {
        decode(&self.scatter_payloads(self.own_list(objects, root), root)?, root)
    }

    /// As [`ProcessGroup::scatter_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::scatter_object`].
    pub async fn scatter_object_async<T: Serialize + DeserializeOwned>(
        &self,
        objects: &[T],
        root: u32,
    ) -> Result<T> {
        decode(&self.scatter_payloads_async(self.own_list(objects, root), root).await?, root)
    }

    /// Sends an object to `peer`, which receives it with [`ProcessGroup::recv_object`].
    ///
    /// # Errors
    /// [`Error::InvalidType`], here and there, if it cannot be encoded; those of
    /// [`ProcessGroup::send`].
    pub fn send_object<T: Serialize>(&self, object: &T, peer: u32) -> Result<()> {
        self.send_payload(encode(object), peer)
    }

    /// As [`ProcessGroup::send_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::send_object`].
    pub async fn send_object_async<T: Serialize>(&self, object: &T, peer: u32) -> Result<()> {
        self.send_payload_async(encode(object), peer).await
    }

    /// Receives an object from `peer`, or from any rank; returns it with its sender.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it could not be encoded, or is not a `T`; those of
    /// [`ProcessGroup::recv`].
    pub fn recv_object<T: DeserializeOwned>(&self, peer: Option<u32>) -> Result<(T, u32)> {
        let (payload, peer) = self.recv_payload(peer)?;
        Ok((decode(&payload, peer)?, peer))
    }

    /// As [`ProcessGroup::recv_object`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv_object`].
    pub async fn recv_object_async<T: DeserializeOwned>(
        &self,
        peer: Option<u32>,
    ) -> Result<(T, u32)> {
        let (payload, peer) = self.recv_payload_async(peer).await?;
        Ok((decode(&payload, peer)?, peer))
    }

    /// What this rank contributes to a broadcast.
    fn own<T: Serialize>(&self, object: &T, root: u32) -> Option<EncodedObject> {
        (self.rank() == root).then(|| encode(object))
    }

    /// What this rank contributes to a scatter.
    fn own_list<T: Serialize>(&self, objects: &[T], root: u32) -> Option<EncodedList> {
        (self.rank() == root).then(|| objects.iter().map(encode).collect())
    }

    /// The result of a broadcast.
    fn replace<T: DeserializeOwned>(
        &self,
        object: &mut T,
        payload: &Payload,
        root: u32,
    ) -> Result<()> {
        if self.rank() != root {
            *object = decode(payload, root)?;
        }
        Ok(())
    }
}

fn encode<T: Serialize>(object: &T) -> EncodedObject {
    let mut bytes = Vec::new();
    match ciborium::into_writer(object, &mut bytes) {
        Ok(()) => Ok(Payload { codec: Codec::Cbor, bytes }),
        Err(error) => Err(MissingObject::NotEncoded(error.to_string())),
    }
}

fn decode<T: DeserializeOwned>(payload: &Payload, rank: u32) -> Result<T> {
    let wrong = |why: String| {
        let wanted = std::any::type_name::<T>();
        let message = format!("the object of rank {rank} is not a {wanted}: {why}");
        Error::InvalidType { message }
    };
    match payload.codec {
        Codec::Cbor => ciborium::from_reader(payload.bytes.as_slice())
            .map_err(|error: ciborium::de::Error<std::io::Error>| wrong(error.to_string())),
        Codec::Pickle => Err(wrong("it is a pickle, which only Python reads".to_owned())),
    }
}

fn decode_all<T: DeserializeOwned>(payloads: &[Payload]) -> Result<Vec<T>> {
    payloads.iter().enumerate().map(|(rank, payload)| decode(payload, rank as u32)).collect()
}
