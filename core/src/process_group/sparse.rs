//! Sums of sparse tensors in coordinate form (COO), as `torch.sparse_coo_tensor` has them: entries
//! of every rank are exchanged, and put together on each. Knows no backend.

use std::cmp::Ordering;
use std::time::Duration;

use super::hook_arguments::without_tensors;
use super::{ProcessGroup, room_for};
use crate::blocking::block_on;
use crate::fnv::Fnv;
use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels;
use crate::tensor::{OwnedBuffers, Tensor, TensorRef};

const NAME: &str = "allreduce_sparse";
/// Words of what ranks tell one another first: whether it is all right, how many entries there are,
/// and of which [kinds](Kind) they are.
const HEADER_WORDS: usize = 6;
/// Which of them is the number of entries.
const COUNT: usize = 1;
/// What must be the same on all ranks, as words behind the number of entries.
#[derive(Clone, Copy)]
enum Kind {
    Dimensions,
    Dtype,
    Operator,
    /// As a hash.
    Shape,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Dimensions, Kind::Dtype, Kind::Operator, Kind::Shape];

    /// What a rank with this word has.
    fn describe(self, word: u64) -> String {
        match self {
            Kind::Dimensions => format!("indices of {word} dimensions"),
            Kind::Dtype => {
                let dtype = u8::try_from(word).ok().and_then(DType::from_code);
                format!("values of {}", dtype.map_or("an unknown dtype", DType::name))
            }
            Kind::Operator => (if word == 0 { "SUM" } else { "AVG" }).to_owned(),
            Kind::Shape => "entries of another shape".to_owned(),
        }
    }
}

/// How sparse tensors are reduced.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SparseOptions {
    /// [`ReduceOp::Sum`] or [`ReduceOp::Avg`]: what is not there is zero.
    pub reduce_op: ReduceOp,
    /// Limit of the operation; the group's by default, zero is none.
    pub timeout: Option<Duration>,
}

setters! {
    SparseOptions {
        reduce_op: ReduceOp => reduce_op,
        timeout: Duration => Some(timeout),
    }
}

impl ProcessGroup {
    /// Sums sparse tensors of all ranks, each given by its entries: `indices` of `[dimensions,
    /// entries]` (`[entries]` for one dimension) and `values` of `[entries, ...]`, where each entry
    /// is a number or a dense block. Ranks may have any numbers of entries, none too, in any order,
    /// and several at one place, which count together. All ranks get the same: each place once, in
    /// ascending order, as `coalesce()` of PyTorch gives them.
    ///
    /// ```
    /// # use polyrank::store::HashStore;
    /// # use polyrank::ProcessGroup;
    /// # use std::sync::Arc;
    /// # let store = Arc::new(HashStore::new());
    /// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
    /// let (rows, values) =
    ///     group.allreduce_sparse(vec![7i64, 2, 7], vec![1f32, 2., 3.], Default::default())?;
    /// assert_eq!(rows.into_vec::<i64>()?, [2, 7]);
    /// assert_eq!(values.into_vec::<f32>()?, [2., 4.]);
    /// # Ok::<(), polyrank::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for indices that are not integers or are below zero, for shapes
    /// that do not fit, for another operator, and where ranks disagree; all ranks get it.
    /// [`Error::UnsupportedDType`] as for an allreduce.
    pub fn allreduce_sparse(
        &self,
        indices: impl OwnedBuffers,
        values: impl OwnedBuffers,
        options: SparseOptions,
    ) -> Result<(Tensor, Tensor)> {
        block_on(self.allreduce_sparse_async(indices, values, options))
    }

    /// As [`ProcessGroup::allreduce_sparse`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::allreduce_sparse`].
    pub async fn allreduce_sparse_async(
        &self,
        indices: impl OwnedBuffers,
        values: impl OwnedBuffers,
        options: SparseOptions,
    ) -> Result<(Tensor, Tensor)> {
        self.require_members(NAME)?;
        let (indices, values) = (indices.into_tensors(), values.into_tensors());
        let hooks_see = |waiting| PreHookArgs {
            input_tensors: indices.iter().chain(&values).map(TensorRef::of).collect(),
            reduce_op: Some(options.reduce_op),
            ..without_tensors(-1, waiting)
        };
        let given = Entries::of(&indices, &values, options.reduce_op);
        let run = self.sum_up(given, options.timeout);
        self.composed_of("ALLREDUCE_SPARSE", hooks_see, run).await
    }

