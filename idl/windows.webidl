// One-sided access to other ranks' memory.

/// Memory of all ranks of a group that each of them can reach without the owner's help.
///
/// All ranks make it together, by `ProcessGroup.new_window`, and register a tensor each, which may
/// differ in length and dtype. Then each rank reads and writes the others' tensors, at offsets in
/// elements. What is wrong with an access is raised where it is made, and nothing is touched: also
/// that its target has left the group, or closed the window, which a rank does by letting it go.
///
/// When a call is over, its elements are in the target's memory, and its own tensors may be used
/// again. They may lie in the memory that the call changes, and count as they were before it; only
/// a result must lie apart from them, and from that. A `timeout` is the limit of one call, the
/// group's without it.
///
/// What the owner reads in its registered tensor is certain after a signal, or a fence, of those
/// that wrote it. Elements of up to 8 bytes are updated atomically (`accumulate`, `fetch_and_add`,
/// `compare_and_swap`), whoever updates them and whichever way; longer ones (`complex128`) by the
/// owner's process alone, one after the other. A `put` has no order with an update of the same
/// elements at the same moment.
///
/// The owner's process serves accesses even if none of its code calls polyrank, but in a browser,
/// whose event loop must run. Ranks of one host access memory themselves, by load and store, if it
/// is polyrank's own (made by `empty` in Python, `alloc` in JavaScript, `Tensor::zeros` in Rust)
/// and has 32 KiB or more: see `get_attr`.
[Since=0.1]
interface Window {
  /// Opens a tensor to the other ranks. All ranks call it, and wait for one another.
  ///
  /// - `tensor`: contiguous and aligned, of the host. In JavaScript it lies in memory of polyrank
  ///   (`alloc`), because that of other arrays can move.
  /// - `owning`: whether the window keeps the tensor. It always does, until `tensor_deregister`.
  [Handwritten, Throws=InvalidArgument]
  Work tensor_register([InOut] Tensor tensor, optional boolean owning = true,
                       optional Duration? timeout = null,
                       [AsyncOp] optional boolean async_op = false);

  /// Closes what `tensor_register` opened, when all accesses of all ranks are done. All ranks call
  /// it. A rank that lets its window go without it gives its memory up, whoever still accesses it:
  /// the others' calls that need this rank fail from then on.
  [Handwritten, Throws=InvalidArgument]
  Work tensor_deregister(optional Duration? timeout = null,
                         [AsyncOp] optional boolean async_op = false);

  /// Writes `tensor` to the memory of `dst`, from element `offset_nelems` of its tensor on.
  [Handwritten, Throws=(InvalidArgument, RankFailed)]
  Work put([In] Tensor tensor, [Peer] Rank dst, unsigned long long offset_nelems,
           optional Duration? timeout = null, [AsyncOp] optional boolean async_op = false);

  /// Reads the memory of `src`, from element `offset_nelems` of its tensor on, into `tensor`.
  [Handwritten, Throws=(InvalidArgument, RankFailed)]
  Work get([Out] Tensor tensor, [Peer] Rank src, unsigned long long offset_nelems,
           optional Duration? timeout = null, [AsyncOp] optional boolean async_op = false);

  /// Reduces `tensor` into the memory of `dst`: each element there becomes what `op` makes of it
  /// and of the given one. Of the operators, AVG is refused: it has no meaning here.
  [Handwritten, Throws=(InvalidArgument, UnsupportedDType, RankFailed)]
  Work accumulate([In] Tensor tensor, [Peer] Rank dst, unsigned long long offset_nelems,
                  [Positional] optional ReduceOp op = "SUM", optional Duration? timeout = null,
                  [AsyncOp] optional boolean async_op = false);

  /// Adds `tensor` to the memory of `dst`, and gives `result`, a tensor of the same length and
  /// dtype, what was there before.
  [Handwritten, Throws=(InvalidArgument, UnsupportedDType, RankFailed)]
  Work fetch_and_add([In] Tensor tensor, [Out] Tensor result, [Peer] Rank dst,
                     unsigned long long offset_nelems, optional Duration? timeout = null,
                     [AsyncOp] optional boolean async_op = false);

  /// Sets each element in the memory of `dst` that is, bit by bit, that of `compare` to that of
  /// `tensor`, and gives `result` what was there before. The three are of one length and dtype.
  [Handwritten, Throws=(InvalidArgument, RankFailed)]
  Work compare_and_swap([In] Tensor tensor, [In] Tensor compare, [Out] Tensor result,
                        [Peer] Rank dst, unsigned long long offset_nelems,
                        optional Duration? timeout = null,
                        [AsyncOp] optional boolean async_op = false);

  /// Signals `peer`. What this rank has written to it before is there when the signal is. The work
  /// is done when the signal is on its way.
  [Handwritten, Throws=(InvalidArgument, RankFailed)]
  Work signal([Peer] Rank peer, optional Duration? timeout = null,
              [AsyncOp] optional boolean async_op = false);

  /// Waits for a signal of `peer`, and takes it: each is taken once. Where none comes in time, the
  /// group goes on, and one that comes later is for another call.
  [Handwritten, Throws=(InvalidArgument, RankFailed, CollectiveTimeout)]
  Work wait_signal([Peer] Rank peer, optional Duration? timeout = null,
                   [AsyncOp] optional boolean async_op = false);

  /// Waits until all that this rank has issued to `peer`, or to any rank, is done.
  [Handwritten, Throws=(InvalidArgument, RankFailed)]
  Work flush([Peer] optional Rank? peer = null, optional Duration? timeout = null,
             [AsyncOp] optional boolean async_op = false);

  /// Waits for all ranks, and until all that each of them has issued before is done. All ranks call
  /// it.
  [Handwritten, Throws=(RankFailed, CollectiveTimeout)]
  Work fence(optional Duration? timeout = null, [AsyncOp] optional boolean async_op = false);

  /// A flat tensor over the memory of a rank on this host, if that can be mapped: see `get_attr`.
  /// When this rank deregisters its tensor, lets the window go or leaves the group, that tensor is
  /// one of zeros of its own from then on: it never shows, nor changes, what the other rank has
  /// there afterwards.
  [Handwritten, Throws=(InvalidArgument, Unsupported)]
  Tensor map_remote_tensor(Rank rank);

  /// `UNIFIED` if this rank reads and writes the memory of `rank` where it lies; `SEPARATE` if that
  /// rank's process does it.
  [Handwritten, Throws=InvalidArgument] DOMString get_attr(Rank rank);
};

partial interface ProcessGroup {
  /// Makes a window, and registers `tensor` in it, if it is given. All ranks call it, with a tensor
  /// or all without.
  [Handwritten, Waits, Throws=(InvalidArgument, Unsupported)]
  Window new_window([Positional] optional Tensor? tensor = null);

  /// Whether the group has windows: those of `tcp` and `websocket` do.
  [Handwritten] readonly attribute boolean supports_window;
};
