// The handle of an operation that takes time.

/// How an operation ended, from `Work.get_future_result`.
[Numbers="0 1 2 100", Since=0.1]
enum WorkResult {
  /// It is complete.
  "SUCCESS",
  /// It passed its deadline.
  "TIMEOUT",
  /// A peer or the network failed.
  "COMM_ERROR",
  /// Another error.
  "UNKNOWN"
};

/// What compression lost. In Python it is a `dict` of these.
[NotIn=python, Since=0.1]
dictionary CompressionLoss {
  /// The greatest absolute error of an element; infinite if a finite one became infinite or NaN, or
  /// an infinite one NaN.
  required double max_abs;
  /// The root of the mean square error.
  required double root_mean_square;
};

/// A handle on an operation that was issued.
///
/// Wait for it on a thread (`wait`), in a task (`await`), or poll it (`is_completed`). The tensors
/// of the operation must not be touched before it is complete.
[Own=javascript, Since=0.1]
interface Work {
  /// Waits until the operation is complete; true. Raises what the operation failed with.
  ///
  /// With a `timeout` it waits no longer than that and raises `WaitTimeout`; the operation
  /// continues, and a later `wait` may succeed. None, or zero, means no limit of its own.
  [Handwritten, Throws=(WaitTimeout, CollectiveTimeout, CollectiveMismatch, RankFailed, Aborted)]
  boolean wait(optional Duration? timeout = null);

  /// Whether the operation ended, well or not. Does not wait.
  boolean is_completed();

  /// Whether the operation ended well. Does not wait.
  boolean is_success();

  /// What the operation failed with, if it did. Does not wait.
  [Handwritten, Rust=error] Object? exception();

  /// A future of the output tensors.
  [Handwritten] Future get_future();

  /// A future of how the operation ended, a `WorkResult`. It never raises.
  [Handwritten] Future get_future_result();

  /// The output tensors, in one flat list.
  [Handwritten] sequence<Tensor> result();

  /// The rank, in the group, that sent what was received.
  [Handwritten, Alias="_source_rank", Throws=InvalidArgument] Rank source_rank();

  /// Orders the device's current stream after the operation. Without a device: `wait`.
  [Handwritten, Rust=order] undefined synchronize();

  /// The limit of the operation.
  [Handwritten, NotIn=rust] readonly attribute Duration timeout;

  /// The number of the operation in its group, the same on all ranks for a collective.
  [Handwritten] readonly attribute long long _sequence;

  /// How long the operation took, from its call to its end, or has taken so far; zero for one that
  /// was over when its call returned.
  [Handwritten] readonly attribute Duration duration;

  /// The error that compression made of what this rank compressed: of its tensors, and in an
  /// allreduce of its part of the result. None where nothing is compressed, and before the
  /// operation is complete.
  [Handwritten] readonly attribute CompressionLoss? compression_error;

  /// This handle; for c10d's callers.
  [Handwritten, NotIn=(javascript, rust)] Work boxed();

  /// The handle that `boxed` returned.
  [Handwritten, NotIn=(javascript, rust)] static Work unbox(Work boxed);
};

/// What `Future.then` calls when the future is done.
[NotIn=javascript]
callback FutureCallback = any (Future future);

/// A value that is available when an operation is complete. In Python it is a
/// `concurrent.futures.Future`, which cannot be cancelled: `asyncio.wrap_future` takes it.
[NotIn=javascript, Since=0.1]
interface Future {
  /// Waits for the value, and returns it or raises what the operation failed with.
  [Handwritten] Object wait();

  /// Whether the value, or the failure, is available. Does not wait.
  [Handwritten] boolean done();

  /// The value; raises if it is not available.
  [Handwritten] Object value();

  /// Calls `callback` with this future when it is done; returns a future of the callback's result.
  [Handwritten] Future then(FutureCallback callback);

  /// Calls `callback` with this future when it is done.
  [Handwritten] undefined add_done_callback(FutureCallback callback);
};
