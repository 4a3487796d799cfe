/// A tensor.
[Opaque] typedef any Tensor;

/// A process group.
interface ProcessGroup {
  /// All ranks get the root's tensor.
  [Collective=broadcast, Number=0, Input=None, Output=One, Sizes=Equal, Rooted]
  undefined broadcast(Tensor tensor, [Root] unsigned long root);
};
