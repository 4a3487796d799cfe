/// A store.
interface Store {
  /// Sets `key`.
  undefined set([Positional] DOMString key);
};
