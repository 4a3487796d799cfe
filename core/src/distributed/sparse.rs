//! Sums of sparse tensors over the default group. Knows no backend.

use super::default_group;
use crate::generated::error::Result;
use crate::process_group::SparseOptions;
use crate::tensor::{OwnedBuffers, Tensor};

/// Sums sparse tensors of all ranks of the default group, each given by its entries.
///
/// # Errors
/// As [`ProcessGroup::allreduce_sparse`](crate::ProcessGroup::allreduce_sparse).
pub fn all_reduce_sparse(
    indices: impl OwnedBuffers,
    values: impl OwnedBuffers,
    options: SparseOptions,
) -> Result<(Tensor, Tensor)> {
    default_group()?.allreduce_sparse(indices, values, options)
}

/// As [`all_reduce_sparse`], without blocking.
///
/// # Errors
/// As [`all_reduce_sparse`].
pub async fn all_reduce_sparse_async(
    indices: impl OwnedBuffers,
    values: impl OwnedBuffers,
    options: SparseOptions,
) -> Result<(Tensor, Tensor)> {
    default_group()?.allreduce_sparse_async(indices, values, options).await
}
