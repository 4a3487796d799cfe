//! Encoded objects from rank to rank: sizes first, then bytes. Knows nothing of what they encode.
//!
//! A rank that has no object to give takes part all the same and sends the reason, so that no other
//! waits for it in vain: the ranks that were to get the object raise it as their error.

use super::payload::{Codec, EncodedList, EncodedObject, MissingObject, Payload};
use crate::blocking::WaitMode;
use crate::generated::error::{Error, Result};
use crate::process_group::{MessageRequest, ProcessGroup, room_for};
use crate::request::{Role, TypedCall, tables};
use crate::tensor::{Element, Tensor};

/// Tags of the two messages of an object. The sizes and the bytes have their own, so that a receive
/// from any rank finds sizes only; tensors had better use others.
const SIZES_TAG: u32 = u32::MAX - 1;
const BYTES_TAG: u32 = u32::MAX;

/// What takes the place of a codec before the text that says why there is no object.
const NOT_ENCODED: u64 = 2;
const UNFIT_LIST: u64 = 3;

/// What it is, and its length in bytes.
type Header = [u64; 2];

/// Exchanges among the ranks of a group, waited for as the caller waits.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) group: &'a ProcessGroup,
}

impl Exchange<'_> {
    /// All ranks get the payload of `root`; only the root passes one.
    pub(crate) async fn broadcast(self, mine: Option<EncodedObject>, root: u32) -> Result<Payload> {
        let run = async {
            self.require_sender(mine.is_some(), "broadcast_object_list from another rank")?;
            let mine = mine.map(pack);
            let header = mine.as_ref().map_or([0, 0], |(header, _)| *header);
            let header = self.broadcast_vec(header.to_vec(), root).await?;
            let header = [header[0], header[1]];
            let bytes = match mine {
                Some((_, bytes)) if self.group.rank() == root => bytes,
                _ => room_for(header[1])?,
            };
            let bytes = self.broadcast_vec(bytes, root).await?;
            unpack(header, bytes, root)
        };
        self.group.composed("BROADCAST_OBJECT_LIST", -1, run).await
    }

    /// All ranks get every rank's payload, by rank.
    pub(crate) async fn all_gather(self, mine: EncodedObject) -> Result<Vec<Payload>> {
        let run = async {
            let (header, bytes) = pack(mine);
            let headers = self.all_headers(header).await?;
            let all = self.group.all_gather_vecs(buffers(&headers)?, bytes, None).await?;
            unpack_all(headers, all)
        };
        self.group.composed("ALL_GATHER_OBJECT", -1, run).await
    }

    /// `root` gets every rank's payload, by rank; the others get nothing.
    pub(crate) async fn gather(
        self,
        mine: EncodedObject,
        root: u32,
    ) -> Result<Option<Vec<Payload>>> {
        let run = async {
            let failure = mine.as_ref().err().cloned();
            let (header, bytes) = pack(mine);
            let headers = self.all_headers(header).await?;
            let is_root = self.group.rank() == root;
            let all = if is_root { buffers(&headers)? } else { Vec::new() };
            let call = TypedCall::new(&tables::PROCESS_GROUP_GATHER, root)
                .tensors(Role::Out, tensors(all))
                .tensors(Role::In, vec![bytes.into()]);
            let all = vecs(self.group.run_part(call).await?.1)?;
            if is_root {
                return unpack_all(headers, all).map(Some);
            }
            if let Some(why) = failure {
                return Err(missing(self.group.rank(), why));
            }
            let failed = headers.iter().enumerate().find_map(|(rank, [code, _])| {
                let why = missing_object(*code, || format!("rank {root} knows why"))?;
                Some(missing(rank as u32, why))
            });
            failed.map_or(Ok(None), Err)
        };
        self.group.composed("GATHER_OBJECT", -1, run).await
    }

    /// Each rank gets its payload of those of `root`; only the root passes them, one for each rank.
    pub(crate) async fn scatter(self, all: Option<EncodedList>, root: u32) -> Result<Payload> {
        let run = async {
            self.require_sender(all.is_some(), "scatter_object_list from another rank")?;
            let size = self.group.size() as usize;
            let all = all.map(|all| match all {
                Ok(payloads) if payloads.len() == size => payloads.into_iter().map(Ok).collect(),
                Ok(payloads) => {
                    let why = format!("the list has {} objects for {size} ranks", payloads.len());
                    vec![Err(MissingObject::UnfitList(why)); size]
                }
                Err(why) => vec![Err(why); size],
            });
            let packed: Vec<(Header, Vec<u8>)> =
                all.unwrap_or_default().into_iter().map(pack).collect();
            let headers: Vec<Vec<u64>> = packed.iter().map(|(header, _)| header.to_vec()).collect();
            let header = self.scatter_vec(vec![0; 2], headers, root).await?;
            let header = [header[0], header[1]];
            let payloads: Vec<Vec<u8>> = packed.into_iter().map(|(_, bytes)| bytes).collect();
            let bytes = self.scatter_vec(room_for(header[1])?, payloads, root).await?;
            unpack(header, bytes, root)
        };
        self.group.composed("SCATTER_OBJECT_LIST", -1, run).await
    }

    /// Sends a payload to `peer`; if there is none, the reason.
    pub(crate) async fn send(self, mine: EncodedObject, peer: u32) -> Result<()> {
        let run = async {
            let failure = mine.as_ref().err().cloned();
            let (header, bytes) = pack(mine);
            self.send_vec(header.to_vec(), peer, SIZES_TAG).await?;
            self.send_vec(bytes, peer, BYTES_TAG).await?;
            failure.map_or(Ok(()), |why| Err(missing(self.group.rank(), why)))
        };
        self.group.composed("SEND_OBJECT_LIST", peer as i32, run).await
    }

    /// Receives a payload from `peer`, or from any rank; returns it with its sender.
    pub(crate) async fn recv(self, peer: Option<u32>) -> Result<(Payload, u32)> {
        let run = async {
            self.require_sender(false, "recv_object_list")?;
            let (header, sender) = self.recv_vec(vec![0u64; 2], peer, SIZES_TAG).await?;
            let header = [header[0], header[1]];
            let (bytes, _) = self.recv_vec(room_for(header[1])?, Some(sender), BYTES_TAG).await?;
            Ok((unpack(header, bytes, sender)?, sender))
        };
        self.group.composed("RECV_OBJECT_LIST", peer.map_or(-1, |peer| peer as i32), run).await
    }

    /// Refuses what another rank would send, in a group whose other ranks do not exist.
    fn require_sender(self, is_own: bool, operation: &str) -> Result<()> {
        if is_own || !self.group.is_alone() {
            return Ok(());
        }
        let who =
            format!("the backend '{}', whose other ranks do not exist,", self.group.backend_name());
        Err(Error::Unsupported { who, operation: operation.to_owned() })
    }

    async fn all_headers(self, mine: Header) -> Result<Vec<Header>> {
        let all = vec![vec![0u64; 2]; self.group.size() as usize];
        let all = self.group.all_gather_vecs(all, mine.to_vec(), None).await?;
        Ok(all.into_iter().map(|header| [header[0], header[1]]).collect())
    }

    async fn broadcast_vec<T: Element>(self, elements: Vec<T>, root: u32) -> Result<Vec<T>> {
        let call = TypedCall::new(&tables::PROCESS_GROUP_BROADCAST, root);
        single(self.group.run_part(call.tensors(Role::InOut, vec![elements.into()])).await?.1)
    }

    async fn scatter_vec<T: Element>(
        self,
        mine: Vec<T>,
        all: Vec<Vec<T>>,
        root: u32,
    ) -> Result<Vec<T>> {
        let call = TypedCall::new(&tables::PROCESS_GROUP_SCATTER, root)
            .tensors(Role::Out, vec![mine.into()])
            .tensors(Role::In, tensors(all));
        single(self.group.run_part(call).await?.1)
    }

    async fn send_vec<T: Element>(self, elements: Vec<T>, peer: u32, tag: u32) -> Result<()> {
        let waiting = WaitMode::current().waiting();
        let message = MessageRequest::send(elements.into(), peer, tag);
        let work = self.group.issue_message_unhooked(message, None, waiting)?;
        work.settle().await
    }

    async fn recv_vec<T: Element>(
        self,
        elements: Vec<T>,
        peer: Option<u32>,
        tag: u32,
    ) -> Result<(Vec<T>, u32)> {
        let waiting = WaitMode::current().waiting();
        let message = MessageRequest::receive(elements.into(), peer, tag);
        let work = self.group.issue_message_unhooked(message, None, waiting)?;
        work.settle().await?;
        let sender = work.sender()?;
        Ok((single(work.into_result()?)?, sender))
    }
}

