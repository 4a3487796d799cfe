// State that ought to be the same on all ranks.

partial interface ProcessGroup {
  /// Makes `tensors` the same on all ranks: those that differ from what most ranks have become that,
  /// or, if several states are as frequent, that of the lowest rank among these. All tensors
  /// together are one state, of which only those travel that differ; a part of them comes from each
  /// rank that has the right ones, and is compared with its digest (BLAKE3) when it has come.
  ///
  /// All ranks pass tensors of the same dtypes and sizes, in the same order. Nobody changes them
  /// before the work is done. It is for parameters after a restart or an error of the hardware, and
  /// costs hardly more than hashing them where nothing differs. Not in pages of browsers.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch, Unsupported)]
  Work sync_state([InOut] sequence<Tensor> tensors);
};
