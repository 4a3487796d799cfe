/// A store.
interface Store {};

/// Another store.
interface Store {};
