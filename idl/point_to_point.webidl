// Messages from one rank to another.

partial interface ProcessGroup {
  /// Sends a tensor to a rank. Messages of one sender and one tag arrive in order.
  ///
  /// - `tensors`: a list with the one tensor to send.
  /// - `tag`: the receiver takes the message by a receive with the same tag.
  ///
  /// The receiver's tensor must have as many bytes and the same dtype; shapes may differ. A
  /// receiver that wants the bytes as they are, whatever their dtype, passes a `uint8` tensor (a
  /// `uint8` view of its own). The backends `mpi` and `nccl` do not compare dtypes, and `nccl` does
  /// not compare sizes.
  ///
  /// A rank may send to itself: up to 1.25 MiB that it has not received yet are held for it; what
  /// is beyond that waits for its receive. With `mpi` the library may hold nothing; with `nccl`,
  /// both are in one `batch_isend_irecv`.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work send([In] sequence<Tensor> tensors, [Peer] Rank dst_rank,
            [Tag, Positional] optional unsigned long tag = 0);

  /// Receives a tensor from a rank, into a list's one tensor, which must have the size and the
  /// dtype of the message. A `uint8` tensor receives the bytes of a message of any dtype.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work recv([Out] sequence<Tensor> tensors, [Peer] Rank src_rank,
            [Tag, Positional] optional unsigned long tag = 0);

  /// Receives a tensor from whichever rank sends first; `Work.source_rank` is that rank.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work recv_anysource([Out] sequence<Tensor> tensors,
                      [Tag, Positional] optional unsigned long tag = 0);
};
