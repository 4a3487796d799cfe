//! The tensors of one call: as the language describes them, and as the core has them. Knows nothing
//! of methods.

use super::layout::Layout;
use super::pool;
use crate::calls::Value;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::sorted::sort;
use crate::tensor::{Region, Tensor};

/// A tensor in a language's memory, or in memory of the core that the language has.
#[derive(Clone, Debug)]
pub struct TensorDescription {
    /// The element type.
    pub dtype: DType,
    /// Length of each dimension; none: one dimension with all elements.
    pub shape: Option<Vec<usize>>,
    /// Elements from one index to the next of each dimension; none: contiguous in C order.
    pub strides: Option<Vec<isize>>,
    /// The element at which index (0, …, 0) lies.
    pub offset: usize,
    /// Whether operations must not write it.
    pub read_only: bool,
    /// The memory.
    pub memory: Memory,
}

/// Where the elements of a tensor are.
#[derive(Clone, Debug)]
pub enum Memory {
    /// In memory of the language, which operations must not touch: they work on a copy.
    Foreign {
        /// Its bytes.
        bytes: usize,
        /// Which piece of the language's memory it lies in, and at which byte of that; by this it
        /// is told which tensors share memory.
        place: (usize, usize),
    },
    /// In memory of the core.
    Own(Region),
}

impl Memory {
    /// What is said of a value where the bytes of a tensor are expected.
    pub fn not_bytes() -> Error {
        Error::InvalidType { message: "expected a tensor as a Uint8Array of its bytes".to_owned() }
    }
}

/// The tensors of one call.
#[derive(Debug, Default)]
pub struct Tensors {
    pub(super) all: Vec<StagedTensor>,
    /// Why there is no memory for the copies, which the tensors have none of then.
    pub(super) lack: Option<Error>,
}

/// One tensor of a call.
#[derive(Debug)]
pub(super) struct StagedTensor {
    /// What the core works on.
    pub(super) tensor: Tensor,
    /// Where the elements lie in the language's memory; none if that is the core's.
    pub(super) foreign: Option<Foreign>,
    /// Whether the operation works, or has worked, in the language's memory: nothing is copied.
    pub(super) is_lent: bool,
}

impl StagedTensor {
    /// Bytes that are copied to or from the language's memory, if it is read or written.
    pub(super) fn copied_bytes(&self) -> usize {
        let foreign = self.foreign.as_ref().filter(|_| !self.is_lent);
        foreign.map_or(0, |foreign| foreign.layout.bytes())
    }
}

/// The language's side of a tensor.
#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) bytes: usize,
    /// As in [`Memory::Foreign`].
    pub(super) place: (usize, usize),
    pub(super) layout: Layout,
}

impl Foreign {
    /// Whether the tensor is all of its memory, without gaps.
    pub(super) fn is_whole(&self) -> bool {
        self.layout.is_flat_from_start() && self.layout.bytes() == self.bytes
    }
}

impl Tensors {
    /// The tensors of these descriptions, with memory for the copies of those that need one. If
    /// there is none, [`StagedOperation::prepare`](super::StagedOperation::prepare) fails: that is
    /// no mistake of the call, and the other ranks count on it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a tensor that reaches beyond its memory.
    pub fn new(described: Vec<TensorDescription>) -> Result<Tensors> {
        let mut lack = None;
        let regions = regions(&described).unwrap_or_else(|error| {
            lack = Some(error);
            vec![None; described.len()]
        });
        let mut all: Vec<StagedTensor> = Vec::with_capacity(described.len());
        for (it, region) in described.into_iter().zip(regions) {
            let mut next = StagedTensor::new(it, region, &mut lack)?;
            next.be_the_same_as_one_of(&all);
            all.push(next);
        }
        Ok(Tensors { all, lack })
    }

    /// The value of the tensor at this position.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none.
    pub fn value(&self, position: usize) -> Result<Value> {
        let found = self.all.get(position).map(|it| Value::Tensor(it.tensor.clone()));
        found.ok_or_else(|| invalid(format!("the call has no tensor {position}")))
    }

    /// Whether any of them lies in the language's own memory.
    pub(super) fn has_foreign(&self) -> bool {
        self.all.iter().any(|it| it.foreign.is_some())
    }

    /// The position of the tensor that has this memory.
    pub(super) fn position(&self, tensor: &Tensor) -> Option<usize> {
        self.all.iter().position(|it| it.tensor.region().is(tensor.region()))
    }
}

