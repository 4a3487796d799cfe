/// A store.
interface Store {
  /// Removes a key.
  boolean delete_key(DOMString key)

  /// The number of keys.
  long long num_keys();
};
