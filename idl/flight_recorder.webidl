// What was called, for those who ask why a job hangs.

partial interface ProcessGroup {
  /// Writes to a file what all ranks of the job have called lately, in all their groups, and what
  /// of that is not done: JSON, in the layout of PyTorch's flight recorder, which `polyrank trace`
  /// explains.
  ///
  /// - `path`: none: `polyrank_trace.json` in the folder that `POLYRANK_TRACE_DIR` names, or in the
  ///   present one.
  ///
  /// Ranks answer whether they wait or compute; those that have not after 3 s are listed as
  /// missing. Returns the path. A page cannot write files: there it raises `Unsupported`.
  [Handwritten, Waits, Throws=(InvalidArgument, Unsupported)]
  DOMString dump(optional DOMString? path = null);
};
