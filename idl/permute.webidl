// A permutation of what ranks have.

partial interface ProcessGroup {
  /// Ranks hand their tensors on: each pair of `pairs` is a source and the destination that gets
  /// its `input` as its `output`, as in JAX's `ppermute`. A rank is the source of one pair at most,
  /// and the destination of one at most; one that is the destination of none gets zeros.
  ///
  /// All ranks pass the same pairs, of ranks of the group, and tensors of one dtype and size. The
  /// output may be the input. The pairs of a shift around a ring are `[[0, 1], [1, 2], [2, 0]]`.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work ppermute([Out] Tensor output, [In] Tensor input, sequence<sequence<Rank>> pairs);
};

partial namespace distributed {
  /// Ranks hand their tensors on: each pair is a source and the destination that gets its `input`
  /// as its `output`, by their ranks in the group. Who is the destination of none gets zeros.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work? ppermute([Out] Tensor output, [In] Tensor input, sequence<sequence<Rank>> pairs,
                 [Group, Positional] optional ProcessGroup? group = null,
                 [AsyncOp] optional boolean async_op = false);
};
