// Every kind of error: its fields, its message, and the classes it is in Python, where all of them
// are subclasses of `PolyrankError`, a `RuntimeError`.

/// An argument has a value that the call cannot take.
[Error, Python=InvalidArgumentError, Bases=(ValueError),
 Message="{message}"]
dictionary InvalidArgument {
  /// What was expected, and what came.
  required DOMString message;
};

/// A mesh has no dimension of that name, or not in that place.
[Error, Python=MeshDimensionError, Parent=InvalidArgument, Bases=(KeyError),
 Message="{message}"]
dictionary MeshDimension {
  /// Which name was given, and which there are.
  required DOMString message;
};

/// An argument has the wrong type, or no overload takes the arguments.
[Error, Python=InvalidTypeError, Bases=(TypeError),
 Message="{message}"]
dictionary InvalidType {
  /// What was expected, and what came.
  required DOMString message;
};

/// The default group does not exist.
[Error, Python=NotInitializedError, Bases=(ValueError),
 Message="Default process group has not been initialized, please make sure to call init_process_group."]
dictionary NotInitialized {};

/// The default group exists already.
[Error, Python=AlreadyInitializedError, Bases=(ValueError),
 Message="trying to initialize the default process group twice! is_initialized() says whether there is one; destroy_process_group() leaves it"]
dictionary AlreadyInitialized {};

/// The group was destroyed, or does not belong to this process.
[Error, Python=InvalidGroupError, Bases=(ValueError),
 Message="Invalid process group specified: {message}"]
dictionary InvalidGroup {
  /// Which group, and why.
  required DOMString message;
};

/// `new_group` was given the name of a group that this process has already.
[Error, Python=DuplicateGroupError,
 Message="a process group named '{group_name}' exists already; names must be unique"]
dictionary DuplicateGroup {
  /// The name.
  required DOMString group_name;
};

/// There is a backend of this name: each is registered once.
[Error, Python=DuplicateBackendError, Bases=(ValueError),
 Message="Backend {backend} already registered"]
dictionary DuplicateBackend {
  /// The name.
  required DOMString backend;
};

/// No backend has this name.
[Error, Python=UnknownBackendError, Bases=(ValueError),
 Message="Unknown backend type '{backend}'; expected one of: {known}"]
dictionary UnknownBackend {
  /// The name.
  required DOMString backend;
  /// The names that exist.
  required DOMString known;
};

/// The backend exists, but cannot be used here.
[Error, Python=BackendUnavailableError, Parent=BackendError,
 Message="backend '{backend}' is not available: {why}"]
dictionary BackendUnavailable {
  /// The backend.
  required DOMString backend;
  /// What was looked for, and what was found.
  required DOMString why;
};

/// The backend or this version does not have the operation.
[Error, Python=UnsupportedError, Bases=(NotImplementedError),
 Message="{who} does not support {operation}"]
dictionary Unsupported {
  /// The backend, store or group that does not support it.
  required DOMString who;
  /// The operation.
  required DOMString operation;
};

/// The reduction has no meaning for the element type.
[Error, Python=UnsupportedDTypeError, Bases=(TypeError),
 Message="ReduceOp.{reduce_op} is not defined for {dtype} tensors"]
dictionary UnsupportedDType {
  /// The operator.
  required DOMString reduce_op;
  /// The element type.
  required DOMString dtype;
};

/// A rank is not part of a group.
[Error, Python=RankNotInGroupError, Bases=(ValueError),
 Message="{message}"]
dictionary RankNotInGroup {
  /// Which rank, which group.
  required DOMString message;
};

/// Ranks called different operations, or the same with different arguments.
[Error, Python=CollectiveMismatchError, Parent=BackendError,
 Message="ranks disagree on {collective} (operation {sequence} of group '{group}'): rank {rank} runs {ours}, but rank {other_rank} runs {theirs}. All ranks must call the same collectives in the same order with matching arguments. The group is broken: each later call on it ends with this error, too"]
dictionary CollectiveMismatch {
  /// The group's name.
  required DOMString group;
  /// The collective that `rank` runs, with the name that `record_comm` gave it here, where this is
  /// the operation that fails.
  required DOMString collective;
  /// Sequence number of the operation.
  required unsigned long long _sequence;
  /// One rank.
  required Rank rank;
  /// What that rank runs.
  required DOMString ours;
  /// Another rank.
  required Rank other_rank;
  /// What the other rank runs.
  required DOMString theirs;
};

/// An operation passed its deadline; the group is broken, unless it only looked for a message
/// (`probe`) or a signal of a window. `rank` and `missing_ranks` name the ranks that did not come.
[Error, Python=CollectiveTimeoutError, Parent=BackendError, Bases=(TimeoutError),
 Message="{collective} (operation {sequence} of group '{group}') on rank {waiting_rank} timed out after {waited_ms} ms: {detail}"]
