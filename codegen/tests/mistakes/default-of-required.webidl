/// A store.
interface Store {
  /// Takes the first value of a queue.
  DOMString queue_pop(DOMString key, boolean block = true);
};
