//! What Rust callers may pass as tensors: slices, vectors, lists of them, ndarray views.

#![allow(unsafe_code)]

use super::{Element, Region, Tensor};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};

/// Proof that the caller is this crate, which keeps the promises that lent memory needs.
#[derive(Clone, Copy)]
pub struct LendingProof(());

/// Tensors that an operation writes: one (`Vec<T>`, `[T]`, `[T; N]`, [`Tensor`]) or a list
/// (`[Vec<T>]`, `Vec<Vec<T>>`, `[TensorMut]`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor, nor a list of tensors",
    label = "not a tensor that can be written",
    note = "pass `&mut` of a slice, a `Vec`, an array or a `polyrank::Tensor` of elements, or of a \
            list of those; different kinds go together as `[TensorMut::from(&mut a), …]`"
)]
pub trait Buffers {
    /// Views of the memory, for as long as `self` stays borrowed.
    #[doc(hidden)]
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor>;
    /// The type and the bytes of the elements, if it is one contiguous tensor that was borrowed.
    #[doc(hidden)]
    fn flat_mut(&mut self, _: LendingProof) -> Option<(DType, &mut [u8])> {
        None
    }
    /// The tensor, if it is one that has its own memory.
    #[doc(hidden)]
    fn owned(&self, _: LendingProof) -> Option<&Tensor> {
        None
    }
}

/// Tensors that an operation only reads; the same types as [`Buffers`], borrowed shared.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor, nor a list of tensors",
    label = "not a tensor that can be read",
    note = "pass `&` of a slice, a `Vec`, an array or a `polyrank::Tensor` of elements, or of a \
            list of those"
)]
pub trait ConstBuffers {
    /// Views of the memory, for as long as `self` stays borrowed.
    #[doc(hidden)]
    fn lend(&self, _: LendingProof) -> Vec<Tensor>;
    /// The type and the bytes of the elements, if it is one contiguous tensor that was borrowed.
    #[doc(hidden)]
    fn flat(&self, _: LendingProof) -> Option<(DType, &[u8])> {
        None
    }
    /// The tensor, if it is one that has its own memory.
    #[doc(hidden)]
    fn owned_const(&self, _: LendingProof) -> Option<&Tensor> {
        None
    }
}

/// Tensors that an operation takes and hands back: `Vec<T>`, a list of them, or [`Tensor`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed over to an operation",
    label = "not an owned tensor",
    note = "the `_async` calls own their tensors until the work is done: pass a `Vec` or a \
            `polyrank::Tensor` by value, or borrow inside `pg.scope(|s| …)`"
)]
pub trait OwnedBuffers {
    /// The tensors, which own their memory.
    fn into_tensors(self) -> Vec<Tensor>;
}

/// One tensor of a list whose items are of different kinds.
pub struct TensorMut<'a> {
    tensor: Tensor,
    _borrow: std::marker::PhantomData<&'a mut ()>,
}

/// Views of `buffers`. The caller must not return to the owner of the memory before every region
/// of the views is dropped.
pub(crate) fn lend_mut<B: Buffers + ?Sized>(buffers: &mut B) -> Vec<Tensor> {
    buffers.lend_mut(LendingProof(()))
}

/// Views of `buffers`, only to be read. As [`lend_mut`].
pub(crate) fn lend<B: ConstBuffers + ?Sized>(buffers: &B) -> Vec<Tensor> {
    buffers.lend(LendingProof(()))
}

/// One contiguous tensor that an operation reads and writes.
pub(crate) enum InPlace<'a> {
    /// The type and bytes of what was borrowed.
    Borrowed(DType, &'a mut [u8]),
    /// One that has its own memory, of the host.
    Owned(&'a Tensor),
}

/// One contiguous tensor that an operation only reads, as [`InPlace`].
pub(crate) enum PlainInput<'a> {
    Borrowed(DType, &'a [u8]),
    Owned(&'a Tensor),
}

/// Two contiguous tensors, of which an operation writes one and reads the other, as [`InPlace`].
pub(crate) enum Apart<'a> {
    Borrowed((DType, &'a mut [u8]), (DType, &'a [u8])),
    /// They share no memory.
    Owned(&'a Tensor, &'a Tensor),
}

/// What `buffers` are, if they are one contiguous tensor that may be written.
pub(crate) fn in_place<B: Buffers + ?Sized>(buffers: &mut B) -> Option<InPlace<'_>> {
    let proof = LendingProof(());
    if buffers.owned(proof).is_some() {
        return buffers.owned(proof).filter(|it| is_plain_output(it)).map(InPlace::Owned);
    }
    buffers.flat_mut(proof).map(|(dtype, bytes)| InPlace::Borrowed(dtype, bytes))
}

