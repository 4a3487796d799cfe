/// No backend has this name.
[Error, Message="unknown backend '{name}'"]
dictionary UnknownBackend {
  /// The name.
  required DOMString name;
};