    /// The sum of what all ranks have, of which this one has `given`.
    async fn sum_up(
        &self,
        given: Result<Entries>,
        timeout: Option<Duration>,
    ) -> Result<(Tensor, Tensor)> {
        let own = given.as_ref().map_or([0; HEADER_WORDS], Entries::header);
        let headers = vec![vec![0; HEADER_WORDS]; self.size() as usize];
        let headers = self.all_gather_vecs(headers, own.to_vec(), timeout).await?;
        let ours = given?;
        agreed(&headers, self.rank(), &ours)?;
        let room = |each: usize| {
            let counts = headers.iter().map(|header| header[COUNT].saturating_mul(each as u64));
            counts.collect::<Vec<u64>>()
        };
        let indices = room(ours.dims).into_iter().map(room_for).collect::<Result<_>>()?;
        let indices = self.all_gather_vecs(indices, ours.indices.clone(), timeout).await?;
        let values = room(ours.block_bytes()).into_iter().map(room_for).collect::<Result<_>>()?;
        let values = self.all_gather_vecs(values, ours.values.clone(), timeout).await?;
        let (indices, mut values) = merged(&indices.concat(), &values.concat(), &ours);
        if matches!(ours.reduce_op, ReduceOp::Avg) {
            kernels::divide(ours.dtype, &mut values, self.size());
        }
        ours.tensors(&indices, &values)
    }
}

/// The entries of one rank.
struct Entries {
    /// Those of the first entry, then those of the second, and so on.
    indices: Vec<i64>,
    values: Vec<u8>,
    dtype: DType,
    reduce_op: ReduceOp,
    /// Dimensions that are sparse.
    dims: usize,
    /// Whether the indices came without a dimension for those.
    is_flat: bool,
    /// The shape of an entry.
    block: Vec<usize>,
    count: usize,
}

impl Entries {
    fn of(indices: &[Tensor], values: &[Tensor], reduce_op: ReduceOp) -> Result<Entries> {
        let ([indices], [values]) = (indices, values) else {
            return invalid("it takes one tensor of indices, and one of values");
        };
        if !matches!(reduce_op, ReduceOp::Sum | ReduceOp::Avg) {
            return invalid("sparse tensors are reduced by SUM or AVG, since the rest is zero");
        }
        let dtype = values.dtype();
        if !reduce_op.supports(dtype) {
            let (reduce_op, dtype) = (reduce_op.name().to_owned(), dtype.name().to_owned());
            return Err(Error::UnsupportedDType { reduce_op, dtype });
        }
        let (dims, count, is_flat) = match *indices.shape() {
            [count] => (1, count, true),
            [dims, count] if dims > 0 => (dims, count, false),
            ref shape => {
                return invalid(&format!(
                    "indices have the shape [dimensions, entries] or [entries], not {shape:?}"
                ));
            }
        };
        let block = match values.shape() {
            [entries, block @ ..] if *entries == count => block.to_vec(),
            shape => {
                return invalid(&format!(
                    "{count} entries have values of the shape [{count}, ...], not {shape:?}"
                ));
            }
        };
        let columns = integers(indices)?;
        if let Some(wrong) = columns.iter().find(|index| **index < 0) {
            return invalid(&match indices.dtype() {
                DType::U64 => format!("indices are below 2^63; one is {}", *wrong as u64),
                _ => format!("indices are not below zero; one is {wrong}"),
            });
        }
        let of_entry = |entry: usize| (0..dims).map(move |dim| dim * count + entry);
        let indices = (0..count).flat_map(of_entry).map(|place| columns[place]).collect();
        let values = TensorRef::of(values).read(<[u8]>::to_vec)?;
        Ok(Entries { indices, values, dtype, reduce_op, dims, is_flat, block, count })
    }

    /// What the others have to know; the first word says that it is all right.
    fn header(&self) -> [u64; HEADER_WORDS] {
        let mut hash = Fnv::new();
        self.block.iter().for_each(|length| hash.bytes((*length as u64).to_le_bytes()));
        let is_average = u64::from(matches!(self.reduce_op, ReduceOp::Avg));
        let (count, dims, dtype) = (self.count as u64, self.dims as u64, self.dtype as u64);
        [1, count, dims, dtype, is_average, hash.value()]
    }

    fn block_bytes(&self) -> usize {
        self.block.iter().product::<usize>() * self.dtype.size_bytes()
    }

