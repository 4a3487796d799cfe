//! The collectives of one call: forms, digests, the tensors that differ, and whether all have come
//! as they were to. Knows not which state holds.

use std::time::Duration;

use super::plan::{Digest, Part, Plan, State};
use super::{NAME, ProcessGroup};
use crate::clock::{self, Instant};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::options::AllToAllOptions;
use crate::process_group::state_refusal::FORM_WORDS;
use crate::request::{Role, TypedCall, tables};
use crate::tensor::{Region, Tensor};

/// One call.
pub(super) struct Exchange<'a> {
    group: &'a ProcessGroup,
    revision: i64,
    /// Until when it has to be done; none: however long it takes.
    deadline: Option<Instant>,
}

/// What ranks tell one another first: whether they take part, the revision of what they have, how
/// many tensors that is, and a digest of their dtypes and sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    takes_part: bool,
    revision: i64,
    count: u64,
    digest: [u64; FORM_WORDS - DIGEST],
}

/// Where the digest begins.
const DIGEST: usize = 3;

impl<'a> Exchange<'a> {
    /// Zero is no limit.
    pub(super) fn new(group: &'a ProcessGroup, revision: i64, limit: Duration) -> Exchange<'a> {
        let deadline = (!limit.is_zero()).then(|| clock::after(limit));
        Exchange { group, revision, deadline }
    }

    /// Makes the tensors the same on all ranks; the positions of those that were replaced here. Who
    /// cannot take part says so to the others.
    pub(super) async fn run(self, tensors: Result<&[Tensor]>) -> Result<Vec<usize>> {
        let forms = self.compare_forms(tensors.as_ref().copied().ok()).await?;
        let tensors = tensors?;
        // One that lies apart is compared and sent as it would be together.
        let packed: Vec<Tensor> = tensors.iter().map(together).collect();
        let own: Vec<u8> = packed.iter().flat_map(digest).collect();
        let room = vec![vec![0; own.len()]; forms.len()];
        let all = self.group.all_gather_vecs(room, own, self.time_left()).await?;
        let states = all.iter().zip(&forms).map(|(digests, form)| State {
            revision: form.revision,
            digests: digests.as_chunks().0.to_vec(),
        });
        let states: Vec<State> = states.collect();
        let sizes: Vec<usize> = packed.iter().map(Tensor::bytes).collect();
        let plan = Plan::new(&states, &sizes);
        if plan.parts.is_empty() {
            return Ok(Vec::new());
        }
        for parts in plan.parts.chunk_by(|one, next| one.tensor == next.tensor) {
            self.move_tensor(parts, &packed).await?;
        }
        let wrong = self.replace(&plan, &states, (tensors, &packed));
        self.agree_on(wrong).await?;
        Ok(self.differing(&plan, &states))
    }

    /// What all ranks have, if that has one form.
    async fn compare_forms(&self, tensors: Option<&[Tensor]>) -> Result<Vec<Form>> {
        let own = Form::of(tensors, self.revision);
        let room = vec![vec![0_u64; FORM_WORDS]; self.group.size() as usize];
        let given = own.words().to_vec();
        let all = self.group.all_gather_vecs(room, given, self.time_left()).await?;
        let forms: Vec<Form> = all.iter().map(|words| Form::from_words(words)).collect();
        if !own.takes_part {
            return Ok(forms);
        }
        if let Some(refused) = forms.iter().position(|form| !form.takes_part) {
            return invalid(&format!("rank {refused} refused what it was given; see its error"));
        }
        let differs = |form: &Form| (form.count, form.digest) != (own.count, own.digest);
        if let Some(other) = forms.iter().position(differs) {
            let (ours, theirs) = (own.count, forms[other].count);
            let rank = self.group.rank();
            return invalid(&match ours == theirs {
                true => format!(
                    "ranks disagree: rank {other} gives tensors of other dtypes or sizes than rank \
                     {rank}, or in another order; each gives {ours}"
                ),
                false => format!(
                    "ranks disagree: rank {other} gives {theirs} tensors, but rank {rank} {ours}"
                ),
            });
        }
        Ok(forms)
    }

    /// Brings the parts of one tensor where they are needed: a rank sends one at most to another.
    async fn move_tensor(&self, parts: &[Part], packed: &[Tensor]) -> Result<()> {
        let (rank, size) = (self.group.rank(), self.group.size() as usize);
        let nothing = bytes(Region::from_vec(Vec::new()));
        let (mut outputs, mut inputs) = (vec![nothing; size], Vec::new());
        inputs.clone_from(&outputs);
        for part in parts.iter().filter(|part| !part.bytes.is_empty()) {
            let region = packed[part.tensor].region();
            if part.from == rank {
                inputs[part.to as usize] = bytes(region.slice(part.bytes.clone()));
            } else if part.to == rank {
                outputs[part.from as usize] = bytes(region.slice(part.bytes.clone()));
            }
        }
        let options = AllToAllOptions { timeout: self.time_left(), ..Default::default() };
        let call = TypedCall::new(&tables::PROCESS_GROUP_ALLTOALL, options)
            .tensors(Role::Out, outputs)
            .tensors(Role::In, inputs);
        self.group.run_part(call).await?;
        Ok(())
    }

    /// Puts what has come where it belongs; the position of the first tensor that came otherwise
    /// than it was to.
    fn replace(
        &self,
        plan: &Plan,
        states: &[State],
        (tensors, packed): (&[Tensor], &[Tensor]),
    ) -> Option<usize> {
        let right = &states[*plan.holders.first()? as usize].digests;
        let differing = self.differing(plan, states);
        let wrong = differing.iter().copied().find(|&index| digest(&packed[index]) != right[index]);
        if wrong.is_none() {
            let apart = differing.into_iter().filter(|&index| !tensors[index].is_contiguous());
            apart.for_each(|index| tensors[index].copy_from(packed[index].region()));
        }
        wrong
    }

    /// The positions of the tensors that this rank has otherwise than those who are right.
    fn differing(&self, plan: &Plan, states: &[State]) -> Vec<usize> {
        let Some(holder) = plan.holders.first() else { return Vec::new() };
        let own = &states[self.group.rank() as usize].digests;
        let right = &states[*holder as usize].digests;
        let pairs = own.iter().zip(right).enumerate();
        pairs.filter(|(_, (ours, theirs))| ours != theirs).map(|(index, _)| index).collect()
    }

    /// Whether nobody found anything wrong: the same on all ranks.
    async fn agree_on(&self, wrong: Option<usize>) -> Result<()> {
        let own = wrong.map_or(0, |index| index as u64 + 1);
        let room = vec![vec![0_u64]; self.group.size() as usize];
        let verdicts = self.group.all_gather_vecs(room, vec![own], self.time_left()).await?;
        let mut found = verdicts.iter().flatten().enumerate();
        let Some((rank, verdict)) = found.find(|(_, verdict)| **verdict != 0) else {
            return Ok(());
        };
        invalid(&format!(
            "what came to rank {rank} as its tensor {} is not what others have said they have: \
             somebody changed that tensor while it was read, or memory has failed",
            verdict - 1
        ))
    }

    /// The limit of the next part of the call.
    fn time_left(&self) -> Option<Duration> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        // Zero would be no limit.
        Some(self.deadline.map_or(Duration::ZERO, |until| left(until).max(Duration::from_nanos(1))))
    }
}

