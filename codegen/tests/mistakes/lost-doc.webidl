/// A store.
interface Store {
  /// Removes a key.
  boolean delete_key(DOMString key);
  /// Whether it was there.
};
