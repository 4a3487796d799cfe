// Prefix reductions: each rank gets the reduction over the ranks before it. MPI 4.1, section 6.11.
//
// The overload of each method holds its facts, as in collectives.webidl.

partial interface ProcessGroup {
  /// Reduces a tensor over this rank and all ranks before it, in place: rank `r` gets the
  /// reduction over the ranks 0 to `r`, in this order (MPI's `Scan`; NumPy's `cumsum` over the
  /// ranks).
  ///
  /// Every rank passes the same dtype and number of elements. `AVG` divides by the number of ranks
  /// that were reduced, `r + 1`.
  [Collective=scan, Number=9, Variant=Scan, Input=None, Output=One, Sizes=Equal, Reduces,
   Throws=(UnsupportedDType, CollectiveMismatch)]
  Work scan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
            optional Duration? timeout = null);

  /// Reduces a tensor over all ranks before this one, in place: rank `r` gets the reduction over
  /// the ranks 0 to `r - 1`, in this order (MPI's `Exscan`). The tensor of rank 0, before which
  /// there is none, stays as it was.
  ///
  /// Every rank passes the same dtype and number of elements. `AVG` divides by the number of ranks
  /// that were reduced, `r`.
  [Collective=exscan, Number=10, Variant=Exscan, Input=None, Output=One, Sizes=Equal, Reduces,
   Throws=(UnsupportedDType, CollectiveMismatch)]
  Work exscan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
              optional Duration? timeout = null);
};

partial namespace distributed {
  /// Reduces a tensor over this rank and all ranks before it, in place.
  [Collective=scan]
  Work? scan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
             [Group, Positional] optional ProcessGroup? group = null,
             [AsyncOp] optional boolean async_op = false);

  /// Reduces a tensor over all ranks before this one, in place. That of rank 0 stays as it was.
  [Collective=exscan]
  Work? exscan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
               [Group, Positional] optional ProcessGroup? group = null,
               [AsyncOp] optional boolean async_op = false);
};
