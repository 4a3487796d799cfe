//! Everything that can go wrong, one kind each.

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Cheap to clone: every rank of a failed group hands it out often.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument has a value that the call cannot take.
    #[error("{message}")]
    InvalidArgument {
        /// What was expected, and what came.
        message: String,
    },
    /// An argument has the wrong type, or no overload takes the arguments.
    #[error("{message}")]
    InvalidType {
        /// What was expected, and what came.
        message: String,
    },
    /// The default group does not exist.
    #[error(
        "Default process group has not been initialized, please make sure to call \
         init_process_group."
    )]
    NotInitialized,
    /// The default group exists already.
    #[error("trying to initialize the default process group twice!")]
    AlreadyInitialized,
    /// The group was destroyed, or does not belong to this process.
    #[error("Invalid process group specified: {message}")]
    InvalidGroup {
        /// Which group, and why.
        message: String,
    },
    /// A group of this name exists already.
    #[error("a process group named '{name}' exists already; names must be unique")]
    DuplicateGroup {
        /// The name.
        name: String,
    },
    /// A backend of this name is registered already.
    #[error("Backend {name} already registered")]
    DuplicateBackend {
        /// The name.
        name: String,
    },
    /// No backend has this name.
    #[error("Unknown backend type '{name}'; known are: {known}")]
    UnknownBackend {
        /// The name.
        name: String,
        /// The names that are known.
        known: String,
    },
    /// The backend exists, but cannot be used here.
    #[error("backend '{backend}' is not available: {why}")]
    BackendUnavailable {
        /// The backend.
        backend: String,
        /// What was looked for, and what was found.
        why: String,
    },
    /// The backend or this version does not have the operation.
    #[error("{who} does not support {operation}")]
    Unsupported {
        /// The backend, store or group that was asked.
        who: String,
        /// The operation.
        operation: String,
    },
    /// The reduction has no meaning for the element type.
    #[error("ReduceOp.{reduce_op} is not defined for {dtype} tensors")]
    UnsupportedDType {
        /// The operator.
        reduce_op: String,
        /// The element type.
        dtype: String,
    },
    /// A rank is not part of a group.
    #[error("{message}")]
    RankNotInGroup {
        /// Which rank, which group.
        message: String,
    },
    /// Ranks called different operations, or the same with different arguments.
    #[error(
        "ranks disagree on operation {sequence} of group '{group}': rank {rank} runs {ours}, but \
         rank {other_rank} runs {theirs}. All ranks must call the same collectives in the same \
         order with matching arguments"
    )]
    CollectiveMismatch {
        /// The group's name.
        group: String,
        /// Sequence number of the operation.
        sequence: u64,
        /// One rank.
        rank: u32,
        /// What that rank runs.
        ours: String,
        /// Another rank.
        other_rank: u32,
        /// What the other rank runs.
        theirs: String,
    },
    /// An operation passed its deadline; the group is broken.
    #[error(
        "{collective} (operation {sequence} of group '{group}') on rank {rank} timed out after \
         {waited_ms} ms: {detail}"
    )]
    CollectiveTimeout {
        /// The group's name.
        group: String,
        /// The collective.
        collective: String,
        /// Sequence number of the operation.
        sequence: u64,
        /// This rank.
        rank: u32,
        /// How long it ran, ms.
        waited_ms: u64,
        /// Which ranks it waits for, and what they do.
        detail: String,
    },
    /// `Work.wait(timeout)` expired; the operation goes on.
    #[error("wait timed out after {waited_ms} ms; {collective} (operation {sequence}) goes on")]
    WaitTimeout {
        /// The collective.
        collective: String,
        /// Sequence number of the operation.
        sequence: u64,
        /// How long it waited, ms.
        waited_ms: u64,
    },
    /// A rank died or cannot be reached.
    #[error(
        "rank {rank} of group '{group}' is gone ({why}); {collective} (operation {sequence}) \
         cannot complete"
    )]
    RankFailed {
        /// The group's name.
        group: String,
        /// The rank that is gone.
        rank: u32,
        /// How it was noticed.
        why: String,
        /// The collective that was running here, or that was called.
        collective: String,
        /// Its sequence number.
        sequence: u64,
    },
    /// The group was aborted.
    #[error("group '{group}' was aborted: {why}")]
    Aborted {
        /// The group's name.
        group: String,
        /// By whom, why.
        why: String,
    },
    /// A point-to-point message and the buffer for it differ in size.
    #[error(
        "message from rank {from} to rank {to} with tag {tag} has {sent_bytes} bytes, but the \
         receive buffer has {buffer_bytes} bytes"
    )]
    MessageSize {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The tag.
        tag: u32,
        /// Bytes sent.
        sent_bytes: u64,
        /// Bytes of the receiver's buffer.
        buffer_bytes: u64,
    },
    /// Ranks did not come to the rendezvous in time.
    #[error("{message}")]
    RendezvousTimeout {
        /// Which ranks are missing, how long was waited.
        message: String,
    },
    /// Another failure of the rendezvous: a URL, a variable, a stale file.
    #[error("{message}")]
    Rendezvous {
        /// What is wrong, and what to do.
        message: String,
    },
    /// A key was not there in time.
    #[error("{operation} timeout after {waited_ms}ms, keys: {keys}")]
    StoreTimeout {
        /// The store's operation.
        operation: String,
        /// The keys that were waited for.
        keys: String,
        /// How long it waited, ms.
        waited_ms: u64,
    },
    /// The store refused a request.
    #[error("{message}")]
    Store {
        /// What is wrong.
        message: String,
    },
    /// The store's value is not a number that `add` can add to.
    #[error("value of key '{key}' is not a decimal number: add needs one")]
    NotACounter {
        /// The key.
        key: String,
    },
    /// The queue has no element.
    #[error("queue is empty")]
    QueueEmpty,
    /// A socket failed: connecting, binding, reading, writing.
    #[error("{message}")]
    Network {
        /// What failed, with which address.
        message: String,
    },
    /// A barrier found ranks missing.
    #[error("{message}")]
    MonitoredBarrier {
        /// Which ranks, how long was waited.
        message: String,
    },
    /// A failure of a backend's own library.
    #[error("{backend}: {message}")]
    Backend {
        /// The backend.
        backend: String,
        /// What its library says.
        message: String,
    },
}
