/// A process group.
interface ProcessGroup {};

partial interface ProcessGruop {
  /// The number of ranks.
  unsigned long size();
};
