// Collectives and messages over the default group, as in torch.distributed.

partial namespace distributed {
  /// All ranks get the tensor of `src`, in place of theirs. Same dtype and size on every rank.
  [Collective=broadcast]
  Work? broadcast([InOut] Tensor tensor, [GlobalRoot, Positional] optional Rank? src = null,
                  [Group, Positional] optional ProcessGroup? group = null,
                  [AsyncOp] optional boolean async_op = false,
                  [Root] optional Rank? group_src = null);

  /// Reduces a tensor over all ranks, in place; all ranks get the same bits.
  ///
  /// - `compress`: in which form elements travel, as in `AllreduceOptions`.
  [Collective=allreduce]
  Work? all_reduce([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
                   [Group, Positional] optional ProcessGroup? group = null,
                   [AsyncOp] optional boolean async_op = false,
                   [Compression] optional DOMString? compress = null);

  /// Reduces several tensors over all ranks, in place, each for itself, in one operation.
  ///
  /// - `compress`: in which form elements travel, as in `AllreduceOptions`.
  [Collective=allreduce, Coalesced]
  Work? all_reduce_coalesced([InOut] sequence<Tensor> tensors,
                             [Positional] optional ReduceOp op = "SUM",
                             [Group, Positional] optional ProcessGroup? group = null,
                             [AsyncOp] optional boolean async_op = false,
                             [Compression] optional DOMString? compress = null);

  /// Reduces a tensor over all ranks; `dst` gets the result in place of its tensor.
  [Collective=reduce]
  Work? reduce([InOut] Tensor tensor, [GlobalRoot, Positional] optional Rank? dst = null,
               [Positional] optional ReduceOp op = "SUM",
               [Group, Positional] optional ProcessGroup? group = null,
               [AsyncOp] optional boolean async_op = false,
               [Root] optional Rank? group_dst = null);

  /// All ranks get every rank's tensor: `tensor_list[i]` is rank `i`'s, and has its size.
  ///
  /// - `compress`: in which form elements travel, as in `AllgatherOptions`.
  [Collective=allgather]
  Work? all_gather([Out] sequence<Tensor> tensor_list, [In] Tensor tensor,
                   [Group, Positional] optional ProcessGroup? group = null,
                   [AsyncOp] optional boolean async_op = false,
                   [Compression] optional DOMString? compress = null);

  /// All ranks get every rank's tensors: `output_tensor_lists[r][i]` is input `i` of rank `r`.
  /// In Rust, where lists are flat, the outputs of rank 0 come first, then those of rank 1.
  [Collective=allgather, Coalesced]
  Work? all_gather_coalesced([Out] sequence<sequence<Tensor>> output_tensor_lists,
                             [In] sequence<Tensor> input_tensor_list,
                             [Group, Positional] optional ProcessGroup? group = null,
                             [AsyncOp] optional boolean async_op = false);

  /// All ranks get every rank's tensor in one output: one after the other along dimension 0, or
  /// stacked.
  ///
  /// - `compress`: in which form elements travel, as in `AllgatherOptions`.
  [Collective=allgather, Alias=all_gather_single]
  Work? all_gather_into_tensor([Out, Flat] Tensor output_tensor, [In] Tensor input_tensor,
                               [Group, Positional] optional ProcessGroup? group = null,
                               [AsyncOp] optional boolean async_op = false,
                               [Compression] optional DOMString? compress = null);

  /// `dst` gets every rank's tensor, in `gather_list`, which only it passes. Rank 0 unless given.
  [Collective=gather]
  Work? gather([In] Tensor tensor,
               [Out, Positional] optional sequence<Tensor>? gather_list = null,
               [GlobalRoot, Positional] optional Rank? dst = null,
               [Group, Positional] optional ProcessGroup? group = null,
               [AsyncOp] optional boolean async_op = false,
               [Root] optional Rank? group_dst = null);

  /// Each rank gets its tensor of the `scatter_list` of `src`, which only that rank passes. Rank 0
  /// unless given.
  [Collective=scatter]
  Work? scatter([Out] Tensor tensor,
                [In, Positional] optional sequence<Tensor>? scatter_list = null,
                [GlobalRoot, Positional] optional Rank? src = null,
                [Group, Positional] optional ProcessGroup? group = null,
                [AsyncOp] optional boolean async_op = false,
                [Root] optional Rank? group_src = null);

  /// Reduces a list of tensors, one for each rank, over all ranks; each rank gets its part.
  ///
  /// - `compress`: in which form elements travel, as in `ReduceScatterOptions`.
  [Collective=reduce_scatter]
  Work? reduce_scatter([Out] Tensor output, [In] sequence<Tensor> input_list,
                       [Positional] optional ReduceOp op = "SUM",
                       [Group, Positional] optional ProcessGroup? group = null,
                       [AsyncOp] optional boolean async_op = false,
                       [Compression] optional DOMString? compress = null);

  /// Reduces a tensor over all ranks; each rank gets its part, cut along dimension 0.
  ///
  /// - `compress`: in which form elements travel, as in `ReduceScatterOptions`.
  [Collective=reduce_scatter, Alias=reduce_scatter_single]
  Work? reduce_scatter_tensor([Out] Tensor output, [In, Flat] Tensor input,
                              [Positional] optional ReduceOp op = "SUM",
                              [Group, Positional] optional ProcessGroup? group = null,
                              [AsyncOp] optional boolean async_op = false,
                              [Compression] optional DOMString? compress = null);

  /// Cuts the input along dimension 0, sends part `i` to rank `i`, and concatenates what it
  /// receives. Sizes are rows; none cuts into equal parts.
  [Collective=alltoall]
  Work? all_to_all_single([Out, Flat, Splits=output_split_sizes] Tensor output,
                          [In, Flat, Splits=input_split_sizes] Tensor input,
                          [Splits, Positional]
                          optional sequence<unsigned long long>? output_split_sizes = null,
                          [Splits, Positional]
                          optional sequence<unsigned long long>? input_split_sizes = null,
                          [Group, Positional] optional ProcessGroup? group = null,
                          [AsyncOp] optional boolean async_op = false);

  /// Sends input `i` to rank `i` and receives output `i` from it, for every rank.
  [Collective=alltoall]
  Work? all_to_all([Out] sequence<Tensor> output_tensor_list,
                   [In] sequence<Tensor> input_tensor_list,
                   [Group, Positional] optional ProcessGroup? group = null,
                   [AsyncOp] optional boolean async_op = false);

  /// Waits until all ranks came. `device_ids` is for backends with devices.
  [Collective=barrier]
  Work? barrier([Group, Positional] optional ProcessGroup? group = null,
                [AsyncOp] optional boolean async_op = false,
                optional sequence<long>? device_ids = null, optional Duration? timeout = null);

  /// Waits until all ranks came, and reports which did not: the first, or all of them if
  /// `wait_all_ranks`. A `timeout` of 0 waits for nobody.
  [Waits, Throws=MonitoredBarrier]
  undefined monitored_barrier([Group, Positional] optional ProcessGroup? group = null,
                              optional Duration? timeout = null,
                              optional boolean wait_all_ranks = false);

  /// Sends a tensor to `dst`, and waits until it may be changed again.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  undefined send([In] Tensor tensor, [GlobalPeer, Positional] optional Rank? dst = null,
                 [Group, Positional] optional ProcessGroup? group = null,
                 [Tag, Positional] optional unsigned long tag = 0,
                 [Peer] optional Rank? group_dst = null);

