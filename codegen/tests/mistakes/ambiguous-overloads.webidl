/// A tensor.
[Opaque] typedef any Tensor;

/// A process group.
interface ProcessGroup {
  /// All ranks get the root's tensor.
  undefined broadcast([InOut] Tensor tensor, [Root] optional unsigned long root = 0);
  undefined broadcast([InOut] Tensor tensor, [Tag] unsigned long tag);
};
