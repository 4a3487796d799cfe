// Messages in both directions at once, and looking for messages before they are received.

partial interface ProcessGroup {
  /// Sends a tensor to a rank, and receives one from a rank, which may be the same or another one:
  /// MPI's `Sendrecv`. Both go on at once, so that ranks that exchange, in pairs or around a ring,
  /// never wait for each other in a circle.
  ///
  /// - `recv_tensor`: where what comes is put. It may be what is sent.
  /// - `send_tag`, `recv_tag`: those of the two messages, which other ranks may also send and
  ///   receive by `send` and `recv`.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work sendrecv([In] Tensor send_tensor, [Peer] Rank dst_rank, [Out] Tensor recv_tensor,
                [Peer] Rank src_rank, [Tag, Positional] optional unsigned long send_tag = 0,
                [Tag, Positional] optional unsigned long recv_tag = 0);
};

partial namespace distributed {
  /// Sends a tensor to `dst`, and receives one from `src`, which may be the same or another rank.
  /// Both go on at once.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work? sendrecv([In] Tensor send_tensor, [GlobalPeer] Rank dst, [Out] Tensor recv_tensor,
                 [GlobalPeer] Rank src, [Group, Positional] optional ProcessGroup? group = null,
                 [Tag, Positional] optional unsigned long send_tag = 0,
                 [Tag, Positional] optional unsigned long recv_tag = 0,
                 [AsyncOp] optional boolean async_op = false);
};

/// What is known of a message before it is received. In Python it is a `dict` of these.
[NotIn=python]
dictionary MessageInfo {
  /// The rank that sends it.
  required Rank source;
  /// Its tag.
  required unsigned long tag;
  /// The name of its element type: `f32`.
  required DOMString dtype;
  /// The bytes of all its elements.
  required unsigned long long bytes;
};

partial interface ProcessGroup {
  /// Waits until there is a message that a receive from `src_rank`, or from any rank, with this tag
  /// would take, and says what it is. The message stays where it is, until it is received. The
  /// backends `tcp` and `websocket` can do that.
  [Handwritten, Waits, Unordered, Throws=(InvalidArgument, Unsupported, RankFailed)]
  MessageInfo probe([Positional] optional Rank? src_rank = null,
                         [Positional] optional unsigned long tag = 0);

  /// As `probe`, without waiting for a message: nothing if there is none yet.
  [Handwritten, Waits, Unordered, Throws=(InvalidArgument, Unsupported, RankFailed)]
  MessageInfo? iprobe([Positional] optional Rank? src_rank = null,
                 [Positional] optional unsigned long tag = 0);
};
