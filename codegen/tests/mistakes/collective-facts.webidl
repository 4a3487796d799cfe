/// A process group.
interface ProcessGroup {
  /// Waits until all ranks came.
  [Collective=barrier, Number=0, Input=None, Output=None, Sizes=Equal]
  undefined barrier();

  /// Waits until all ranks came, and says who did not.
  [Collective=barier]
  undefined monitored_barrier();
};
