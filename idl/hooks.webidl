// Functions of the user that run before and after operations.

/// What a hook learns before an operation is issued. Its tensors are the caller's, and must not be
/// kept.
dictionary PreHookArgs {
  /// The operation: `ALLREDUCE`, `REDUCE`, `BROADCAST`, `ALLGATHER`, `GATHER`, `SCATTER`,
  /// `REDUCE_SCATTER`, `ALLTOALL`, `PPERMUTE`, `BARRIER`, `SCAN`, `EXSCAN`, `SEND`, `RECV` or
  /// `RECVANYSOURCE`, `SENDRECV`, `SYNC_STATE`; one of a topology by the name of its method,
  /// `NEIGHBOR_ALLTOALL`; one on objects by that of its function, `ALL_GATHER_OBJECT`, and
  /// `ALLREDUCE_SPARSE`, without tensors and without the hooks after their issue. In JavaScript
  /// messages of devices that go together are one `COALESCED`.
  required DOMString name;
  /// This process's rank in the group.
  required Rank rank;
  /// Whether the caller gets a `Work`, and does not wait in the call.
  required boolean async_op;
  /// The tensors that are read.
  required sequence<Tensor> input_tensors;
  /// The tensors that are written.
  required sequence<Tensor> output_tensors;
  /// The root, or the peer of a message, a rank of the group; -1 if there is none, and for
  /// collectives of objects.
  required long root;
  /// How elements are reduced; none where they are not.
  required ReduceOp? reduce_op;
  /// The number of the operation among those of the group that had hooks, from 0. All hooks of one
  /// operation get the same one.
  required unsigned long long op_id;
  /// The name that `record_comm` gave it, if it is called in such a block.
  required DOMString? comm_name;
};

/// What a hook learns after an operation was issued.
dictionary PostHookArgs {
  /// The operation, as before it.
  required DOMString name;
  /// The number of the operation.
  required unsigned long long op_id;
  /// The operation's handle.
  required Work work;
  /// The name that `record_comm` gave it, if it is called in such a block.
  required DOMString? comm_name;
};

/// What a hook learns when an operation has ended.
dictionary CompletionHookArgs {
  /// The operation, as before it.
  required DOMString name;
  /// The number of the operation.
  required unsigned long long op_id;
  /// How long it took, from its issue on.
  required Duration duration;
  /// What it failed with; none if it ended well.
  required Object? error;
  /// The name that `record_comm` gave it, if it is called in such a block.
  required DOMString? comm_name;
};

/// Runs before an operation is issued. An error in it stops the operation.
callback PreHook = undefined (PreHookArgs args);

/// Runs after an operation was issued.
callback PostHook = undefined (PostHookArgs args);

/// Runs when an operation has ended.
callback CompletionHook = undefined (CompletionHookArgs args);

/// Runs before the group is aborted because of an error or a deadline.
callback AbortHook = undefined ();

partial interface ProcessGroup {
  /// Calls `hook` before each collective and message of this group on this rank, in the order of
  /// ids, on the thread that issues it and outside every lock.
  ///
  /// If a hook raises, or returns what has to be awaited, the operation is not issued, and the call
  /// raises what the hook did. The other ranks would wait for this one: the group is aborted, and
  /// their errors say which hook stopped which operation, and why. `nan_check` makes such a hook.
  ///
  /// A group without hooks costs nothing for them; operations with hooks take the long way, as
  /// calls with unusual arguments do. What a hook itself runs has no hooks; nor have barriers that
  /// are monitored, windows, and calls that make groups. A hook that holds its group keeps it until
  /// the group is left.
  ///
  /// - `hook_id`: its number; a hook of the same number is replaced.
  [Throws=InvalidGroup]
  undefined register_pre_hook(long long hook_id, PreHook hook);

  /// Forgets a hook; an unknown id is ignored.
  undefined unregister_pre_hook(long long hook_id);

  /// Calls `hook` after each operation was issued, in the order of ids, on the thread that issued
  /// it. An error in it is reported, and changes nothing. As `register_pre_hook` otherwise.
  ///
  /// - `hook_id`: its number; a hook of the same number is replaced.
  [Throws=InvalidGroup]
  undefined register_post_hook(long long hook_id, PostHook hook);

  /// Forgets a hook; an unknown id is ignored.
  undefined unregister_post_hook(long long hook_id);

  /// Calls `hook` when an operation has ended, well or not, in the order of ids, on the thread
  /// that notices the end: it must not wait for operations. Where that is another thread than the
  /// one that waits for the operation, that may go on before. An error in it is reported, and
  /// changes nothing.
  ///
  /// - `hook_id`: its number; a hook of the same number is replaced.
  [Throws=InvalidGroup]
  undefined register_completion_hook(long long hook_id, CompletionHook hook);

  /// Forgets a hook; an unknown id is ignored.
  undefined unregister_completion_hook(long long hook_id);

  /// Calls `hook` once, when this rank finds or is told that the group has failed, in the order of
  /// ids; operations of this rank that were in flight report it afterwards, so that it must not
  /// wait for them. At once, if that is known already; not if this rank aborts or leaves the group.
  /// Over libraries (`mpi`, `nccl`) it is called when an operation has reported it. An error in it
  /// is reported, and changes nothing.
  ///
  /// - `hook_id`: its number; a hook of the same number is replaced.
  [Throws=InvalidGroup]
  undefined register_abort_hook(long long hook_id, AbortHook hook);

  /// Forgets a hook; an unknown id is ignored.
  undefined unregister_abort_hook(long long hook_id);
};

partial namespace distributed {
  /// Makes a pre-hook that finds NaN and infinity in what an operation reads, before it spreads:
  /// it raises `NonFiniteInput`, which says where. It reads every input once more, and leaves
  /// alone what is on a device, or has no floating-point elements.
  ///
  /// - `allow_infinity`: whether only NaN is an error.
  [Handwritten, Rust="polyrank::nan_check"]
  PreHook nan_check(optional boolean allow_infinity = false);

  /// Makes `name` the name of all operations, of every group, that this thread or task calls in a
  /// block: `with record_comm("FSDP::all_gather (layer1)"):` in Python. Their errors say it beside
  /// the collective, `allreduce 'FSDP::all_gather (layer1)'`, and hooks are given it. The innermost
  /// block counts. It changes nothing else, and ranks may name the same operation differently. In
  /// Python it decorates functions, too: `@record_comm("layer1")`.
  [Handwritten, Own=javascript, Rust="polyrank::record_comm"]
  CommNameBlock record_comm(DOMString name);
};

/// The block in which operations have a name: `with record_comm(name):` in Python, or
/// `@record_comm(name)` above a function.
[Handwritten, NotIn=(javascript, rust), Since=0.1]
interface CommNameBlock {};
