/// An operation that is started again and again.
interface PreparedOperation {};

/// A process group.
interface ProcessGroup {
  /// Waits until all ranks came.
  undefined barrier();
  /// Prepares a barrier.
  [Prepares=barier] PreparedOperation prepare_barrier();
};
