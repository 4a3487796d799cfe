// Operations that are prepared once and started often: MPI 4's persistent operations, section 6.13.
//
// What is prepared is a call of the method that `Prepares` names; its facts stand there.

partial interface ProcessGroup {
  /// Prepares an allreduce of one tensor, in place, for loops that repeat one call.
  ///
  /// What is true of this is true of all `prepare_…`. The arguments are checked once, here; the
  /// tensors are kept alive, and their elements may be changed whenever no start is running. Other
  /// ranks may have prepared the call or not.
  ///
  /// What is saved is finding out what a call means and whether it is right: little beside waiting
  /// for other ranks, and nothing for a call that is made once. In Node, where arrays can be given
  /// away at any time, a start looks where they lie, and a `run` of small ones has no handle and no
  /// promise of its own. In browsers a start costs what the call does.
  [Prepares=allreduce, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_allreduce([InOut] Tensor tensor,
                                      [Positional] optional ReduceOp op = "SUM",
                                      optional Duration? timeout = null);

  /// Prepares a reduce of one tensor: the root gets the result in place of its tensor.
  [Prepares=reduce, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_reduce([InOut] Tensor tensor, [Root] Rank root,
                                   [Positional] optional ReduceOp op = "SUM",
                                   optional Duration? timeout = null);

  /// Prepares a broadcast of one tensor: all ranks get the root's in place of theirs.
  [Prepares=broadcast, Throws=InvalidArgument]
  PreparedOperation prepare_broadcast([InOut] Tensor tensor, [Root] Rank root,
                                      optional Duration? timeout = null);

  /// Prepares an `all_gather_single`: all ranks get every rank's tensor, in one output tensor.
  [Prepares=all_gather_single, Throws=InvalidArgument]
  PreparedOperation prepare_allgather([Out, Flat] Tensor output, [In] Tensor input,
                                      optional Duration? timeout = null);

  /// Prepares a gather: the root gets every rank's tensor, in a list. The other ranks pass an empty
  /// list.
  [Prepares=gather, Throws=InvalidArgument]
  PreparedOperation prepare_gather([Out] sequence<Tensor> output_tensors, [In] Tensor input_tensor,
                                   [Root] Rank root, optional Duration? timeout = null);

  /// Prepares a scatter: each rank gets its tensor of the root's list. The other ranks pass an
  /// empty list.
  [Prepares=scatter, Throws=InvalidArgument]
  PreparedOperation prepare_scatter([Out] Tensor output_tensor, [In] sequence<Tensor> input_tensors,
                                    [Root] Rank root, optional Duration? timeout = null);

  /// Prepares a `reduce_scatter_single`: each rank gets its part of what is reduced over all ranks.
  [Prepares=reduce_scatter_single, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_reduce_scatter([Out] Tensor output_tensor,
                                           [In, Flat] Tensor input_tensor,
                                           [Positional] optional ReduceOp op = "SUM",
                                           optional Duration? timeout = null);

  /// Prepares an `all_to_all_single`: part `i` of the input goes to rank `i`, and part `i` of the
  /// output comes from it. Sizes are rows of dimension 0, one for each rank; none are equal parts.
  [Prepares=all_to_all_single, Throws=InvalidArgument]
  PreparedOperation prepare_alltoall(
      [Out, Flat, Splits=output_split_sizes] Tensor output,
      [In, Flat, Splits=input_split_sizes] Tensor input,
      [Splits] optional sequence<unsigned long long> output_split_sizes = [],
      [Splits] optional sequence<unsigned long long> input_split_sizes = [],
      optional Duration? timeout = null);

  /// Prepares a barrier.
  [Prepares=barrier, Throws=InvalidArgument]
  PreparedOperation prepare_barrier(optional Duration? timeout = null);

  /// Prepares a scan: rank `r` gets the reduction over the ranks 0 to `r`, in place of its tensor.
  [Prepares=scan, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_scan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
                                 optional Duration? timeout = null);

  /// Prepares an exscan: rank `r` gets the reduction over the ranks before it, in place of its
  /// tensor.
  [Prepares=exscan, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_exscan([InOut] Tensor tensor, [Positional] optional ReduceOp op = "SUM",
                                   optional Duration? timeout = null);

  /// Prepares a message to a rank. Each start is a message, for an ordinary or a prepared receive.
  [Prepares=send, Throws=InvalidArgument]
  PreparedOperation prepare_send([In] Tensor tensor, [Peer] Rank dst_rank,
                                 [Tag, Positional] optional unsigned long tag = 0);

  /// Prepares the receive of a message from a rank.
  [Prepares=recv, Throws=InvalidArgument]
  PreparedOperation prepare_recv([Out] Tensor tensor, [Peer] Rank src_rank,
                                 [Tag, Positional] optional unsigned long tag = 0);
};

/// An operation that is started again and again.
///
/// Each start is a call like any other: it has the next number in its group, hooks and names see it
/// as the ordinary call, and other ranks may take part in it by that. `reconfigure` and the end of
/// the group end it.
[Own=javascript, Since=0.1]
interface PreparedOperation {
  /// Starts the operation. While an earlier start of it is still running, a message is issued
  /// behind that, and so is a collective on tensors of a device, which does in order what it is
  /// told. A collective on memory of the host is refused, as it would read what the earlier one
  /// writes: wait for that one first. In JavaScript it is issued when the earlier one is over, and
  /// reads what that one wrote, as an ordinary call on the same array does; so is a `run`, and none
  /// is refused. All ranks start it equally often, or take part by ordinary calls.
  [Handwritten,
   Throws=(InvalidArgument, InvalidGroup, CollectiveTimeout, CollectiveMismatch, RankFailed,
           Aborted)]
  Work start();

  /// Starts it and waits: the usual call in a loop. The same as `start` and a wait for its work,
  /// without making a handle.
  [Handwritten,
   Throws=(InvalidArgument, InvalidGroup, CollectiveTimeout, CollectiveMismatch, RankFailed,
           Aborted)]
  undefined run();

  /// Waits for the last start, as `Work.wait`; true, also if there was none. Raises what it failed
  /// with.
  [Handwritten, Throws=(WaitTimeout, CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  boolean wait(optional Duration? timeout = null);
};
