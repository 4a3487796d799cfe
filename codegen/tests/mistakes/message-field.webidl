/// A key was not there in time.
[Error, Message="{operation} timeout, keys: {key}"]
dictionary StoreTimeout {
  /// The store's operation.
  required DOMString operation;
  /// The keys.
  required DOMString keys;
};
