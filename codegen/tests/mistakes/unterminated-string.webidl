/// How it ended.
enum WorkResult {
  /// Well.
  "SUCCESS
};