  /// Receives a tensor from `src`, or from whichever rank sends first. Returns the sender's global
  /// rank; -1 if this process is not in the group. JavaScript's work gives the tensor, and
  /// `Work.source_rank` is the sender's rank in the group.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  long recv([Out] Tensor tensor, [GlobalPeer, Positional] optional Rank? src = null,
            [Group, Positional] optional ProcessGroup? group = null,
            [Tag, Positional] optional unsigned long tag = 0,
            [Peer] optional Rank? group_src = null);

  /// Sends a tensor to `dst`, without waiting.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work? isend([In] Tensor tensor, [GlobalPeer, Positional] optional Rank? dst = null,
              [Group, Positional] optional ProcessGroup? group = null,
              [Tag, Positional] optional unsigned long tag = 0,
              [Peer] optional Rank? group_dst = null);

  /// Receives a tensor from `src`, or from whichever rank sends first, without waiting.
  [Handwritten, Throws=(InvalidArgument, MessageSize, MessageDType, RankFailed)]
  Work? irecv([Out] Tensor tensor, [GlobalPeer, Positional] optional Rank? src = null,
              [Group, Positional] optional ProcessGroup? group = null,
              [Tag, Positional] optional unsigned long tag = 0,
              [Peer] optional Rank? group_src = null);

  /// Issues sends and receives of one group together; returns a handle for each of them.
  [Handwritten, Own=javascript, Throws=InvalidArgument]
  sequence<Work> batch_isend_irecv(sequence<P2POp> p2p_op_list);
};

/// One send or receive for `batch_isend_irecv`.
[Handwritten, Own=javascript, Since=0.1]
interface P2POp {
  /// - `op`: the function `isend` or `irecv`.
  /// - `peer`: the other rank, global; `group_peer`: in the group.
  [Rust=isend, Throws=InvalidArgument]
  constructor(Object op, Tensor tensor, optional Rank? peer = null,
              optional ProcessGroup? group = null, optional unsigned long tag = 0,
              optional Rank? group_peer = null);

  /// The function, `isend` or `irecv`.
  [Handwritten, Rust="MessageRequest::direction"] readonly attribute Object op;

  /// What is sent, or received into.
  [Handwritten, Rust="MessageRequest::tensor"] readonly attribute Tensor tensor;

  /// The other rank, global.
  [Handwritten, Rust=global_peer] readonly attribute Rank peer;

  /// The process group.
  [Handwritten] readonly attribute ProcessGroup group;

  /// Messages match if their tags are equal.
  [Handwritten] readonly attribute unsigned long tag;

  /// The other rank, in the group.
  [Handwritten, Rust="MessageRequest::peer"] readonly attribute Rank group_peer;
};
