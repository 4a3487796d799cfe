/// A store.
interface Store {
  /// The number of keys.
  long num_keys() @;
};
