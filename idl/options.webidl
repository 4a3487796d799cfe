// Options of operations. Every member has a default; camelCase spellings (`reduceOp`) are accepted.

/// Options of `allreduce`.
[Since=0.1]
dictionary AllreduceOptions {
  /// How elements are reduced.
  ReduceOp reduce_op = "SUM";
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
  /// In which form elements travel: "bf16", "f16", or "int8", which has a scale for each 256
  /// elements; "none": as they are; nothing given: as the group's hints say. For tensors of 32 or
  /// 64 bit floats on the host, and `SUM` or `AVG`; all ranks give the same.
  /// `Work.compression_error` says what that cost.
  [Compression] DOMString? compress = null;
};

/// Options of `allreduce_coalesced`: those of `allreduce`.
[Since=0.1]
dictionary AllreduceCoalescedOptions : AllreduceOptions {};

/// Options of `reduce`.
[Since=0.1]
dictionary ReduceOptions {
  /// How elements are reduced.
  ReduceOp reduce_op = "SUM";
  /// The rank, in this group, that gets the result.
  [Root] Rank root_rank = 0;
  /// Which tensor of a list is the root's, if one process passes several.
  [RootTensor] unsigned long root_tensor = 0;
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};

/// Options of `broadcast`.
[Since=0.1]
dictionary BroadcastOptions {
  /// The rank, in this group, whose data all get.
  [Root] Rank root_rank = 0;
  /// Which tensor of a list is the root's, if one process passes several.
  [RootTensor] unsigned long root_tensor = 0;
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};

/// Options of `allgather` and `all_gather_single`.
[Since=0.1]
dictionary AllgatherOptions {
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
  /// In which form elements travel: "bf16", "f16", or "int8", which has a scale for each 256
  /// elements; "none": as they are; nothing given: as the group's hints say. For tensors of 32 or
  /// 64 bit floats on the host; all ranks give the same. `Work.compression_error` says what that
  /// cost.
  [Compression] DOMString? compress = null;
};

/// Options of `gather`.
[Since=0.1]
dictionary GatherOptions {
  /// The rank, in this group, that gets all tensors.
  [Root] Rank root_rank = 0;
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};

/// Options of `scatter`.
[Since=0.1]
dictionary ScatterOptions {
  /// The rank, in this group, that has the tensors.
  [Root] Rank root_rank = 0;
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};

/// Options of `reduce_scatter` and `reduce_scatter_single`.
[Since=0.1]
dictionary ReduceScatterOptions {
  /// How elements are reduced.
  ReduceOp reduce_op = "SUM";
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
  /// In which form elements travel: "bf16", "f16", or "int8", which has a scale for each 256
  /// elements; "none": as they are; nothing given: as the group's hints say. For tensors of 32 or
  /// 64 bit floats on the host, and `SUM` or `AVG`; all ranks give the same.
  /// `Work.compression_error` says what that cost.
  [Compression] DOMString? compress = null;
};

/// Options of `alltoall` and `all_to_all_single`.
[Since=0.1]
dictionary AllToAllOptions {
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};

/// Options of `barrier`.
[Since=0.1]
dictionary BarrierOptions {
  /// Devices whose work the barrier waits for. The TCP backend has no devices and ignores them.
  sequence<long> device_ids = [];
  /// Limit of this operation; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// The device on which the barrier runs. The TCP backend ignores it.
  [NotIn=rust] Object? device = null;
  /// Kept for c10d: method calls return a `Work` either way.
  [AsyncOp] boolean async_op = true;
};
