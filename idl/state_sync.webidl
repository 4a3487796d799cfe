// State that ought to be the same on all ranks.

partial interface ProcessGroup {
  /// Makes `tensors` the same on all ranks: who has others than most ranks takes those. Returns the
  /// positions of the tensors that were replaced here, in ascending order. It is for parameters
  /// after a restart, or when memory or a processor may have failed, and costs hardly more than
  /// reading the tensors once where nothing differs.
  ///
  /// Ranks compare digests (BLAKE3). All tensors together are one state, which holds as a whole:
  /// the one that most ranks have, and of several as frequent that of the lowest rank. Only tensors
  /// that differ travel, a part of each from every rank that has the right ones, and what has come
  /// is compared with its digest.
  ///
  /// All ranks pass the same number of tensors, of the same dtypes and sizes, in the same order,
  /// which share no memory. Nobody changes them during the call: what is written meanwhile may be
  /// lost, or make the call fail on all ranks. After an error tensors may have elements of either
  /// state.
  ///
  /// - `revision`: only states of the highest revision count, however few have them: a number of
  ///   steps, so that newcomers, who are alike, do not outvote those who have trained.
  /// - `timeout`: limit of the call; none: the group's; 0: no limit.
  ///
  /// Pages of browsers cannot: they raise `Unsupported`.
  [Handwritten, Waits, Throws=(InvalidArgument, Unsupported)]
  sequence<unsigned long> sync_state(sequence<Tensor> tensors,
                                     optional long long revision = 0,
                                     optional Duration? timeout = null);
};
