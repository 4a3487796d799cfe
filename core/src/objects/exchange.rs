//! Encoded objects from rank to rank: sizes first, then bytes. Knows nothing of what they encode.
//!
//! A rank that could not encode its object takes part all the same and sends why, so that nobody
//! waits for it in vain: whoever was to get the object raises what it says.

use crate::{Error, ProcessGroup, Result};

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

/// An encoded object, or why it could not be encoded.
pub type Encoded = std::result::Result<Payload, String>;

/// Tags of the two messages of an object. The sizes and the bytes have their own, so that a receive
/// from any rank finds sizes only; tensors had better use others.
const SIZES_TAG: u32 = u32::MAX - 1;
const BYTES_TAG: u32 = u32::MAX;

/// What stands in place of a codec before the text of a failure.
const FAILURE: u64 = 2;

/// What it is, and its length in bytes.
type Header = [u64; 2];

impl ProcessGroup {
    /// All ranks get the payload of `root`, which alone gives one.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if the root could not encode its object; those of
    /// [`ProcessGroup::broadcast`].
    pub fn broadcast_payload(&self, mine: Option<Encoded>, root: u32) -> Result<Payload> {
        let mine = mine.map(pack);
        let mut header = mine.as_ref().map_or([0, 0], |(header, _)| *header);
        self.broadcast(&mut header, root)?;
        let mut bytes = mine.map_or_else(Vec::new, |(_, bytes)| bytes);
        if self.rank() != root {
            bytes = zeroed(header)?;
        }
        self.broadcast(&mut bytes, root)?;
        unpack(header, bytes, root)
    }

    /// All ranks get every rank's payload, by rank.
    ///
    /// # Errors
    /// [`Error::InvalidType`], on all ranks, if one of them could not encode its object; those of
    /// [`ProcessGroup::allgather`].
    pub fn all_gather_payloads(&self, mine: Encoded) -> Result<Vec<Payload>> {
        let (header, bytes) = pack(mine);
        let headers = self.all_headers(header)?;
        let mut all = buffers(&headers)?;
        self.allgather(&mut all, &bytes, ())?;
        unpack_all(headers, all)
    }

    /// `root` gets every rank's payload, by rank; the others get nothing.
    ///
    /// # Errors
    /// [`Error::InvalidType`], on all ranks, if one of them could not encode its object; those of
    /// [`ProcessGroup::gather`].
    pub fn gather_payloads(&self, mine: Encoded, root: u32) -> Result<Option<Vec<Payload>>> {
        let failure = mine.as_ref().err().cloned();
        let (header, bytes) = pack(mine);
        let headers = self.all_headers(header)?;
        let mut all = if self.rank() == root { buffers(&headers)? } else { Vec::new() };
        self.gather(&mut all, &bytes, root)?;
        if self.rank() == root {
            return unpack_all(headers, all).map(Some);
        }
        let failed = headers.iter().position(|header| header[0] == FAILURE);
        match (failure, failed) {
            (Some(why), _) => Err(not_encoded(self.rank(), &why)),
            (None, Some(rank)) => Err(not_encoded(rank as u32, &format!("rank {root} knows why"))),
            (None, None) => Ok(None),
        }
    }

    /// Each rank gets its payload of those of `root`, which alone gives them, one for each rank.
    ///
    /// # Errors
    /// [`Error::InvalidType`], on all ranks, if the root could not encode one of its objects or has
    /// not one for each rank; those of [`ProcessGroup::scatter`].
    pub fn scatter_payloads(
        &self,
        all: Option<std::result::Result<Vec<Payload>, String>>,
        root: u32,
    ) -> Result<Payload> {
        let size = self.size() as usize;
        let all = all.map(|all| match all {
            Ok(payloads) if payloads.len() == size => payloads.into_iter().map(Ok).collect(),
            Ok(payloads) => vec![Err(format!("{} objects for {size} ranks", payloads.len())); size],
            Err(why) => vec![Err(why); size],
        });
        let packed: Vec<(Header, Vec<u8>)> =
            all.unwrap_or_default().into_iter().map(pack).collect();
        let headers: Vec<Vec<u64>> = packed.iter().map(|(header, _)| header.to_vec()).collect();
        let mut header: Header = [0, 0];
        self.scatter(&mut header, &headers, root)?;
        let mut bytes = zeroed(header)?;
        let payloads: Vec<Vec<u8>> = packed.into_iter().map(|(_, bytes)| bytes).collect();
        self.scatter(&mut bytes, &payloads, root)?;
        unpack(header, bytes, root)
    }

    /// Sends a payload to `peer`; if it could not be encoded, the reason.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if it could not be encoded; those of [`ProcessGroup::send`].
    pub fn send_payload(&self, mine: Encoded, peer: u32) -> Result<()> {
        let failure = mine.as_ref().err().cloned();
        let (header, bytes) = pack(mine);
        self.send(&header, peer, SIZES_TAG)?;
        self.send(&bytes, peer, BYTES_TAG)?;
        failure.map_or(Ok(()), |why| Err(not_encoded(self.rank(), &why)))
    }

    /// Receives a payload from `peer`, or from whoever sends first; the sender with it.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if the sender could not encode its object; those of
    /// [`ProcessGroup::recv`].
    pub fn recv_payload(&self, peer: Option<u32>) -> Result<(Payload, u32)> {
        let mut header: Header = [0, 0];
        let peer = match peer {
            Some(peer) => {
                self.recv(&mut header, peer, SIZES_TAG)?;
                peer
            }
            None => self.recv_anysource(&mut header, SIZES_TAG)?,
        };
        let mut bytes = zeroed(header)?;
        self.recv(&mut bytes, peer, BYTES_TAG)?;
        Ok((unpack(header, bytes, peer)?, peer))
    }

    fn all_headers(&self, mine: Header) -> Result<Vec<Header>> {
        let mut all = vec![vec![0u64; 2]; self.size() as usize];
        self.allgather(&mut all, &mine, ())?;
        Ok(all.into_iter().map(|header| [header[0], header[1]]).collect())
    }
}

fn pack(encoded: Encoded) -> (Header, Vec<u8>) {
    let (code, bytes) = match encoded {
        Ok(Payload { codec: Codec::Cbor, bytes }) => (0, bytes),
        Ok(Payload { codec: Codec::Pickle, bytes }) => (1, bytes),
        Err(why) => (FAILURE, why.into_bytes()),
    };
    ([code, bytes.len() as u64], bytes)
}

fn unpack([code, _]: Header, bytes: Vec<u8>, rank: u32) -> Result<Payload> {
    let codec = match code {
        0 => Codec::Cbor,
        1 => Codec::Pickle,
        FAILURE => return Err(not_encoded(rank, &String::from_utf8_lossy(&bytes))),
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
    headers.iter().map(|header| zeroed(*header)).collect()
}

/// Memory for the bytes that are announced; an error if they are more than there is memory for.
fn zeroed([_, announced]: Header) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = usize::try_from(announced).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(length).is_err() {
        let message = format!("there is no memory for an object of {announced} bytes");
        return Err(Error::InvalidArgument { message });
    }
    bytes.resize(length, 0);
    Ok(bytes)
}

fn not_encoded(rank: u32, why: &str) -> Error {
    Error::InvalidType { message: format!("rank {rank} could not encode its object: {why}") }
}