/// What `buffers` are, if they are one contiguous tensor.
pub(crate) fn given<B: ConstBuffers + ?Sized>(buffers: &B) -> Option<PlainInput<'_>> {
    let proof = LendingProof(());
    match buffers.owned_const(proof) {
        Some(tensor) => is_plain(tensor).then_some(PlainInput::Owned(tensor)),
        None => buffers.flat(proof).map(|(dtype, bytes)| PlainInput::Borrowed(dtype, bytes)),
    }
}

/// What `output` and `input` are, if each is one contiguous tensor, and both of one kind.
pub(crate) fn apart<'a, O: Buffers + ?Sized, I: ConstBuffers + ?Sized>(
    output: &'a mut O,
    input: &'a I,
) -> Option<Apart<'a>> {
    match (in_place(output)?, given(input)?) {
        (InPlace::Borrowed(to, output), PlainInput::Borrowed(from, input)) => {
            Some(Apart::Borrowed((to, output), (from, input)))
        }
        (InPlace::Owned(output), PlainInput::Owned(input)) => {
            let are_apart = !output.region().overlaps(input.region());
            are_apart.then_some(Apart::Owned(output, input))
        }
        _ => None,
    }
}

fn is_plain(tensor: &Tensor) -> bool {
    tensor.is_contiguous() && tensor.region().device().is_none()
}

fn is_plain_output(tensor: &Tensor) -> bool {
    is_plain(tensor) && !tensor.is_read_only()
}

/// A region of the caller's memory. As [`lend_mut`].
pub(crate) fn lend_bytes_mut(bytes: &mut [u8]) -> Region {
    // SAFETY: as in `view_mut`.
    unsafe { Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len(), None) }
}

/// As [`lend_bytes_mut`], of memory that is only read.
pub(crate) fn lend_bytes(bytes: &[u8]) -> Region {
    // SAFETY: as in `view`.
    unsafe { Region::from_raw_parts(bytes.as_ptr().cast_mut(), bytes.len(), None) }
}

fn bytes_of<T: Element>(elements: &[T]) -> (DType, &[u8]) {
    let bytes = std::mem::size_of_val(elements);
    // SAFETY: elements are plain data without padding, borrowed for as long as the result.
    (T::DTYPE, unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), bytes) })
}

fn bytes_of_mut<T: Element>(elements: &mut [T]) -> (DType, &mut [u8]) {
    let bytes = std::mem::size_of_val(elements);
    // SAFETY: as in `bytes_of`; what kernels write there are elements of this type (bool: only 0
    // and 1).
    (T::DTYPE, unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), bytes) })
}

fn view<T: Element>(elements: &[T]) -> Tensor {
    let bytes = std::mem::size_of_val(elements);
    // SAFETY: the memory is borrowed as long as the `LendingProof` call's receiver, and this crate,
    // the only maker of `LendingProof`, drops all regions before that borrow ends. A shared borrow
    // is lent as input only, which is never written.
    let region =
        unsafe { Region::from_raw_parts(elements.as_ptr().cast_mut().cast(), bytes, None) };
    Tensor::contiguous(region, T::DTYPE, vec![elements.len()])
}

fn view_mut<T: Element>(elements: &mut [T]) -> Tensor {
    let bytes = std::mem::size_of_val(elements);
    // SAFETY: as in `view`, from an exclusive borrow.
    let region = unsafe { Region::from_raw_parts(elements.as_mut_ptr().cast(), bytes, None) };
    Tensor::contiguous(region, T::DTYPE, vec![elements.len()])
}