dictionary CollectiveTimeout {
  /// The group's name.
  required DOMString group;
  /// The collective.
  required DOMString collective;
  /// Sequence number of the operation.
  required unsigned long long _sequence;
  /// The first of `missing_ranks`. Where no particular rank is missing (a receive from any
  /// rank), the rank that waited.
  required Rank rank;
  /// The ranks that did not come, as far as is known, in ascending order.
  required sequence<Rank> missing_ranks;
  /// The rank whose limit passed first; it notified the others.
  required Rank waiting_rank;
  /// How long it ran, ms.
  required unsigned long long waited_ms;
  /// Which ranks it waits for, and what they do.
  required DOMString detail;
};

/// `Work.wait(timeout)` expired; the operation continues.
[Error, Python=WaitTimeoutError, Bases=(TimeoutError),
 Message="wait timed out after {waited_ms} ms; {collective} (operation {sequence}) goes on"]
dictionary WaitTimeout {
  /// The collective.
  required DOMString collective;
  /// Sequence number of the operation.
  required unsigned long long _sequence;
  /// How long it waited, ms.
  required unsigned long long waited_ms;
};

/// A rank died or cannot be reached.
[Error, Python=RankFailedError, Parent=BackendError,
 Message="rank {rank} of group '{group}' is gone ({why}); {collective} (operation {sequence}) cannot complete"]
dictionary RankFailed {
  /// The group's name.
  required DOMString group;
  /// The rank that is gone.
  required Rank rank;
  /// How it was noticed.
  required DOMString why;
  /// The collective that was running here, or that was called.
  required DOMString collective;
  /// Its sequence number.
  required unsigned long long _sequence;
};

/// The group was aborted.
[Error, Python=AbortedError, Parent=BackendError,
 Message="group '{group}' was aborted by rank {rank}: {why}; {collective} (operation {sequence}) cannot complete"]
dictionary Aborted {
  /// The group's name.
  required DOMString group;
  /// The rank that aborted it, or left it with operations in flight.
  required Rank rank;
  /// Why. `Reconfigured`, a case of this error, does not have it.
  required DOMString why;
  /// The collective that was running here, or that was called.
  required DOMString collective;
  /// Its sequence number.
  required unsigned long long _sequence;
};

/// A pre-hook failed with an error that is not one of polyrank's.
[Error, Python=HookFailedError, Message="{message}"]
dictionary HookFailed {
  /// What it failed with.
  required DOMString message;
};

/// The function of a custom reduction failed on this rank. The group is aborted. What the function
/// threw is what the operation fails with where the language can carry that.
[Error, Carries, Python=ReductionFailedError, Message="{message}"]
dictionary ReductionFailed {
  /// Which operation, on which rank, and what its function failed with.
  required DOMString message;
};

/// What an operation was to read has an element that is not a finite number: found by `nan_check`.
[Error, Python=NonFiniteInputError, Bases=(ValueError),
 Message="{operation} of rank {rank}: element {element} of input {tensor}, of {dtype}, is {value}"]
dictionary NonFiniteInput {
  /// The operation: `ALLREDUCE`.
  required DOMString operation;
  /// This process's rank in the group.
  required Rank rank;
  /// The position of the tensor among the inputs.
  required unsigned long tensor;
  /// The index of the first such element: `(3, 0)`.
  required DOMString element;
  /// The element type.
  required DOMString dtype;
  /// The element: `NaN`, `inf` or `-inf`.
  required DOMString value;
};

/// A member reconfigured the group while the operation was in flight, or between its check and its
/// start. The group goes on with its new members.
[Error, Python=ReconfiguredError, Parent=Aborted,
 Message="group '{group}' was reconfigured by rank {rank}; {collective} (operation {sequence}) ended with its former members"]
dictionary Reconfigured {
  /// The group's name.
  required DOMString group;
  /// The rank, among the former members, that reconfigured it first.
  required Rank rank;
  /// The collective that was running here, or that was called.
  required DOMString collective;
  /// Its sequence number.
  required unsigned long long _sequence;
};

/// The group has no members: it was made for `reconfigure`, which has not been called, is under
/// way, or has failed.
[Error, Python=NoMembersError,
 Message="group '{group}' has no members {why}; {operation} needs them: call reconfigure() first"]
dictionary NoMembers {
  /// The group's name.
  required DOMString group;
  /// Since when, or why.
  required DOMString why;
  /// What was called.
  required DOMString operation;
};

/// A point-to-point message and the buffer for it differ in size.
/// A small message is already sent, and breaks the group; one of a rank to itself does not.
[Error, Python=MessageSizeError, Bases=(ValueError),
 Message="message from rank {from} to rank {to} with tag {tag} has {sent_bytes} bytes, but the receive buffer has {buffer_bytes} bytes; {collective} cannot complete"]
