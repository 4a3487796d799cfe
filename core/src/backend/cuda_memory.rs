//! Whether memory of CUDA devices may be given to something. Knows no library.

/// Whether a library, or a backend, reads and writes memory of CUDA devices itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaMemory {
    /// It does.
    Taken,
    /// It does not: tensors of devices go by way of the host.
    NotTaken,
    /// It has no way to say so, or has it later: an MPI library before it is initialised.
    Unknown,
}

impl CudaMemory {
    /// What it is for something that has answered.
    pub(crate) fn of(is_taken: bool) -> CudaMemory {
        if is_taken { CudaMemory::Taken } else { CudaMemory::NotTaken }
    }
}
