/// A store.
interface Store {
  /// Sets a key.
  boolean set(undefined key);
};
