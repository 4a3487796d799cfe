/// A store.
interface Store {
  /// Sets a key.
  undefined set(sequence<sequence<sequence<sequence<sequence<sequence<sequence<sequence<sequence<long>>>>>>>>> key);
};
