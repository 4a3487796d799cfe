/// A key was not there in time.
[Error, Message="timeout: {keys}"]
dictionary StoreTimeout {
  /// The keys.
  required DOMString keys;
};

/// A store.
interface Store {
  /// The value of a key.
  [Throws=StoreTimeOuts] DOMString get(DOMString key);
};
