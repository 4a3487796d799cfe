/// A process group.
interface ProcessGroup {
  /// Waits until all ranks came.
  undefined barrier();
  static undefined barrier(boolean wait_all_ranks);
};
