/// A process group.
interface ProcessGroup {
  /// Waits until all ranks came.
  [Python=(wait, barrier)]
  undefined barrier();
};
