// The key-value stores through which ranks meet.

/// A key-value store that ranks share. Keys are strings, values are bytes.
///
/// Requests that wait (`get`, `wait`, `multi_get`, a blocking `queue_pop`) wait up to the store's
/// timeout, 300 s unless set, and then raise `StoreTimeout`. This is the base class of all
/// stores; use `TCPStore`, `FileStore`, `HashStore` or `PrefixStore`.
///
/// If several calls of one store are not awaited, they run in the order in which they are made,
/// including those through a `PrefixStore`. Only a request that waits (for a key, say) does not
/// hold up later ones. The one connection of a `TCPStore` handles one request at a time, though:
/// make calls that must not wait for such a request on a `clone`.
[Since=0.1]
interface Store {
  /// Sets `key` to `value`, replacing what was there.
  [Waits, Throws=StoreError] undefined set(DOMString key, Bytes value);

  /// The value of `key`; waits for the key up to the store's timeout.
  [Waits, Blocks, Throws=StoreTimeout] Bytes get(DOMString key);

  /// Adds `amount` to the decimal number at `key`, 0 if there is none, atomically; returns the sum.
  ///
  /// `get` returns the number as decimal text.
  [Waits, Throws=NotACounter] long long add(DOMString key, long long amount);

  /// Appends `value` to the value of `key`, which is created if it is not there.
  [Waits, Throws=StoreError] undefined append(DOMString key, Bytes value);

  /// Whether all `keys` are there. Does not wait.
  [Waits] boolean check(sequence<DOMString> keys);

  /// Another handle on the same data, which does not wait for this one's requests: a store of the
  /// same class.
  [Handwritten, Waits, Rust=clone_store] Store clone();

  /// Sets `key` to `desired_value` if its value is `expected_value`, or if it has none and
  /// `expected_value` is empty; atomically.
  ///
  /// Returns the value afterwards; `expected_value` if there is none.
  [Waits] Bytes compare_set(DOMString key, Bytes expected_value, Bytes desired_value);

  /// Removes `key`; returns whether it was there.
  [Waits] boolean delete_key(DOMString key);

  /// Whether `append`, `multi_get`, `multi_set` and the queues work on this store.
  boolean has_extended_api();

  /// The values of `keys`, in their order, in one request; waits for all of them.
  [Waits, Blocks, Throws=StoreTimeout] sequence<Bytes> multi_get(sequence<DOMString> keys);

  /// Sets several keys in one request; there must be as many values as keys.
  [Waits, Throws=InvalidArgument]
  undefined multi_set(sequence<DOMString> keys, sequence<Bytes> values);

  /// The number of keys. The key by which a `TCPStore` counts its workers is not one of them, as it
  /// is in PyTorch; queues are not counted. A `PrefixStore` counts those of its whole
  /// store; `list_keys` has only its own.
  [Waits] long long num_keys();

  /// All keys, in no particular order.
  [Waits] sequence<DOMString> list_keys();

  /// Appends `value` to the queue `key`. Queues and values have separate keys: `delete_key` does
  /// not remove a queue, nor `queue_pop` a value. `get` of a key that is only a queue's waits; a
  /// `TCPStore` returns an empty value, as PyTorch's does.
  [Waits, Throws=StoreError] undefined queue_push(DOMString key, Bytes value);

  /// Takes the first value of the queue `key`. On an empty queue it waits up to the store's
  /// timeout if `block`, else it raises `QueueEmpty`.
  [Waits, Blocks, Throws=(QueueEmpty, StoreTimeout)]
  Bytes queue_pop(DOMString key, optional boolean block = true);

  /// Length of the queue `key`, 0 if there is none.
  [Waits] long long queue_len(DOMString key);

  /// Sets the limit of requests that wait; zero is none.
  undefined set_timeout(Duration timeout);

  /// Limit of requests that wait; zero is none.
  readonly attribute Duration timeout;

  /// Waits until all `keys` are there, up to the store's timeout.
  [Handwritten, Waits, Blocks, Throws=StoreTimeout]
  undefined wait(sequence<DOMString> keys);