impl StagedTensor {
    /// Without elements, and with what is lacking, if there is no memory for a copy.
    fn new(
        described: TensorDescription,
        shared: Option<Region>,
        lack: &mut Option<Error>,
    ) -> Result<StagedTensor> {
        let TensorDescription { dtype, shape, strides, offset, read_only, memory } = described;
        let bytes = match &memory {
            Memory::Foreign { bytes, .. } => *bytes,
            Memory::Own(region) => region.len(),
        };
        let size = dtype.size_bytes();
        let layout = Layout::new(size, bytes, shape, strides, offset).map_err(|what| {
            invalid(format!("a tensor of {} in {bytes} bytes of memory: {what}", dtype.name()))
        })?;
        let tensor = match &memory {
            Memory::Own(region) => over(region, dtype, &layout),
            Memory::Foreign { .. } => {
                let region = match (shared, &lack) {
                    (Some(region), _) => Some(region),
                    (None, Some(_)) => None,
                    (None, None) => memory_of(layout.bytes()).map_err(|why| *lack = Some(why)).ok(),
                };
                match region {
                    Some(region) => Tensor::contiguous(region, dtype, layout.shape().to_vec()),
                    None => Tensor::contiguous(Region::zeroed(0), dtype, vec![0]),
                }
            }
        };
        let tensor = if read_only { tensor.read_only() } else { tensor };
        let foreign = match memory {
            Memory::Own(_) => None,
            Memory::Foreign { bytes, place } => Some(Foreign { bytes, place, layout }),
        };
        Ok(StagedTensor { tensor, foreign, is_lent: false })
    }

    /// Works on the copy that one of `others` has, if that is the same tensor, with strides: what
    /// is flat shares memory by `regions`.
    fn be_the_same_as_one_of(&mut self, others: &[StagedTensor]) {
        let Some(own) = self.foreign.as_ref().filter(|own| own.layout.strides().is_some()) else {
            return;
        };
        let alike = |other: &&StagedTensor| {
            let foreign = other.foreign.as_ref();
            foreign.is_some_and(|it| it.place == own.place && it.layout == own.layout)
                && other.tensor.dtype() == self.tensor.dtype()
                && other.tensor.is_read_only() == self.tensor.is_read_only()
        };
        if let Some(same) = others.iter().find(alike) {
            self.tensor = same.tensor.clone();
        }
    }
}

/// The tensor of a flat array of `bytes`, with memory for its copy.
pub(super) fn flat(dtype: DType, bytes: usize) -> StagedTensor {
    let elements = bytes / dtype.size_bytes();
    let tensor = Tensor::contiguous(Region::zeroed(bytes), dtype, vec![elements]);
    let layout = Layout::flat(dtype.size_bytes(), elements);
    let foreign = Some(Foreign { bytes, place: (0, 0), layout });
    StagedTensor { tensor, foreign, is_lent: false }
}

/// A view of the core's own memory.
fn over(region: &Region, dtype: DType, layout: &Layout) -> Tensor {
    let size = dtype.size_bytes();
    let (first, last) = layout.extent();
    let region = region.slice(first * size..last * size);
    let shape = layout.shape().to_vec();
    match layout.strides() {
        None => Tensor::contiguous(region, dtype, shape),
        Some(strides) => {
            let origin = layout.origin() - first;
            Tensor::strided(region, dtype, shape, strides.to_vec(), origin)
        }
    }
}

/// Memory for those flat tensors of the language that share memory with others: their copies share
/// it in the same way, so that the same calls are right and wrong as in every language.
fn regions(described: &[TensorDescription]) -> Result<Vec<Option<Region>>> {
    let mut regions = vec![None; described.len()];
    if described.len() < 2 {
        return Ok(regions);
    }
    let mut spans: Vec<(usize, usize, usize, usize)> = Vec::with_capacity(described.len());
    for (index, it) in described.iter().enumerate() {
        if let Memory::Foreign { bytes, place: (piece, start) } = it.memory
            && bytes > 0
            && it.strides.is_none()
            && it.offset == 0
            && it.fills(bytes)
        {
            spans.push((piece, start, start.saturating_add(bytes), index));
        }
    }
    sort(&mut spans);
    let mut from = 0;
    while let Some(&(piece, start, mut end, _)) = spans.get(from) {
        let mut until = from + 1;
        while let Some(&(other, next, its_end, _)) = spans.get(until)
            && other == piece
            && next < end
        {
            end = end.max(its_end);
            until += 1;
        }
        if until - from > 1 {
            let all = memory_of(end - start)?;
            for &(_, first, last, index) in &spans[from..until] {
                regions[index] = Some(all.slice(first - start..last - start));
            }
        }
        from = until;
    }
    Ok(regions)
}

/// Memory for copies of so many bytes.
fn memory_of(bytes: usize) -> Result<Region> {
    let region = pool::region(bytes);
    region.ok_or_else(|| invalid(format!("not enough memory for a copy of {bytes} bytes")))
}

impl TensorDescription {
    /// Whether it has all of its memory, without gaps.
    fn fills(&self, bytes: usize) -> bool {
        self.shape.as_ref().is_none_or(|shape| {
            let elements = shape.iter().try_fold(1usize, |all, &length| all.checked_mul(length));
            elements.and_then(|it| it.checked_mul(self.dtype.size_bytes())) == Some(bytes)
        })
    }
}

fn invalid(message: String) -> Error {
    Error::InvalidArgument { message }
}
