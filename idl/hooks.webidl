// Functions of the user that run before and after operations. Not implemented in this version.

/// What a hook learns before an operation is issued.
dictionary PreHookArgs {
  /// The operation: `ALLREDUCE`, `SEND`, …
  required DOMString name;
  /// Whether the caller gets a `Work`.
  required boolean async_op;
  /// The tensors that are read.
  required sequence<Tensor> input_tensors;
  /// The tensors that are written.
  required sequence<Tensor> output_tensors;
  /// The root, or the peer of a message; -1 if there is none.
  required long root;
  /// The number of the operation, from 0; the hooks before and after it get the same one.
  required unsigned long long op_id;
};

/// What a hook learns after an operation was issued.
dictionary PostHookArgs {
  /// The operation: `ALLREDUCE`, `SEND`, …
  required DOMString name;
  /// The number of the operation.
  required unsigned long long op_id;
  /// The operation's handle.
  required Work work;
};

/// Runs before an operation is issued. An error in it stops the operation.
callback PreHook = undefined (PreHookArgs args);

/// Runs after an operation was issued.
callback PostHook = undefined (PostHookArgs args);

/// Runs before the group is aborted because of an error or a deadline.
callback AbortHook = undefined ();

partial interface ProcessGroup {
  /// Calls `hook` before each operation, in the order of ids.
  [Unbuilt] undefined register_pre_hook(long long hook_id, PreHook hook);

  /// Forgets a hook; an unknown id is ignored.
  [Unbuilt] undefined unregister_pre_hook(long long hook_id);

  /// Calls `hook` after each operation was issued, in the order of ids.
  [Unbuilt] undefined register_post_hook(long long hook_id, PostHook hook);

  /// Forgets a hook; an unknown id is ignored.
  [Unbuilt] undefined unregister_post_hook(long long hook_id);

  /// Calls `hook` before the group is aborted because of an error or a deadline.
  [Unbuilt] undefined register_abort_hook(long long hook_id, AbortHook hook);

  /// Forgets a hook; an unknown id is ignored.
  [Unbuilt] undefined unregister_abort_hook(long long hook_id);
};