    /// The tensors that the caller gets.
    fn tensors(&self, indices: &[i64], values: &[u8]) -> Result<(Tensor, Tensor)> {
        let count = indices.len() / self.dims;
        let of_dim = |dim: usize| (0..count).map(move |entry| entry * self.dims + dim);
        let columns = (0..self.dims).flat_map(of_dim).flat_map(|at| indices[at].to_le_bytes());
        let shape = if self.is_flat { vec![count] } else { vec![self.dims, count] };
        let indices = filled(DType::I64, &shape, &columns.collect::<Vec<u8>>())?;
        let shape = [&[count], self.block.as_slice()].concat();
        Ok((indices, filled(self.dtype, &shape, values)?))
    }
}

/// A new tensor with these bytes.
fn filled(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor> {
    let tensor = Tensor::zeros(dtype, shape)?;
    tensor.region().write(|memory| memory.copy_from_slice(bytes));
    Ok(tensor)
}

/// Whether all ranks have such entries as can be added up.
fn agreed(headers: &[Vec<u64>], rank: u32, like: &Entries) -> Result<()> {
    if let Some(refused) = headers.iter().position(|header| header[0] == 0) {
        return invalid(&format!("rank {refused} refused what it was given; see its error"));
    }
    let own = &headers[rank as usize];
    for (other, header) in headers.iter().enumerate() {
        let mut compared = Kind::ALL.into_iter().zip(COUNT + 1..);
        if let Some((kind, word)) = compared.find(|(_, word)| header[*word] != own[*word]) {
            let (theirs, ours) = (kind.describe(header[word]), kind.describe(own[word]));
            let ours = match kind {
                Kind::Shape => format!("those of {:?}", like.block),
                _ => ours,
            };
            return invalid(&format!(
                "ranks disagree: rank {other} has {theirs}, but rank {rank} has {ours}"
            ));
        }
    }
    Ok(())
}

/// The entries of all ranks, each place once, in ascending order. Those of one place are added in
/// the order of their ranks, so that all ranks get the same bits.
fn merged(indices: &[i64], values: &[u8], like: &Entries) -> (Vec<i64>, Vec<u8>) {
    let block = like.block_bytes();
    let of = |entry: usize| &indices[entry * like.dims..][..like.dims];
    let mut order: Vec<usize> = (0..indices.len() / like.dims).collect();
    order.sort_by(|one, other| of(*one).cmp(of(*other)));
    let (mut places, mut sums): (Vec<i64>, Vec<u8>) = (Vec::new(), Vec::new());
    let reduce = kernels::reducer(ReduceOp::Sum, like.dtype);
    for entry in order {
        let value = &values[entry * block..][..block];
        let is_known = places
            .len()
            .checked_sub(like.dims)
            .is_some_and(|last| places[last..].cmp(of(entry)) == Ordering::Equal);
        if is_known {
            let last = sums.len() - block;
            reduce(&mut sums[last..], value);
        } else {
            places.extend_from_slice(of(entry));
            sums.extend_from_slice(value);
        }
    }
    (places, sums)
}

/// The elements of a tensor of whole numbers.
fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    let tensor = TensorRef::of(tensor);
    let wide = |numbers: Vec<u64>| numbers.into_iter().map(|number| number as i64).collect();
    Ok(match tensor.dtype() {
        DType::I64 => tensor.to_vec::<i64>()?,
        DType::I32 => tensor.to_vec::<i32>()?.into_iter().map(i64::from).collect(),
        DType::I16 => tensor.to_vec::<i16>()?.into_iter().map(i64::from).collect(),
        DType::I8 => tensor.to_vec::<i8>()?.into_iter().map(i64::from).collect(),
        DType::U8 => tensor.to_vec::<u8>()?.into_iter().map(i64::from).collect(),
        DType::U16 => tensor.to_vec::<u16>()?.into_iter().map(i64::from).collect(),
        DType::U32 => tensor.to_vec::<u32>()?.into_iter().map(i64::from).collect(),
        // What is beyond the others is below zero then, which is refused.
        DType::U64 => wide(tensor.to_vec::<u64>()?),
        other => return invalid(&format!("indices are integers, not {}", other.name())),
    })
}

fn invalid<T>(what: &str) -> Result<T> {
    Err(Error::InvalidArgument { message: format!("{NAME}: {what}") })
}
