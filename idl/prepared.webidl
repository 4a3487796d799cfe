// Operations that are prepared once and started often.

partial interface ProcessGroup {
  /// Prepares an allreduce of one tensor, in place, for loops that repeat one call.
  ///
  /// The tensor is kept alive; its elements may be changed whenever no start is running.
  /// Other ranks may have prepared the call or not. In Rust and Python the arguments are checked
  /// once, here, in JavaScript by every start. Only the checks are saved: a call that is made once,
  /// or waits long for other ranks, is not faster.
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
  /// Starts the operation, queued behind an earlier start that is still running, whose failure is
  /// raised. All ranks start it equally often, or take part by ordinary calls.
  [Handwritten, Throws=(CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)] Work start();

  /// Starts it and waits: the usual call in a loop. The same as `start` and a wait for its work,
  /// without making a handle.
  [Handwritten, Throws=(CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  undefined run();

  /// Waits for the last start, as `Work.wait`; true, also if there was none. Raises what it failed
  /// with.
  [Handwritten, Throws=(WaitTimeout, CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  boolean wait(optional Duration? timeout = null);
};
