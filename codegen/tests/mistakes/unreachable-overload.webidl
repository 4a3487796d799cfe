/// A store.
interface Store {
  /// Waits for keys.
  undefined wait(sequence<DOMString> keys, optional double? seconds = null);
  undefined wait(sequence<DOMString> keys);
};
