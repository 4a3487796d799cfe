// The collective operations of a process group, in all the forms that c10d has.
//
// The first overload of each holds its facts: its number on the wire, its buffers and their sizes.

partial interface ProcessGroup {
  /// Reduces a tensor over all ranks, in place; all ranks get the same bits.
  ///
  /// Every rank passes the same dtype and number of elements. A list of several tensors is reduced
  /// over the ranks and over the list: each of them gets the same result.
  [Collective=allreduce, Number=0, Variant=Allreduce, Input=None, Output=One, Sizes=Equal, Reduces,
   Throws=(UnsupportedDType, CollectiveMismatch)]
  Work allreduce([InOut] sequence<Tensor> tensors, optional AllreduceOptions opts = {});
  [Collective=allreduce]
  Work allreduce([InOut] sequence<Tensor> tensors, [Positional] optional ReduceOp op = "SUM",
                 optional Duration? timeout = null);
  [Collective=allreduce]
  Work allreduce([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
                 optional Duration? timeout = null);

  /// Reduces several tensors over all ranks, in place, each for itself, in one operation.
  [Collective=allreduce, Coalesced]
  Work allreduce_coalesced([InOut] sequence<Tensor> tensors,
                           optional AllreduceCoalescedOptions opts = {});

  /// Reduces a tensor over all ranks; the root gets the result in place of its tensor.
  ///
  /// The other ranks' tensors are left as they are.
  [Collective=reduce, Number=1, Variant=Reduce, Input=One, Output=OneAtRoot, Sizes=Equal, Reduces,
   Rooted, Throws=(UnsupportedDType, CollectiveMismatch)]
  Work reduce([InOut] sequence<Tensor> tensors, optional ReduceOptions opts = {});
  [Collective=reduce]
  Work reduce([InOut] Tensor tensor, [Root] Rank root,
              [Positional] optional ReduceOp op = "SUM", optional Duration? timeout = null);

  /// All ranks get the root's tensor, in place of theirs.
  ///
  /// Every rank passes the same dtype and number of elements.
  [Collective=broadcast, Number=2, Variant=Broadcast, Input=None, Output=One, Sizes=Equal, Rooted,
   Throws=CollectiveMismatch]
  Work broadcast([InOut] sequence<Tensor> tensors, optional BroadcastOptions opts = {});
  [Collective=broadcast]
  Work broadcast([InOut] Tensor tensor, [Root] Rank root, optional Duration? timeout = null);

  /// All ranks get the root's tensor, in place of theirs: the short form that torchft has.
  [Collective=broadcast]
  Work broadcast_one([InOut] Tensor tensor, [Root] Rank root);

  /// All ranks get every rank's tensor: output `i` is rank `i`'s input.
  ///
  /// Output `i` has the size of rank `i`'s input; ranks may pass different sizes.
  [Collective=allgather, Number=3, Variant=Allgather, Input=One, Output=All, Sizes=PerRank,
   Throws=(InvalidArgument, CollectiveMismatch)]
  Work allgather([Out] sequence<sequence<Tensor>> output_tensors,
                 [In] sequence<Tensor> input_tensors, optional AllgatherOptions opts = {});
  [Collective=allgather]
  Work allgather([Out] sequence<Tensor> output_tensors, [In] Tensor input_tensor,
                 optional Duration? timeout = null);

  /// All ranks get every rank's tensors: `output_lists[r][i]` is input `i` of rank `r`.
  ///
  /// Each input is an operation of its own: all ranks pass the same number of inputs. In Rust,
  /// where lists are flat, the outputs of rank 0 come first, then those of rank 1, and so on.
  [Collective=allgather, Coalesced]
  Work allgather_coalesced([Out] sequence<sequence<Tensor>> output_lists,
                           [In] sequence<Tensor> input_list,
                           optional AllgatherOptions opts = {});

  /// All ranks get every rank's tensor, in one output tensor.
  ///
  /// The output has the inputs one after the other along dimension 0 (`(W * n, …)` for inputs of
  /// `(n, …)` from W ranks), or stacked (`(W, n, …)`). All inputs have the same size.
  [Collective=allgather, Alias=("_allgather_base", "allgather_base"), Throws=InvalidArgument]
  Work all_gather_single([Out, Flat] Tensor output, [In] Tensor input,
                         optional AllgatherOptions opts = {});
  [Collective=allgather]
  Work all_gather_single([Out, Flat] Tensor output, [In] Tensor input,
                         optional Duration? timeout = null);

  /// Several `all_gather_single` in one operation.
  [Collective=allgather, Coalesced, Alias=allgather_into_tensor_coalesced]
  Work all_gather_single_coalesced([Out, Flat] sequence<Tensor> outputs,
                                   [In] sequence<Tensor> inputs,
                                   optional AllgatherOptions opts = {});

  /// The root gets every rank's tensor: output `i` is rank `i`'s input.
  ///
  /// The root passes one output for each rank, of the size of that rank's input; the others pass an
  /// empty list.
  [Collective=gather, Number=4, Variant=Gather, Input=One, Output=AllAtRoot, Sizes=PerRankAtRoot,
   Rooted, Throws=(InvalidArgument, CollectiveMismatch)]
  Work gather([Out] sequence<sequence<Tensor>> output_tensors,
              [In] sequence<Tensor> input_tensors, optional GatherOptions opts = {});
  [Collective=gather]
  Work gather([Out] sequence<Tensor> output_tensors, [In] Tensor input_tensor, [Root] Rank root,
              optional Duration? timeout = null);

  /// The root gets every rank's tensor, in one output tensor, cut along dimension 0. The other
  /// ranks pass no output.
  [Collective=gather, Throws=InvalidArgument]
  Work gather_single([Out, Flat] Tensor? output, [In] Tensor input,
                     optional GatherOptions opts = {});

  /// Each rank gets its tensor of the root's list.
  ///
  /// The root passes one input for each rank, of the size of that rank's output; the others pass an
  /// empty list.
  [Collective=scatter, Number=5, Variant=Scatter, Input=AllAtRoot, Output=One, Sizes=PerRankAtRoot,
   Rooted, Throws=(InvalidArgument, CollectiveMismatch)]
  Work scatter([Out] sequence<Tensor> output_tensors,
               [In] sequence<sequence<Tensor>> input_tensors, optional ScatterOptions opts = {});
  [Collective=scatter]
  Work scatter([Out] Tensor output_tensor, [In] sequence<Tensor> input_tensors, [Root] Rank root,
               optional Duration? timeout = null);

  /// Reduces a list of tensors, one for each rank, over all ranks; each rank gets its part.
  ///
  /// Input `i` has the size of rank `i`'s output, on every rank; parts may have different sizes.
  [Collective=reduce_scatter, Number=6, Variant=ReduceScatter, Input=All, Output=One,
   Sizes=PerRank, Reduces, Throws=(InvalidArgument, UnsupportedDType, CollectiveMismatch)]
  Work reduce_scatter([Out] sequence<Tensor> output_tensors,
                      [In] sequence<sequence<Tensor>> input_tensors,
                      optional ReduceScatterOptions opts = {});
  [Collective=reduce_scatter]
  Work reduce_scatter([Out] Tensor output, [In] sequence<Tensor> input,
                      [Positional] optional ReduceOp op = "SUM",
                      optional Duration? timeout = null);

  /// Reduces a tensor over all ranks; each rank gets its part, cut along dimension 0.
  ///
  /// The input has one part for each rank, one after the other (`(W * n, …)` for outputs of
  /// `(n, …)` on W ranks) or stacked (`(W, n, …)`).
  [Collective=reduce_scatter, Alias=("_reduce_scatter_base", "reduce_scatter_base"),
   Throws=(InvalidArgument, UnsupportedDType)]
  Work reduce_scatter_single([Out] Tensor output_tensor, [In, Flat] Tensor input_tensor,
                             optional ReduceScatterOptions opts = {});
  [Collective=reduce_scatter]
  Work reduce_scatter_single([Out] Tensor output_tensor, [In, Flat] Tensor input_tensor,
                             [Positional] optional ReduceOp op = "SUM",
                             optional Duration? timeout = null);

  /// Several `reduce_scatter_single` in one operation.
  [Collective=reduce_scatter, Coalesced, Alias=reduce_scatter_tensor_coalesced]
  Work reduce_scatter_single_coalesced([Out] sequence<Tensor> outputs,
                                       [In, Flat] sequence<Tensor> inputs,
                                       optional ReduceScatterOptions opts = {});

  /// Sends input `i` to rank `i` and receives output `i` from it, for every rank.
  ///
  /// Each pair of ranks may have its own size: output `i` here is as large as this rank's input on
  /// rank `i`.
  [Collective=alltoall, Number=7, Variant=Alltoall, Input=All, Output=All, Sizes=Pairwise,
   Throws=(InvalidArgument, CollectiveMismatch)]
  Work alltoall([Out] sequence<Tensor> output_tensors, [In] sequence<Tensor> input_tensors,
                optional AllToAllOptions opts = {});

  /// Cuts the input along dimension 0, sends part `i` to rank `i`, and concatenates what it
  /// receives.
  ///
  /// Sizes are rows of dimension 0, one for each rank; an empty list cuts into equal parts, into
  /// which the rows must divide evenly.
  [Collective=alltoall, Alias=alltoall_base, Throws=(InvalidArgument, CollectiveMismatch)]
  Work all_to_all_single([Out, Flat, Splits=output_split_sizes] Tensor output,
                         [In, Flat, Splits=input_split_sizes] Tensor input,
                         [Splits] optional sequence<unsigned long long> output_split_sizes = [],
                         [Splits] optional sequence<unsigned long long> input_split_sizes = [],
                         optional AllToAllOptions opts = {});
  [Collective=alltoall]
  Work all_to_all_single([Out, Flat, Splits=output_split_sizes] Tensor output,
                         [In, Flat, Splits=input_split_sizes] Tensor input,
                         [Splits] optional sequence<unsigned long long> output_split_sizes = [],
                         [Splits] optional sequence<unsigned long long> input_split_sizes = [],
                         optional Duration? timeout = null);

  /// Waits until all ranks came. Carries no data.
  [Collective=barrier, Number=8, Variant=Barrier, Input=None, Output=None, Sizes=Equal,
   Throws=CollectiveMismatch]
  Work barrier(optional BarrierOptions opts = {});
  [Collective=barrier]
  Work barrier(optional Duration? timeout = null);

  /// Waits until all ranks came, and reports which did not: rank 0 raises with the first missing
  /// rank, or with all of them if `wait_all_ranks`, and so does every other rank. Returns when it
  /// is done. Goes through the group's store; a missing rank does not break the group. A `timeout`
  /// of 0 waits for nobody: it passes if all others are there already.
  [Waits, Throws=MonitoredBarrier]
  undefined monitored_barrier(optional Duration? timeout = null,
                              optional boolean wait_all_ranks = false);
};