impl<T: Element> Buffers for [T] {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        vec![view_mut(self)]
    }

    fn flat_mut(&mut self, _: LendingProof) -> Option<(DType, &mut [u8])> {
        Some(bytes_of_mut(self))
    }
}

impl<T: Element> ConstBuffers for [T] {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        vec![view(self)]
    }

    fn flat(&self, _: LendingProof) -> Option<(DType, &[u8])> {
        Some(bytes_of(self))
    }
}

impl<T: Element, const N: usize> Buffers for [T; N] {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        vec![view_mut(self)]
    }

    fn flat_mut(&mut self, _: LendingProof) -> Option<(DType, &mut [u8])> {
        Some(bytes_of_mut(self))
    }
}

impl<T: Element, const N: usize> ConstBuffers for [T; N] {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        vec![view(self)]
    }

    fn flat(&self, _: LendingProof) -> Option<(DType, &[u8])> {
        Some(bytes_of(self))
    }
}

impl<T: Element> Buffers for Vec<T> {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        vec![view_mut(self)]
    }

    fn flat_mut(&mut self, _: LendingProof) -> Option<(DType, &mut [u8])> {
        Some(bytes_of_mut(self))
    }
}

impl<T: Element> ConstBuffers for Vec<T> {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        vec![view(self)]
    }

    fn flat(&self, _: LendingProof) -> Option<(DType, &[u8])> {
        Some(bytes_of(self))
    }
}

impl<T: Element> Buffers for [Vec<T>] {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        self.iter_mut().map(|item| view_mut(item)).collect()
    }
}

impl<T: Element> ConstBuffers for [Vec<T>] {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        self.iter().map(|item| view(item)).collect()
    }
}

impl<T: Element> Buffers for Vec<Vec<T>> {
    fn lend_mut(&mut self, lending: LendingProof) -> Vec<Tensor> {
        self.as_mut_slice().lend_mut(lending)
    }
}

impl<T: Element> ConstBuffers for Vec<Vec<T>> {
    fn lend(&self, lending: LendingProof) -> Vec<Tensor> {
        self.as_slice().lend(lending)
    }
}

impl<T: Element, const N: usize> Buffers for [Vec<T>; N] {
    fn lend_mut(&mut self, lending: LendingProof) -> Vec<Tensor> {
        self.as_mut_slice().lend_mut(lending)
    }
}

impl<T: Element, const N: usize> ConstBuffers for [Vec<T>; N] {
    fn lend(&self, lending: LendingProof) -> Vec<Tensor> {
        self.as_slice().lend(lending)
    }
}

impl Buffers for Tensor {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        vec![self.clone()]
    }

    fn owned(&self, _: LendingProof) -> Option<&Tensor> {
        Some(self)
    }
}

impl ConstBuffers for Tensor {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        vec![self.clone()]
    }

    fn owned_const(&self, _: LendingProof) -> Option<&Tensor> {
        Some(self)
    }
}

impl Buffers for [Tensor] {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        self.to_vec()
    }
}

impl ConstBuffers for [Tensor] {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        self.to_vec()
    }
}

impl Buffers for Vec<Tensor> {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        self.clone()
    }
}

impl ConstBuffers for Vec<Tensor> {
    fn lend(&self, _: LendingProof) -> Vec<Tensor> {
        self.clone()
    }
}

impl<'a, B: Buffers> From<&'a mut B> for TensorMut<'a> {
    fn from(buffers: &'a mut B) -> TensorMut<'a> {
        let mut tensors = lend_mut(buffers);
        // A list stands for its first tensor; `TensorMut` is made of single tensors.
        let tensor = if tensors.is_empty() {
            Tensor::contiguous(Region::zeroed(0), crate::generated::dtype::DType::U8, vec![0])
        } else {
            tensors.swap_remove(0)
        };
        TensorMut { tensor, _borrow: std::marker::PhantomData }
    }
}

impl Buffers for [TensorMut<'_>] {
    fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
        self.iter().map(|item| item.tensor.clone()).collect()
    }
}

