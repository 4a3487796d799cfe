//! The messages of one call: forms, digests, and the parts that differ. Knows not which state holds.

use super::plan::{Digest, Part, Plan};
use super::{NAME, ProcessGroup};
use crate::completion::WaitIntent;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::process_group::{MessageRequest, of_whole};
use crate::tensor::{Region, Tensor};

/// One call.
pub(super) struct Exchange {
    pub(super) group: ProcessGroup,
    pub(super) tag: u32,
}

/// What ranks must have alike: how many tensors, and a digest of their dtypes and sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    count: u64,
    digest: Digest,
}

/// Bytes of a form.
const FORM: usize = 8 + size_of::<Digest>();

impl Exchange {
    /// Makes the tensors the same on all ranks.
    pub(super) fn run(&self, tensors: &[Tensor]) -> Result<()> {
        self.compare_forms(tensors)?;
        // One that lies apart is compared and sent as it would be together.
        let packed: Vec<Tensor> = tensors.iter().map(together).collect();
        let own: Vec<Digest> = packed.iter().map(digest).collect();
        let states = self.gather(own.as_flattened())?;
        let states: Vec<Vec<Digest>> =
            states.iter().map(|bytes| bytes.as_chunks().0.to_vec()).collect();
        let sizes: Vec<usize> = packed.iter().map(Tensor::bytes).collect();
        let plan = Plan::new(&states, &sizes);
        self.move_parts(&plan, &packed)?;
        self.check(&plan, &states, (tensors, &packed))
    }

    fn compare_forms(&self, tensors: &[Tensor]) -> Result<()> {
        let mut hasher = blake3::Hasher::new();
        for tensor in tensors {
            hasher.update(tensor.dtype().name().as_bytes());
            hasher.update(&[0]);
            hasher.update(&(tensor.elements() as u64).to_le_bytes());
        }
        let form = Form { count: tensors.len() as u64, digest: hasher.finalize().into() };
        let own = [&form.count.to_le_bytes()[..], &form.digest].concat();
        for (rank, theirs) in self.gather(&own)?.iter().enumerate() {
            let (count, digest) = theirs.split_first_chunk().unwrap_or((&[0; 8], &[]));
            let count = u64::from_le_bytes(*count);
            if theirs.len() == FORM && count == form.count && digest == form.digest {
                continue;
            }
            let forms = if count == form.count { " of other dtypes or sizes" } else { "" };
            let ours = format!("{} tensors", form.count);
            return Err(self.mismatch(rank as u32, ours, format!("{count} tensors{forms}")));
        }
        Ok(())
    }

    /// What each rank has, of the same size on all.
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let rank = self.group.rank();
        let given = bytes(own.to_vec());
        let all: Vec<Tensor> = (0..self.group.size()).map(|_| bytes(vec![0; own.len()])).collect();
        let mut messages = Vec::new();
        for (other, room) in (0_u32..).zip(&all).filter(|(other, _)| *other != rank) {
            messages.push(MessageRequest::receive(room.clone(), Some(other), self.tag));
            messages.push(MessageRequest::send(given.clone(), other, self.tag));
        }
        self.exchange(&messages)?;
        let read = |tensor: &Tensor| tensor.region().read(<[u8]>::to_vec);
        let mut gathered: Vec<Vec<u8>> = all.iter().map(read).collect();
        if let Some(ours) = gathered.get_mut(rank as usize) {
            ours.copy_from_slice(own);
        }
        Ok(gathered)
    }

    fn move_parts(&self, plan: &Plan, packed: &[Tensor]) -> Result<()> {
        let rank = self.group.rank();
        let mut messages = Vec::new();
        for part in plan.parts.iter().filter(|part| !part.bytes.is_empty()) {
            let Part { from, to, tensor, ref bytes } = *part;
            if from != rank && to != rank {
                continue;
            }
            let region = packed[tensor].region().slice(bytes.clone());
            let memory = Tensor::contiguous(region, DType::U8, vec![bytes.len()]);
            messages.push(match from == rank {
                true => MessageRequest::send(memory, to, self.tag),
                false => MessageRequest::receive(memory, Some(from), self.tag),
            });
        }
        self.exchange(&messages)
    }

    /// Sees that what came is what it was to be, and puts it where it belongs.
    fn check(
        &self,
        plan: &Plan,
        states: &[Vec<Digest>],
        (tensors, packed): (&[Tensor], &[Tensor]),
    ) -> Result<()> {
        let rank = self.group.rank();
        let Some(holder) = plan.holders.first().filter(|_| !plan.holders.contains(&rank)) else {
            return Ok(());
        };
        let (ours, right) = (&states[rank as usize], &states[*holder as usize]);
        let mut taken = 0;
        for (index, (tensor, came)) in tensors.iter().zip(packed).enumerate() {
            if ours[index] == right[index] {
                continue;
            }
            if digest(came) != right[index] {
                let changed = format!("tensor {index}, which was changed while it was read");
                let digest = format!("tensor {index} with the digest that was said");
                return Err(self.mismatch(*holder, digest, changed));
            }
            if !tensor.is_contiguous() {
                tensor.copy_from(came.region());
            }
            taken += 1;
        }
        let name = self.group.group_name();
        tracing::info!("{NAME}: rank {rank} of group '{name}' differed in {taken} tensors");
        Ok(())
    }

    fn exchange(&self, messages: &[MessageRequest]) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        // All of them end before it does.
        let work = self.group.issue_as_one(NAME, messages, Vec::new(), None, WaitIntent::Soon)?;
        work.wait(None).map_err(|error| of_whole(error, NAME))
    }

    fn mismatch(&self, other_rank: u32, ours: String, theirs: String) -> Error {
        Error::CollectiveMismatch {
            group: self.group.group_name().to_owned(),
            collective: NAME.to_owned(),
            sequence: 0,
            rank: self.group.rank(),
            ours,
            other_rank,
            theirs,
        }
    }
}

/// The tensor, or a copy of it whose elements follow one another.
fn together(tensor: &Tensor) -> Tensor {
    if tensor.is_contiguous() { tensor.clone() } else { tensor.to_contiguous() }
}

fn bytes(all: Vec<u8>) -> Tensor {
    let len = all.len();
    Tensor::contiguous(Region::from_vec(all), DType::U8, vec![len])
}

fn digest(tensor: &Tensor) -> Digest {
    tensor.region().read(|bytes| blake3::hash(bytes).into())
}