dictionary MessageSize {
  /// The sender.
  [Python=from_rank] required Rank from;
  /// The receiver.
  [Python=to_rank] required Rank to;
  /// The tag.
  required unsigned long tag;
  /// Bytes sent.
  required unsigned long long sent_bytes;
  /// Bytes of the receiver's buffer.
  required unsigned long long buffer_bytes;
  /// The operation that was running here, or that was called.
  required DOMString collective;
};

/// A point-to-point message and the buffer for it differ in their element type. A buffer of
/// `uint8` takes the bytes of a message of any type.
[Error, Python=MessageDTypeError, Bases=(TypeError),
 Message="message from rank {from} to rank {to} with tag {tag} has {sent_dtype} elements, but the receive buffer has {buffer_dtype} elements; {collective} cannot complete. Receive into a tensor of the sender's dtype, or into a uint8 view of the buffer to take the bytes as they are"]
dictionary MessageDType {
  /// The sender.
  [Python=from_rank] required Rank from;
  /// The receiver.
  [Python=to_rank] required Rank to;
  /// The tag.
  required unsigned long tag;
  /// The element type of the message.
  required DOMString sent_dtype;
  /// The element type of the receiver's buffer.
  required DOMString buffer_dtype;
  /// The operation that was running here, or that was called.
  required DOMString collective;
};

/// Ranks did not come to the rendezvous in time. As in `CollectiveTimeout`, `rank` and
/// `missing_ranks` name who did not come: global ranks, as `new_group` takes them, also where a
/// group of some of them is made.
[Error, Python=RendezvousTimeoutError, Parent=Rendezvous, Bases=(TimeoutError),
 Message="{message}"]
dictionary RendezvousTimeout {
  /// The first of `missing_ranks`. Where no particular rank is known to be missing, the rank that
  /// waited.
  required Rank rank;
  /// The ranks that did not come, as far as is known, in ascending order; of more than 128, the
  /// first.
  required sequence<Rank> missing_ranks;
  /// Which ranks are missing, how long was waited.
  required DOMString message;
};

/// Another failure of the rendezvous: a URL, a variable, a stale file.
[Error, Python=RendezvousError, Bases=(ValueError),
 Message="{message}"]
dictionary Rendezvous {
  /// What is wrong, and what to do.
  required DOMString message;
};

/// A key was not there in time.
[Error, Python=StoreTimeoutError, Parent=StoreError, Bases=(TimeoutError),
 Message="{operation} timeout after {waited_ms}ms, keys: {keys}"]
dictionary StoreTimeout {
  /// The store's operation.
  required DOMString operation;
  /// The keys that were waited for.
  required DOMString keys;
  /// How long it waited, ms.
  required unsigned long long waited_ms;
};

/// The store refused a request.
[Error, Rust=Store, Python=DistStoreError,
 Message="{message}"]
dictionary StoreError {
  /// What is wrong.
  required DOMString message;
};

/// The store's value is not a number that `add` can add to, or the sum has more than 64 bits.
[Error, Python=NotACounterError, Parent=StoreError, Bases=(TypeError),
 Message="cannot add to key '{key}': its value and the sum must be whole decimal numbers of 64 bits"]
dictionary NotACounter {
  /// The key.
  required DOMString key;
};

/// The queue has no element.
[Error, Python=QueueEmptyError, Parent=StoreError,
 Message="queue is empty"]
dictionary QueueEmpty {};

/// A socket failed: connecting, binding, reading, writing.
[Error, Python=DistNetworkError,
 Message="{message}"]
dictionary Network {
  /// What failed, with which address.
  required DOMString message;
};

/// The replicas have no quorum yet: call `start_quorum` again.
[Error, Python=QuorumError,
 Message="{message}"]
dictionary Quorum {
  /// Who asked, and why there is none.
  required DOMString message;
};

/// The manager of a replica cannot go on: end the replica, and start it anew.
[Error, Python=ManagerFailedError,
 Message="{message}"]
dictionary ManagerFailed {
  /// Which replica, and why.
  required DOMString message;
};

/// A barrier found ranks missing.
[Error, Python=MonitoredBarrierError, Parent=BackendError, Bases=(TimeoutError),
 Message="{message}"]
dictionary MonitoredBarrier {
  /// The group's name.
  required DOMString group;
  /// `monitored_barrier`.
  required DOMString collective;
  /// The first of `missing_ranks`.
  required Rank rank;
  /// All ranks that did not come, in ascending order, also where the message names the first
  /// only.
  required sequence<Rank> missing_ranks;
  /// Which ranks, how long was waited.
  required DOMString message;
};

/// A failure of a backend's own library.
[Error, Rust=Backend, Python=DistBackendError,
 Message="{backend}: {message}"]
dictionary BackendError {
  /// The backend. Of the cases of this error, only `BackendUnavailable` has it.
  required DOMString backend;
  /// The library's message.
  required DOMString message;
};
