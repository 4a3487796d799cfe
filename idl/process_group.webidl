// The process group: its members, its settings, groups made from it.

/// A group of processes (ranks) that communicate by collective operations.
///
/// All ranks of a group call the same collectives in the same order; a disagreement raises
/// `CollectiveMismatch` on every rank. Methods that take time return a `Work`. Ranks that methods
/// take are ranks in this group. A group serves one thread or several.
///
/// When an operation fails or passes its deadline, the group is broken: all its operations, on
/// all ranks, raise the same error. Leave it, and make another.
[Since=0.1]
interface ProcessGroup {
  /// Joins the group of `size` ranks that meet in `store` under `group_name`.
  ///
  /// - `rank`: this process's rank, from 0 to `size` - 1.
  /// - `backend`: `tcp` unless given.
  /// - `timeout`: limit of joining and of each operation, 30 min unless given.
  /// - `pg_options`: options of the group, as for `init_process_group`.
  /// - `enable_reconfigure`: make a group without members, which it gets by `reconfigure`: nobody
  ///   is waited for, and `rank` and `size` have no meaning.
  ///
  /// Waits until all ranks have joined. The group is not registered anywhere. Its name must not be
  /// that of a group which this process keeps, or which it is in as this rank in this store: that
  /// is `DuplicateGroup`. The other ranks are told what keeps a single one from joining.
  [Factory=join, Waits, Throws=(DuplicateGroup, InvalidArgument, Rendezvous, RendezvousTimeout,
                                UnknownBackend)]
  constructor(Store store, Rank rank, unsigned long size, optional DOMString? backend = null,
              optional Duration? timeout = null, optional DOMString? group_name = null,
              optional boolean enable_reconfigure = false,
              optional BackendOptions? pg_options = null);

  /// This process's rank in the group.
  Rank rank();

  /// The number of ranks.
  unsigned long size();

  /// The name of the group's backend, lower case: `tcp`.
  [Alias=(getBackendName, backend_name), Rust=backend_name] DOMString name();

  /// The group's name, the same on all its ranks and different from other groups'.
  readonly attribute DOMString group_name;

  /// A description for logs.
  readonly attribute DOMString group_desc;

  /// The device that the group is bound to, if it is.
  [Handwritten] readonly attribute DOMString? bound_device_id;

  /// Whether symmetric memory exchanges its handles through this group. It is kept for programs
  /// that set it, false at first: windows, which are polyrank's symmetric memory, always do.
  attribute boolean use_pg_for_symm_mem_rendezvous;

  /// The store of the group, with the group's prefix.
  Store get_group_store();

  /// The backend that serves a device: `cpu`, `cuda`, `cuda:1`.
  [Handwritten, Own=javascript, Alias="_get_backend", Throws=(InvalidArgument, InvalidGroup)]
  DeviceBackend get_backend(Object device);

  /// Limit of each operation that has none of its own; 0 means no limit.
  readonly attribute Duration timeout;

  /// Sets the limit of all later operations that have none of their own; 0 means no limit.
  [Throws=InvalidGroup]
  undefined set_timeout(Duration timeout);

  /// The global ranks of the members, by rank in this group.
  sequence<Rank> ranks();

  /// Aborts all operations on all ranks: they raise `Aborted`, and so does every later one.
  /// Does not wait.
  undefined abort();

  /// Leaves the group cleanly, and closes connections. Operations in flight have 5 s to end; then
  /// they fail, on all ranks, even if nobody waits for them any more.
  ///
  /// Raises if ranks disagree on what they ran and no call of this rank has reported it: a root may
  /// finish before the others have checked its operation, and an operation that the others never
  /// call fails on none of them. To detect that, ranks wait for one another when they leave: up to
  /// 3 s after an operation that ended on this rank without all others, up to a quarter of a second
  /// otherwise. A group that was split off another does not wait: a disagreement in it is reported
  /// when its parent is left. Also raises what a collective of this rank failed with, if nobody has
  /// retrieved the outcome of any of them, unless the group was aborted.
  [Waits, Leaves=in_order] undefined shutdown();

  /// Makes a group of some of this group's ranks. Its members call it, and wait for one another:
  /// each rank passes the ranks of its own new group, so that one call can split the group into
  /// several. If the group is bound to a CUDA device, all its ranks must call it.
  ///
  /// - `ranks`: ranks in this group, each once; the new ranks are their positions.
  /// - `timeout`: limit of the new group's operations; none: this group's.
  /// - `group_name`: none: made from this group's name. A name can be used once, even if the group
  ///   is destroyed; that of a group which this rank has is `DuplicateGroup`.
  /// - `device_types`: the kinds of devices that the new group must serve, `cpu` or `cuda`; it
  ///   serves all that its backends do, and is refused if one of these is not among them.
  ///
  /// Returns the new group; none if this rank is not in `ranks`.
  [Handwritten, Waits, Throws=(CollectiveMismatch, DuplicateGroup, InvalidArgument, RankFailed,
                               Rendezvous, RendezvousTimeout)]
  ProcessGroup? split_group(sequence<Rank> ranks, optional Duration? timeout = null,
                            optional BackendOptions? opts = null,
                            optional DOMString? group_name = null,
                            optional DOMString? group_desc = null,
                            optional sequence<DOMString>? device_types = null);

  /// Merges this group and others into one of `size` ranks. Every rank of each of them calls it,
  /// with a store whose keys nobody else uses. Ranks are assigned in the order of arrival.
  ///
  /// - `timeout`: limit of joining and of the new group's operations.
  /// - `group_name`: none: made from the name of one of the merged groups. That of a group which
  ///   this rank has is `DuplicateGroup`.
  [Handwritten, Waits, Throws=(DuplicateGroup, InvalidArgument, Rendezvous, RendezvousTimeout)]
  ProcessGroup merge_remote_group(Store store, unsigned long size,
                                  optional Duration timeout = 1800,
                                  optional DOMString? group_name = null,
                                  optional DOMString? group_desc = null);
};
