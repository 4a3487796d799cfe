/// A store.
interface Store {};

/// A store in a file.
interface FileStore : Stor {};
