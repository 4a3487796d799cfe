/// A store.
interface Store {
  /// An empty store.
  [Factory=open] constructor();
};