fn tensors<T: Element>(all: Vec<Vec<T>>) -> Vec<Tensor> {
    all.into_iter().map(Tensor::from).collect()
}

fn vecs<T: Element>(tensors: Vec<Tensor>) -> Result<Vec<Vec<T>>> {
    tensors.into_iter().map(Tensor::into_vec).collect()
}

fn single<T: Element>(mut tensors: Vec<Tensor>) -> Result<Vec<T>> {
    tensors.pop().map_or_else(|| Ok(Vec::new()), Tensor::into_vec)
}

fn pack(encoded: EncodedObject) -> (Header, Vec<u8>) {
    let (code, bytes) = match encoded {
        Ok(Payload { codec: Codec::Cbor, bytes }) => (0, bytes),
        Ok(Payload { codec: Codec::Pickle, bytes }) => (1, bytes),
        Err(MissingObject::NotEncoded(why)) => (NOT_ENCODED, why.into_bytes()),
        Err(MissingObject::UnfitList(why)) => (UNFIT_LIST, why.into_bytes()),
    };
    ([code, bytes.len() as u64], bytes)
}

fn unpack([code, _]: Header, bytes: Vec<u8>, rank: u32) -> Result<Payload> {
    let why = || String::from_utf8_lossy(&bytes).into_owned();
    if let Some(why) = missing_object(code, why) {
        return Err(missing(rank, why));
    }
    let codec = match code {
        0 => Codec::Cbor,
        1 => Codec::Pickle,
        _ => {
            let message = format!("rank {rank} encoded its object in an unknown way ({code})");
            return Err(Error::InvalidType { message });
        }
    };
    Ok(Payload { codec, bytes })
}

fn unpack_all(headers: Vec<Header>, all: Vec<Vec<u8>>) -> Result<Vec<Payload>> {
    let payloads = headers.into_iter().zip(all).enumerate();
    payloads.map(|(rank, (header, bytes))| unpack(header, bytes, rank as u32)).collect()
}

fn buffers(headers: &[Header]) -> Result<Vec<Vec<u8>>> {
    headers.iter().map(|[_, announced]| room_for(*announced)).collect()
}

/// What stands behind a header that has this in the place of a codec; none for a codec.
fn missing_object(code: u64, why: impl FnOnce() -> String) -> Option<MissingObject> {
    match code {
        NOT_ENCODED => Some(MissingObject::NotEncoded(why())),
        UNFIT_LIST => Some(MissingObject::UnfitList(why())),
        _ => None,
    }
}

fn missing(rank: u32, why: MissingObject) -> Error {
    let said = |why: &str| format!("rank {rank} gave no object: {why}");
    match why {
        MissingObject::NotEncoded(why) => Error::InvalidType { message: said(&why) },
        MissingObject::UnfitList(why) => Error::InvalidArgument { message: said(&why) },
    }
}
