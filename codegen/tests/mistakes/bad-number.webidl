/// A store.
interface Store {
  /// Sets the port.
  undefined set_port(optional unsigned long port = 99999999999999999999);
};
