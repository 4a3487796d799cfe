// Operations that are prepared once and started often.

partial interface ProcessGroup {
  /// Prepares an allreduce of one tensor, in place, for loops that repeat one call.
  ///
  /// The tensor is kept; its elements may be changed between the end of one start and the next.
  /// Other ranks may have prepared the call or not. In Rust and Python the arguments are checked
  /// once, here, in JavaScript by every start. Only the checks are saved: a call that is made once,
  /// or waits long for the others, gains nothing.
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
  /// Starts the operation. All ranks start it equally often, or take part by ordinary calls. An
  /// earlier start that goes on comes first, and what it failed with is raised.
  [Handwritten, Throws=(CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)] Work start();

  /// Starts the operation and waits for it: what a loop that repeats one call calls. As `start`
  /// and the wait for its work, without making a handle.
  [Handwritten, Throws=(CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  undefined run();

  /// Waits for what was started last; true, also if nothing was started. Raises what it failed
  /// with. As `Work.wait`.
  [Handwritten, Throws=(WaitTimeout, CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  boolean wait(optional Duration? timeout = null);
};
