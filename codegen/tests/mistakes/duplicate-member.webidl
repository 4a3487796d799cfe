/// A store.
interface Store {
  /// Sets a key.
  undefined set(DOMString key, DOMString key);
};
