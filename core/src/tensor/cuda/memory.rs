//! Memory of devices: copies of the host's, slices of cudarc's, and what an operation needs for a
//! moment. Knows no operation.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtrMut, DeviceRepr, result, sys};

#[cfg(feature = "nccl")]
use super::Stream;
use super::{Gpu, checked};
use crate::generated::error::{Error, Result};
use crate::tensor::{Element, OnDevice, Region, Tensor};

/// A copy of `bytes` on the device with this index, used in the order of its default stream.
///
/// # Errors
/// [`Error::BackendUnavailable`] without a driver; [`Error::InvalidArgument`] for an index that no
/// device has; [`Error::Network`] with the driver's words.
pub fn upload(bytes: &[u8], index: u32) -> Result<Region> {
    let region = allocate(bytes.len(), index)?;
    let gpu = Gpu::open(index)?;
    let _entered = gpu.enter()?;
    // SAFETY: so many bytes were allocated.
    let copied = unsafe { result::memcpy_htod_sync(region.address() as u64, bytes) };
    checked("cuMemcpyHtoD", copied)?;
    Ok(region)
}

/// So many bytes of the device with this index, whatever they are, used in the order of its default
/// stream.
///
/// # Errors
/// As [`upload`].
pub fn allocate(bytes: usize, index: u32) -> Result<Region> {
    let gpu = Gpu::open(index)?;
    let entered = gpu.enter()?;
    // No device has empty pieces of memory.
    // SAFETY: what was allocated is freed when its owner is dropped.
    let address = checked("cuMemAlloc", unsafe { result::malloc_sync(bytes.max(1)) })?;
    drop(entered);
    let owned = OwnedAllocation { gpu, address };
    let device = OnDevice { index, stream: 0 };
    // SAFETY: the region owns the memory, which nobody else knows.
    let region = unsafe {
        Region::from_device_parts(address as usize, bytes, device, Some(Box::new(owned)))
    };
    Ok(region)
}

/// A copy of a device's memory, as it is after what was issued on its stream.
///
/// # Errors
/// [`Error::InvalidArgument`] for memory of the host; [`Error::Network`] with the driver's words.
pub fn download(region: &Region) -> Result<Vec<u8>> {
    let Some(OnDevice { index, stream }) = region.device() else {
        let message = "download: this is memory of the host".to_owned();
        return Err(Error::InvalidArgument { message });
    };
    let gpu = Gpu::open(index)?;
    let _entered = gpu.enter()?;
    let mut bytes = vec![0_u8; region.len()];
    let stream = stream as sys::CUstream;
    // SAFETY: the region has so many bytes, and the copy is done before they are looked at.
    unsafe {
        let copied = result::memcpy_dtoh_async(&mut bytes, region.address() as u64, stream);
        let done = result::stream::synchronize(stream);
        checked("cuMemcpyDtoHAsync", copied)?;
        checked("cuStreamSynchronize", done)?;
    }
    Ok(bytes)
}

/// Waits until the device has done what was issued on the stream of this memory.
///
/// # Errors
/// [`Error::Network`] with the driver's words; those of a device that cannot be used.
pub(crate) fn synchronize(region: &Region) -> Result<()> {
    let Some(OnDevice { index, stream }) = region.device() else { return Ok(()) };
    let gpu = Gpu::open(index)?;
    let _entered = gpu.enter()?;
    // SAFETY: the stream is the owner's, who keeps it as long as the memory.
    let done = unsafe { result::stream::synchronize(stream as sys::CUstream) };
    checked("cuStreamSynchronize", done)
}

/// Copies `bytes` of the host, as many as the region has, to it. They are there when it returns.
///
/// # Errors
/// As [`synchronize`].
pub(crate) fn upload_into(region: &Region, bytes: &[u8]) -> Result<()> {
    let Some(OnDevice { index, .. }) = region.device() else { return Ok(()) };
    if bytes.is_empty() {
        return Ok(());
    }
    let gpu = Gpu::open(index)?;
    let _entered = gpu.enter()?;
    // SAFETY: the region has so many bytes; the default stream is that of the copy, which may be
    // on its way from the driver's own memory when the call returns.
    unsafe {
        checked("cuMemcpyHtoD", result::memcpy_htod_sync(region.address() as u64, bytes))?;
        checked("cuStreamSynchronize", result::stream::synchronize(std::ptr::null_mut()))
    }
}

