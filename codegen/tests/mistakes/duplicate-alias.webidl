/// A store.
interface Store {
  /// Sets a key.
  undefined set(DOMString key);

  /// Adds to a key.
  [Alias=set] undefined add(DOMString key, long amount);
};
