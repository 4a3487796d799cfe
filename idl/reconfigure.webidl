// Groups whose members change. Not implemented in this version.

/// The members of the group from now on.
dictionary ReconfigureOptions {
  /// A number that no earlier call of any member had.
  required long long uuid;
  /// Handles of the members; their positions are the new ranks if `ordered`.
  required sequence<DOMString> handles;
  /// Whether positions in `handles` are ranks.
  boolean ordered = true;
  /// Limit of the call; none: the group's.
  Duration? timeout = null;
};

partial interface ProcessGroup {
  /// Replaces the members of this group. All new members call it, with the same options.
  [Unbuilt] Work reconfigure(ReconfigureOptions opts);

  /// This process's handle, which the others need for `reconfigure`. It changes with every call.
  [Unbuilt] DOMString get_reconfigure_handle();

  /// Whether the group can be reconfigured.
  [Handwritten] readonly attribute boolean supports_reconfigure;
};
