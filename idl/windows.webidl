// One-sided access to other ranks' memory. Not implemented in this version.

/// Memory of all ranks of a group that each of them can reach without the owner's help.
[Unbuilt]
interface Window {
  /// Opens a tensor to the other ranks. All ranks call it.
  undefined tensor_register(Tensor tensor, optional boolean owning = true);

  /// Closes what `tensor_register` opened. All ranks call it.
  undefined tensor_deregister();

  /// Writes `tensor` to the memory of `dst`, from element `offset_nelems` on.
  Work put(Tensor tensor, Rank dst, unsigned long long offset_nelems,
           optional boolean async_op = false);

  /// Signals `peer`.
  Work signal(Rank peer, optional boolean async_op = false);

  /// Waits for the signal of `peer`.
  Work wait_signal(Rank peer, optional boolean async_op = false);

  /// A tensor over the memory of a rank on this host.
  Tensor map_remote_tensor(Rank rank);

  /// `UNIFIED` or `SEPARATE`: whether a rank's memory is one for it and for others.
  DOMString get_attr(Rank rank);
};

partial interface ProcessGroup {
  /// Makes a window, over `tensor` if it is given. All ranks call it.
  [Unbuilt] Window new_window(optional Tensor? tensor = null);

  /// Whether the group has windows.
  [Handwritten] readonly attribute boolean supports_window;
};
