// Collectives of uneven parts in one flat tensor: the `v` forms of MPI, by the names of torchcomms.
//
// Sizes are rows of dimension 0, one for each rank, as in `all_to_all_single`; where a part begins
// follows from them. The forms with lists of tensors, in collectives.webidl, take uneven sizes too.

partial interface ProcessGroup {
  /// All ranks get every rank's tensor, in one output tensor, in which they may have different
  /// numbers of rows (MPI's `Allgatherv`).
  ///
  /// Rows are counted along dimension 0: part `i` of the output has `output_split_sizes[i]` rows,
  /// those of rank `i`'s input, and begins where part `i - 1` ends. All ranks pass the same sizes;
  /// 0 is a size. An empty list cuts into equal parts.
  [Collective=allgather, Throws=(InvalidArgument, CollectiveMismatch)]
  Work all_gather_v([Out, Flat, Splits=output_split_sizes] Tensor output, [In] Tensor input,
                    [Splits] sequence<unsigned long long> output_split_sizes,
                    optional Duration? timeout = null);

  /// The root gets every rank's tensor, in one output tensor, in which they may have different
  /// numbers of rows (MPI's `Gatherv`).
  ///
  /// Part `i` of the output has `output_split_sizes[i]` rows of dimension 0, and begins where part
  /// `i - 1` ends. Only the root passes the output; the sizes of other ranks are not looked at.
  [Collective=gather, Throws=(InvalidArgument, CollectiveMismatch)]
  Work gather_v([Out, Flat, Splits=output_split_sizes] Tensor? output, [In] Tensor input,
                [Splits] sequence<unsigned long long>? output_split_sizes, [Root] Rank root,
                optional Duration? timeout = null);

  /// Each rank gets its part of the root's tensor, whose parts may have different numbers of rows
  /// (MPI's `Scatterv`).
  ///
  /// Part `i` of the input has `input_split_sizes[i]` rows of dimension 0, those of rank `i`'s
  /// output, and begins where part `i - 1` ends. Only the root passes the input; the sizes of other
  /// ranks are not looked at.
  [Collective=scatter, Throws=(InvalidArgument, CollectiveMismatch)]
  Work scatter_v([Out] Tensor output, [In, Flat, Splits=input_split_sizes] Tensor? input,
                 [Splits] sequence<unsigned long long>? input_split_sizes, [Root] Rank root,
                 optional Duration? timeout = null);

  /// Reduces a tensor over all ranks; each rank gets its part, and parts may have different numbers
  /// of rows (MPI's `Reduce_scatter`).
  ///
  /// Part `i` of the input has `input_split_sizes[i]` rows of dimension 0, those of rank `i`'s
  /// output, and begins where part `i - 1` ends. All ranks pass the same sizes; an empty list cuts
  /// into equal parts.
  [Collective=reduce_scatter, Throws=(InvalidArgument, UnsupportedDType, CollectiveMismatch)]
  Work reduce_scatter_v([Out] Tensor output, [In, Flat, Splits=input_split_sizes] Tensor input,
                        [Splits] sequence<unsigned long long> input_split_sizes,
                        [Positional] optional ReduceOp op = "SUM",
                        optional Duration? timeout = null);

  /// Sends part `i` of the input to rank `i`, and gets part `i` of the output from it; each pair of
  /// ranks may have its own number of rows (MPI's `Alltoallv`). It is `all_to_all_single` whose
  /// sizes are given.
  ///
  /// Parts are cut along dimension 0, and begin where the one before ends: `input_split_sizes[i]`
  /// here is what rank `i` has as its output size for this rank.
  [Collective=alltoall, Alias=all_to_all_v_single, Throws=(InvalidArgument, CollectiveMismatch)]
  Work all_to_all_v([Out, Flat, Splits=output_split_sizes] Tensor output,
                    [In, Flat, Splits=input_split_sizes] Tensor input,
                    [Splits] sequence<unsigned long long> output_split_sizes,
                    [Splits] sequence<unsigned long long> input_split_sizes,
                    optional Duration? timeout = null);
};

partial namespace distributed {
  /// All ranks get every rank's tensor in one output, in parts of `output_split_sizes` rows.
  [Collective=allgather]
  Work? all_gather_v([Out, Flat, Splits=output_split_sizes] Tensor output_tensor,
                     [In] Tensor input_tensor,
                     [Splits] sequence<unsigned long long> output_split_sizes,
                     [Group, Positional] optional ProcessGroup? group = null,
                     [AsyncOp] optional boolean async_op = false);

  /// `dst` gets every rank's tensor in one output, in parts of `output_split_sizes` rows; only it
  /// passes both. Rank 0 unless given.
  [Collective=gather]
  Work? gather_v([In] Tensor tensor,
                 [Out, Flat, Splits=output_split_sizes, Positional]
                 optional Tensor? output_tensor = null,
                 [Splits, Positional]
                 optional sequence<unsigned long long>? output_split_sizes = null,
                 [GlobalRoot, Positional] optional Rank? dst = null,
                 [Group, Positional] optional ProcessGroup? group = null,
                 [AsyncOp] optional boolean async_op = false,
                 [Root] optional Rank? group_dst = null);

  /// Each rank gets its part of the tensor of `src`, which is cut into parts of
  /// `input_split_sizes` rows; only that rank passes both. Rank 0 unless given.
  [Collective=scatter]
  Work? scatter_v([Out] Tensor tensor,
                  [In, Flat, Splits=input_split_sizes, Positional]
                  optional Tensor? input_tensor = null,
                  [Splits, Positional]
                  optional sequence<unsigned long long>? input_split_sizes = null,
                  [GlobalRoot, Positional] optional Rank? src = null,
                  [Group, Positional] optional ProcessGroup? group = null,
                  [AsyncOp] optional boolean async_op = false,
                  [Root] optional Rank? group_src = null);

  /// Reduces a tensor over all ranks; each rank gets its part, of `input_split_sizes` rows.
  [Collective=reduce_scatter]
  Work? reduce_scatter_v([Out] Tensor output, [In, Flat, Splits=input_split_sizes] Tensor input,
                         [Splits] sequence<unsigned long long> input_split_sizes,
                         [Positional] optional ReduceOp op = "SUM",
                         [Group, Positional] optional ProcessGroup? group = null,
                         [AsyncOp] optional boolean async_op = false);

  /// Sends part `i` of the input to rank `i`, and gets part `i` of the output from it. Sizes are
  /// rows.
  [Collective=alltoall, Alias=all_to_all_v_single]
  Work? all_to_all_v([Out, Flat, Splits=output_split_sizes] Tensor output,
                     [In, Flat, Splits=input_split_sizes] Tensor input,
                     [Splits] sequence<unsigned long long> output_split_sizes,
                     [Splits] sequence<unsigned long long> input_split_sizes,
                     [Group, Positional] optional ProcessGroup? group = null,
                     [AsyncOp] optional boolean async_op = false);
};
