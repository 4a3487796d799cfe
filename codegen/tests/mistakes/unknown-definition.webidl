/// A store.
class Store {
  boolean delete_key(DOMString key);
};
