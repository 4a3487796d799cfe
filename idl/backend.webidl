// The backends, which run operations.

/// The kinds of backends, with c10d's numbers; that of the TCP backend is c10d's `GLOO`.
[Numbers="0 1 2 3 4 5 6", Since=0.1]
enum BackendType {
  /// None.
  "UNDEFINED",
  /// Sockets, host memory.
  "GLOO",
  /// NVIDIA's library, device memory.
  "NCCL",
  /// Unified Collective Communication.
  "UCC",
  /// A Message Passing Interface library.
  "MPI",
  /// Intel's library.
  "XCCL",
  /// Registered by the user.
  "CUSTOM"
};

/// The names of backends, with those that a program registers; `gloo` is an alias of `tcp`.
[Constants, NotIn=rust, Since=0.1]
enum Backend {
  /// None.
  "undefined",
  /// An alias of `tcp`.
  "gloo",
  /// NVIDIA's library, device memory.
  "nccl",
  /// Unified Collective Communication.
  "ucc",
  /// A Message Passing Interface library.
  "mpi",
  /// Intel's library.
  "xccl",
  /// Sockets, host memory.
  "tcp",
  /// Ranks in browsers, and those that meet them.
  "websocket",
  /// One process as a rank of a group of any size, for tests of programs.
  "fake"
};

/// Options with which a group is made.
[Rust=GroupOptions, Since=0.1]
dictionary BackendOptions {
  /// The backend's name; none: the parent group's.
  DOMString? backend = null;
  /// Limit of each operation; none: the parent group's, or 30 min.
  Duration? timeout = null;
  /// The group's name; empty: generated.
  [Rust="SplitOptions::name"] DOMString group_name = "";
  /// Global ranks of the members, by rank in the group; empty: those of the group.
  [Rust="NewGroupOptions::ranks"] sequence<Rank> global_ranks_in_group = [];
};

/// Configuration of NCCL communicators: c10d's `NCCLConfig`. What is not set, the library chooses.
/// Setting what the library is too old for is an error, raised before ranks meet.
[Since=0.1]
dictionary NcclConfig {
  /// Whether calls of NCCL block, 0 or 1. Only 0 is accepted: they never block here, so that every
  /// wait has a deadline.
  unsigned long? blocking = null;
  /// Thread blocks that form a cluster, 0 to 8.
  unsigned long? cga_cluster_size = null;
  /// Minimum number of thread blocks for a kernel, from 1.
  unsigned long? min_ctas = null;
  /// Maximum number of thread blocks for a kernel, not below `min_ctas`.
  unsigned long? max_ctas = null;
  /// Name of the network module, such as `Socket` or `IB`.
  DOMString? net_name = null;
  /// Whether communicators that are split off share the parent's resources, 0 or 1.
  unsigned long? split_share = null;
  /// Traffic class of the network's packets. Needs NCCL 2.26.
  unsigned long? traffic_class = null;
  /// Name of the communicator in what the library logs and traces. Needs NCCL 2.27.
  DOMString? comm_name = null;
  /// Whether reductions in the network are used, 0 or 1. Needs NCCL 2.27.
  unsigned long? collnet_enable = null;
  /// The policy for thread blocks: 0 is the default, 1 efficiency, 2 none of them where possible.
  /// Needs NCCL 2.27.
  unsigned long? cta_policy = null;
  /// Whether a communicator that is shrunk shares the original's resources, 0 or 1. Needs NCCL
  /// 2.27.
  unsigned long? shrink_share = null;
  /// Number of thread blocks for NVLink SHARP, from 1. Needs NCCL 2.27.
  unsigned long? nvls_ctas = null;
  /// Channels to each peer over the network, from 1. Needs NCCL 2.28.
  unsigned long? n_channels_per_net_peer = null;
  /// Whether NVLink traffic is scheduled first, 0 or 1. Needs NCCL 2.28.
  unsigned long? nvlink_centric_sched = null;
};

