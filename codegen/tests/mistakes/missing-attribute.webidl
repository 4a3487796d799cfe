/// A key was not there in time.
[Error]
dictionary StoreTimeout {
  /// The keys.
  required DOMString keys;
};