/// Memory that was allocated here.
struct OwnedAllocation {
    gpu: Arc<Gpu>,
    address: sys::CUdeviceptr,
}

impl Drop for OwnedAllocation {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: it was allocated here and is freed once, when no region has it any more.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

impl<T: DeviceRepr + Send + Sync + 'static> From<CudaSlice<T>> for Region {
    /// The slice's memory, used in the order of the slice's stream.
    fn from(mut slice: CudaSlice<T>) -> Region {
        let stream = slice.stream().clone();
        // Operations may write it: the stream comes after whatever reads it on others, too.
        let (address, _) = slice.device_ptr_mut(&stream);
        let index = slice.context().ordinal() as u32;
        let device = OnDevice { index, stream: stream.cu_stream() as usize };
        let bytes = slice.num_bytes();
        // SAFETY: the region owns the slice, so that nobody else can reach its memory.
        unsafe { Region::from_device_parts(address as usize, bytes, device, Some(Box::new(slice))) }
    }
}

impl<T: Element + DeviceRepr> From<CudaSlice<T>> for Tensor {
    /// One dimension, on the slice's device and in the order of its stream.
    fn from(slice: CudaSlice<T>) -> Tensor {
        let elements = slice.len();
        Tensor::contiguous(Region::from(slice), T::DTYPE, vec![elements])
    }
}

impl Tensor {
    /// The slice that the tensor was made from, if nothing else holds its memory. An operation
    /// holds it until it is over on the device: wait for it with a timeout first, since a wait
    /// without one orders only the slice's stream.
    ///
    /// # Errors
    /// The tensor, as it was, if it was made from something else, is a part of the slice or a view
    /// with strides, or is shared.
    pub fn into_cuda_slice<T: Element + DeviceRepr>(self) -> Result<CudaSlice<T>, Tensor> {
        if self.dtype() != T::DTYPE || !self.is_contiguous() {
            return Err(self);
        }
        let mut slice = self.into_owner::<CudaSlice<T>>()?;
        let stream = slice.stream().clone();
        // What was written comes before whatever uses the slice now, on other streams too.
        drop(slice.device_ptr_mut(&stream));
        Ok(slice)
    }
}

/// Memory of a device for as long as something that is issued on a stream needs it.
#[cfg(feature = "nccl")]
pub(crate) struct Scratch {
    /// It is freed in the order of the stream, which must be there then.
    stream: Arc<Stream>,
    address: sys::CUdeviceptr,
}

#[cfg(feature = "nccl")]
impl Scratch {
    /// So many bytes for what is issued on `stream` from now on, until this is dropped.
    ///
    /// # Errors
    /// [`Error::Network`] with the driver's words.
    pub(crate) fn new(stream: &Arc<Stream>, bytes: usize) -> Result<Scratch> {
        let _entered = stream.gpu().enter()?;
        // SAFETY: it is used on this stream only, and freed in its order.
        let address = unsafe { result::malloc_async(stream.raw() as sys::CUstream, bytes.max(1)) };
        let address = checked("cuMemAllocAsync", address)?;
        Ok(Scratch { stream: stream.clone(), address })
    }

    /// Where it is on the device.
    pub(crate) fn address(&self) -> usize {
        self.address as usize
    }
}

#[cfg(feature = "nccl")]
impl Drop for Scratch {
    fn drop(&mut self) {
        let Ok(_entered) = self.stream.gpu().enter() else { return };
        // SAFETY: it was allocated here and is freed once, after what uses it in the same order.
        let _ = unsafe { result::free_async(self.address, self.stream.raw() as sys::CUstream) };
    }
}

/// Copies bytes from one place of a device to another, in the order of `stream`.
///
/// # Errors
/// [`Error::Network`] with the driver's words.
///
/// # Safety
/// Both places have so many bytes, which do not overlap, until what is issued here is over.
#[cfg(feature = "nccl")]
pub(crate) unsafe fn copy(
    gpu: &Arc<Gpu>,
    (from, into): (usize, usize),
    bytes: usize,
    stream: usize,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = gpu.enter()?;
    // SAFETY: by the contract of this function.
    let copied = unsafe {
        result::memcpy_dtod_async(into as u64, from as u64, bytes, stream as sys::CUstream)
    };
    checked("cuMemcpyDtoDAsync", copied)
}
