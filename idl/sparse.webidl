// Collectives of sparse tensors.

partial interface ProcessGroup {
  /// Sums sparse tensors of all ranks in coordinate form, as `torch.sparse_coo_tensor` has them;
  /// returns the indices and the values of the sum, as two new tensors. Ranks may have any numbers
  /// of entries, none too, in any order, and several at one place, which count together. All ranks
  /// get the same: each place once, in ascending order, as `coalesce()` of PyTorch gives them.
  ///
  /// - `indices`: whole numbers of the shape `[dimensions, entries]`, or `[entries]` for one
  ///   dimension. Those of the sum have 64 bits.
  /// - `values`: of the shape `[entries, ...]`: each entry is a number, or a dense block.
  /// - `reduce_op`: `SUM` or `AVG`, since what is not there is zero.
  /// - `timeout`: limit of the operation; the group's by default.
  [Handwritten, Waits, Throws=(InvalidArgument, UnsupportedDType)]
  sequence<Tensor> allreduce_sparse(Tensor indices, Tensor values,
                                    [Positional] optional ReduceOp reduce_op = "SUM",
                                    optional Duration? timeout = null);
};

partial namespace distributed {
  /// Sums sparse tensors of all ranks in coordinate form, as `all_reduce` of PyTorch does. Returns
  /// the indices and the values of the sum, as two new tensors; nothing on a rank that is not in
  /// the group. See `ProcessGroup.allreduce_sparse`.
  ///
  /// - `indices`: whole numbers of the shape `[dimensions, entries]`, or `[entries]`.
  /// - `values`: of the shape `[entries, ...]`.
  /// - `op`: `SUM` or `AVG`.
  /// - `timeout`: limit of the operation; the group's by default.
  [Waits, Throws=(InvalidArgument, UnsupportedDType)]
  sequence<Tensor>? all_reduce_sparse(Tensor indices, Tensor values,
                                      [Positional] optional ReduceOp op = "SUM",
                                      [Group, Positional] optional ProcessGroup? group = null,
                                      optional Duration? timeout = null);
};
