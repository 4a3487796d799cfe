// Operations that are prepared once and started often.

partial interface ProcessGroup {
  /// Prepares an allreduce of one tensor, in place, for loops that repeat one call.
  ///
  /// The arguments are checked once, and the tensor is kept; its elements may be changed between
  /// the end of one start and the next.
  [Handwritten, Throws=(UnsupportedDType, InvalidArgument)]
  PreparedOperation prepare_allreduce([InOut] Tensor tensor,
                                      [Positional] optional ReduceOp op = "SUM",
                                      optional Duration? timeout = null);
};

/// An operation on one tensor that is started again and again.
///
/// Each start is a call like any other: it has the next number in its group, and other ranks may
/// take part in it by an ordinary call.
[Own=javascript, Since=0.1]
interface PreparedOperation {
  /// Starts the operation, which must not be going on from an earlier start.
  [Handwritten, Throws=(InvalidArgument, Aborted)] Work start();

  /// Waits for what was started last; true. Raises what it failed with. As `Work.wait`.
  [Handwritten, Throws=(WaitTimeout, CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  boolean wait(optional Duration? timeout = null);
};