  /// Waits until all `keys` are there, up to `timeout`; zero is no limit.
  [Handwritten, Waits, Blocks, Throws=StoreTimeout]
  undefined wait(sequence<DOMString> keys, Duration timeout);

  /// Waits until `world_size` callers came to the barrier `key`. Each key can be used once.
  ///
  /// - `timeout`: limit of the wait; none: the store's; zero: no limit.
  [Waits, Blocks, Throws=StoreTimeout]
  undefined barrier(DOMString key, unsigned long world_size, optional Duration? timeout = null);
};

/// A store in this process's memory, for ranks that are threads, and for tests.
[Since=0.1]
interface HashStore : Store {
  /// An empty store.
  constructor();
};

/// A store in a file that all ranks can access; access is by file locks.
///
/// The file must not be left over from an earlier job.
[Since=0.1]
interface FileStore : Store {
  /// Opens or creates `file_name`. The last of `world_size` users removes the file; with a negative
  /// `world_size` it is not removed.
  [Factory=open, Waits, Throws=StoreError]
  constructor(DOMString file_name, [Positional] optional long world_size = -1);

  /// The file.
  readonly attribute DOMString path;
};

/// A view of another store: every key gets a prefix. This is how several groups share a store.
[Since=0.1]
interface PrefixStore : Store {
  /// Puts `prefix` and a slash before every key of `store`.
  constructor(DOMString prefix, Store store);

  /// The store that this one is a view of.
  [Handwritten] readonly attribute Store underlying_store;

  /// The prefix.
  readonly attribute DOMString prefix;
};

/// A store served by one process over TCP. Speaks PyTorch's wire protocol: server and clients may
/// each be PyTorch.
[Rust=TcpStore, Since=0.1]
interface TCPStore : Store {
  /// Connects to the store at `host_name`:`port`, and serves it as well if `is_master`.
  ///
  /// - `port`: 0 lets the server choose; read `port` then.
  /// - `world_size`: the number of users, the server's included; none: open-ended.
  /// - `timeout`: limit of connecting and of requests that wait; zero is none.
  /// - `wait_for_workers`: the server waits for `world_size` users.
  /// - `multi_tenant`: servers of this process on one port are one server.
  /// - `master_listen_fd`: serve on this listening socket; the port must be its port.
  /// - `use_libuv`: accepted for compatibility; there is one server.
  [Factory=connect, Own=python, Waits, Throws=(Network, StoreTimeout)]
  constructor(DOMString host_name, unsigned long port,
              [Positional] optional long? world_size = null,
              [Positional] optional boolean is_master = false, optional Duration timeout = 300,
              optional boolean wait_for_workers = true, optional boolean multi_tenant = false,
              [NotIn=javascript] optional long? master_listen_fd = null,
              optional boolean use_libuv = true);

  /// The host that was passed.
  readonly attribute DOMString host;

  /// The port on which the server listens.
  readonly attribute unsigned long port;

  /// Whether the server is libuv's; never.
  [Alias=libuvBackend, Handwritten, NotIn=rust] readonly attribute boolean libuv_backend;
};

/// A store reached over a WebSocket, from a browser too. Every store server of polyrank answers
/// WebSockets on its port; one of PyTorch does not.
///
/// A WebSocket that breaks is reopened, and no request is lost or run twice. Meanwhile the other
/// ranks wait for this one, for a grace period of 1.5 s unless it sets another; after that, they
/// take it to be dead.
[Since=0.1]
interface WebSocketStore : Store {
  /// Connects to `url`, a `ws://` or `wss://` address, retrying until `timeout`.
  ///
  /// - `timeout`: limit of connecting and of requests that wait; zero is none.
  /// - `reconnect_grace`: how long the others wait for this process when its WebSocket is lost and
  ///   not closed: the store, at most 30 min, and the ranks of groups that meet in it, at most
  ///   1 min; none: `POLYRANK_RECONNECT_GRACE_MS`, where there is an environment, or else 1.5 s.
  [Factory=connect, Rust=connect, Waits, Throws=(Network, StoreTimeout)]
  constructor(DOMString url, optional Duration timeout = 300,
              optional Duration? reconnect_grace = null);

  /// The address of the store.
  readonly attribute DOMString url;
};
