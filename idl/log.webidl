// What is compared, and what is logged.

/// How much is compared before operations are issued, and noted of them: c10d's levels. What is
/// compared is about the backends `mpi` and `nccl`; ranks of the others are always compared.
[Numbers="0 1 2", Since=0.1]
enum DebugLevel {
  /// Ranks are compared once an operation makes no progress.
  "OFF",
  /// As `OFF`. With `TORCH_CPP_LOG_LEVEL=INFO` more is logged.
  "INFO",
  /// Ranks compare through the store what they run, before they run it. Each notes where it has
  /// called it: dumps say that, and errors of ranks that disagree say it of both. That takes time.
  "DETAIL"
};

partial namespace distributed {
  /// How much is compared: what `set_debug_level` set last, else what `POLYRANK_DEBUG` or
  /// `TORCH_DISTRIBUTED_DEBUG` says.
  [Throws=InvalidArgument] DebugLevel get_debug_level();

  /// Sets how much groups compare that are made from now on. All ranks set the same.
  undefined set_debug_level(DebugLevel level);

  /// Sets what `POLYRANK_DEBUG` or `TORCH_DISTRIBUTED_DEBUG` says now.
  [Throws=InvalidArgument] undefined set_debug_level_from_env();
};