/// Options with which a group over NCCL is made: c10d's `ProcessGroupNCCL.Options`. They are given
/// in place of `BackendOptions`, to a group in which NCCL serves a device.
[Backends="nccl", Since=0.1]
dictionary NcclOptions : BackendOptions {
  /// Whether the group's kernels have priority over those of other streams.
  boolean is_high_priority_stream = false;
  /// Whether `wait()` blocks the thread until the operation is done on the device, instead of
  /// ordering the caller's stream after it.
  boolean blocking_wait = false;
  /// Configuration of NCCL itself.
  NcclConfig config = {};
};

/// What runs a group's operations on one kind of device.
[Handwritten, Own=javascript, Since=0.1]
interface DeviceBackend {
  /// The backend's name, lower case, as it was asked for: `tcp`, `gloo`.
  [Handwritten, Alias=(getBackendName, backend_name)] DOMString name();

  /// This process's rank.
  [Handwritten] Rank rank();

  /// The number of ranks.
  [Handwritten] unsigned long size();

  /// The options with which it was made.
  [Handwritten, NotIn=rust] readonly attribute BackendOptions options;

  /// Its kind: `CUSTOM` for one that the program registered, and for those that c10d does not know.
  [Handwritten] readonly attribute BackendType backend_type;
};

/// Makes the backend of one rank of a new group.
[Own=javascript]
callback ProcessGroupFactory = any (Store store, Rank rank, unsigned long world_size,
                                    Duration timeout);

partial namespace distributed {
  /// Registers a backend for all later groups of this process, and for good. Its name can be given
  /// wherever a backend is named: alone, as `mine`, or for a kind of device, as
  /// `cpu:mine,cuda:nccl`.
  ///
  /// When a group is made, `func` is called on every rank, with the group's store, the rank, the
  /// number of ranks and the limit of operations; with `extended_api`, with a
  /// `DistributedBackendOptions`, which has more, and what the group was given as its options: a
  /// `BackendOptions`, or whatever else this backend takes. A group that is made from another gets
  /// those of the other, unless it is given its own. What the factory returns (or awaits) is
  /// an object with the methods of c10d's backends: `allreduce(tensors, opts)`,
  /// `allgather(output_tensors, input_tensors, opts)`, `recv(tensors, src, tag)` and so on, as many
  /// as it has; a call of one that it lacks raises `Unsupported`. Its tensors are flat, in host
  /// memory, and its own: results are copied back when an operation has ended. A method returns
  /// nothing when it is done, or what can be awaited: a work, a future, a coroutine, a promise.
  /// What it raises is that operation's error; one that is not done by its deadline breaks the
  /// group. `abort` and `shutdown` are called if it has them.
  ///
  /// - `name`: its name, which begins with a letter; case does not matter.
  /// - `func`: makes the backend of this rank in a new group.
  /// - `devices`: kinds of devices that it may be named for; none: `cpu` and `cuda`, as in c10d.
  ///   The name alone stands for all of them. Tensors of a CUDA device go by way of memory of the
  ///   host, where it serves `cpu` and no other backend serves `cuda`; one that serves `cuda` alone
  ///   is not given them.
  [Handwritten, Own=javascript, Rust="polyrank::register_backend",
   Throws=(DuplicateBackend, InvalidArgument)]
  undefined register_backend(DOMString name, ProcessGroupFactory func,
                             optional boolean extended_api = false,
                             optional Object? devices = null);

  /// Whether this build has a backend and its library can be loaded here.
  boolean is_backend_available(DOMString backend);

  /// Why a backend cannot be used here: what was looked for, and what is wrong with what was found.
  /// Empty if it can be used.
  DOMString backend_unavailable_reason(DOMString backend);

  /// Whether the TCP backend, of which `gloo` is an alias, is available.
  [Alias=is_tcp_available] boolean is_gloo_available();

  /// Whether the NCCL backend is available.
  boolean is_nccl_available();

  /// Whether the MPI backend is available: an MPI library is found that matches the launcher of
  /// this process. It is loaded, but not initialised.
  boolean is_mpi_available();

  /// Whether the UCC backend is available; it never is.
  boolean is_ucc_available();

  /// Whether the XCCL backend is available; it never is.
  boolean is_xccl_available();

  /// The name of the backend that serves a kind of device.
  ///
  /// - `device`: `cpu`, `cuda`, `cuda:1`; in Python a `torch.device` as well.
  [Throws=InvalidArgument]
  DOMString get_default_backend_for_device(Object device);
};