impl Form {
    /// Of what a rank has; none: it cannot take part.
    fn of(tensors: Option<&[Tensor]>, revision: i64) -> Form {
        let mut hasher = blake3::Hasher::new();
        for tensor in tensors.unwrap_or_default() {
            hasher.update(tensor.dtype().name().as_bytes());
            hasher.update(&[0]);
            hasher.update(&(tensor.elements() as u64).to_le_bytes());
        }
        let found: Digest = hasher.finalize().into();
        let mut digest = [0; FORM_WORDS - DIGEST];
        for (word, bytes) in digest.iter_mut().zip(found.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let count = tensors.map_or(0, |tensors| tensors.len() as u64);
        Form { takes_part: tensors.is_some(), revision, count, digest }
    }

    fn words(self) -> [u64; FORM_WORDS] {
        let mut words = [0; FORM_WORDS];
        let takes_part = u64::from(self.takes_part);
        words[..DIGEST].copy_from_slice(&[takes_part, self.revision.cast_unsigned(), self.count]);
        words[DIGEST..].copy_from_slice(&self.digest);
        words
    }

    fn from_words(words: &[u64]) -> Form {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        Form {
            takes_part: word(0) != 0,
            revision: word(1).cast_signed(),
            count: word(2),
            digest: std::array::from_fn(|index| word(DIGEST + index)),
        }
    }
}

fn invalid<T>(why: &str) -> Result<T> {
    Err(Error::InvalidArgument { message: format!("{NAME}: {why}") })
}

/// The tensor, or a copy of it whose elements follow one another.
fn together(tensor: &Tensor) -> Tensor {
    if tensor.is_contiguous() { tensor.clone() } else { tensor.to_contiguous() }
}

fn bytes(region: Region) -> Tensor {
    let len = region.len();
    Tensor::contiguous(region, DType::U8, vec![len])
}

fn digest(tensor: &Tensor) -> Digest {
    tensor.region().read(|bytes| blake3::hash(bytes).into())
}
