/// A length of time.
[Opaque] typedef any Duration;

/// A store.
interface Store {
  /// Waits for a key.
  undefined wait(DOMString key, optional Duration timeout = "soon");
};
