/// A tensor.
[Opaque] typedef any Tensor;

/// A process group.
interface ProcessGroup {
  /// Sends a tensor.
  undefined send(Tenser tensor);
};
