/// A store.
interface Store {
  /// Takes the first value of a queue.
  DOMString queue_pop(optional boolean block = true, DOMString key);
};