impl<const N: usize> Buffers for [TensorMut<'_>; N] {
    fn lend_mut(&mut self, lending: LendingProof) -> Vec<Tensor> {
        self.as_mut_slice().lend_mut(lending)
    }
}

impl<T: Element> OwnedBuffers for Vec<T> {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![Tensor::from(self)]
    }
}

impl<T: Element> OwnedBuffers for Vec<Vec<T>> {
    fn into_tensors(self) -> Vec<Tensor> {
        self.into_iter().map(Tensor::from).collect()
    }
}

impl OwnedBuffers for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl OwnedBuffers for Vec<Tensor> {
    fn into_tensors(self) -> Vec<Tensor> {
        self
    }
}

impl<T: Element> From<Vec<T>> for Tensor {
    fn from(elements: Vec<T>) -> Tensor {
        let length = elements.len();
        let region = Region::from_owner(elements, |elements| {
            (elements.as_mut_ptr().cast(), std::mem::size_of_val(elements.as_slice()))
        });
        Tensor::contiguous(region, T::DTYPE, vec![length])
    }
}

impl Tensor {
    /// The elements, without a copy if the tensor was made from a `Vec<T>` and nothing else holds
    /// its memory.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if the elements are not of type `T`; [`Error::InvalidArgument`] if
    /// they are on a device.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            let (is, wanted) = (self.dtype().name(), T::DTYPE.name());
            let message = format!("the tensor's elements are {is}, not {wanted}");
            return Err(Error::InvalidType { message });
        }
        if self.region().device().is_some() {
            let message = format!("the tensor is on {}; copy it to the host first", self.device());
            return Err(Error::InvalidArgument { message });
        }
        let tensor = if self.is_contiguous() { self } else { self.to_contiguous() };
        let elements = tensor.elements();
        match tensor.into_region().into_owner::<Vec<T>>() {
            Ok(vec) => Ok(vec),
            Err(region) => Ok(copy_out(&region, elements)),
        }
    }
}

fn copy_out<T: Element>(region: &Region, elements: usize) -> Vec<T> {
    let mut vec = Vec::<T>::with_capacity(elements);
    region.read(|bytes| {
        assert_eq!(bytes.len(), elements * size_of::<T>());
        // SAFETY: the vector has room for these bytes, every element type is plain data, and the
        // bytes are elements of this type (bool: only 0 and 1 are ever written by kernels).
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), vec.as_mut_ptr().cast(), bytes.len());
            vec.set_len(elements);
        }
    });
    vec
}

#[cfg(feature = "ndarray")]
mod ndarray_views {
    use ndarray::{ArrayBase, Data, DataMut, Dimension};

    use super::{Buffers, ConstBuffers, Element, LendingProof, Region, Tensor};

    impl<T: Element, S: DataMut<Elem = T>, D: Dimension> Buffers for ArrayBase<S, D> {
        fn lend_mut(&mut self, _: LendingProof) -> Vec<Tensor> {
            let (shape, strides) = (self.shape().to_vec(), self.strides().to_vec());
            vec![strided(self.as_mut_ptr(), shape, strides)]
        }
    }

    impl<T: Element, S: Data<Elem = T>, D: Dimension> ConstBuffers for ArrayBase<S, D> {
        fn lend(&self, _: LendingProof) -> Vec<Tensor> {
            let (shape, strides) = (self.shape().to_vec(), self.strides().to_vec());
            vec![strided(self.as_ptr().cast_mut(), shape, strides)]
        }
    }

    fn strided<T: Element>(first: *mut T, shape: Vec<usize>, strides: Vec<isize>) -> Tensor {
        let (below, span) = crate::tensor::strided::extent(&shape, &strides);
        let bytes = span * size_of::<T>();
        // SAFETY: the span from the lowest to the highest element lies inside the array's
        // allocation; the borrow is as in `view`. Elements between those of the view are not
        // touched by `gather` and `scatter`.
        let region = unsafe { Region::from_raw_parts(first.sub(below).cast(), bytes, None) };
        Tensor::strided(region, T::DTYPE, shape, strides, below)
    }
}
