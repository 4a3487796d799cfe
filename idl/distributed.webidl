// The free functions over the default group, as in torch.distributed.
//
// `group` is a process group; none is the default group. `src` and `dst` are global ranks,
// `group_src` and `group_dst` ranks in the group; at most one of the two may be given. With
// `async_op` a function returns a `Work`, else it waits and returns nothing; in JavaScript it
// returns a `Work` either way.

/// Free functions over the default process group.
[Since=0.1]
namespace distributed {
  /// Default limit of a group's operations: 30 min.
  [Handwritten, Own=javascript, JavaScript=DEFAULT_TIMEOUT_MS,
   Rust="process_group::DEFAULT_TIMEOUT"]
  readonly attribute Duration default_pg_timeout;

  /// Whether this package can be used here.
  boolean is_available();

  /// Whether a launcher started this process: `POLYRANK_RUN_ID` or `TORCHELASTIC_RUN_ID` is set.
  [Alias=is_launched] boolean is_torchelastic_launched();

  /// Makes the default group of all ranks. Waits until all have joined.
  ///
  /// - `backend`: `tcp` (or `gloo`), `mpi`, or pairs `cpu:tcp,cuda:nccl`. None: those for the kind
  ///   of `device_id`, else for the accelerator that is found here, else `tcp`: for CUDA devices
  ///   `cpu:tcp,cuda:nccl`. With `mpi` rank and world size are those of the MPI job that `mpirun`
  ///   started, and no URL is needed.
  /// - `init_method`: URL where ranks meet: `env://` (the default), `tcp://host:port`,
  ///   `file:///path`; it may contain `?rank=…&world_size=…`.
  /// - `timeout`: limit of joining and of operations; none: 30 min; 0: no limit.
  /// - `world_size`, `rank`: needed with `store`; -1: from the URL or the environment.
  /// - `store`: where ranks meet, instead of `init_method`.
  /// - `group_name`: the group's name; empty: `default_pg`.
  /// - `pg_options`: options of the group, `NcclOptions` where NCCL serves a device. A backend that
  ///   the program registered is given them as they are, and may have others: any object in Python,
  ///   plain values in JavaScript.
  /// - `device_id`: the device that the group is bound to.
  /// - `enable_reconfigure`: make a group without members, which it gets by `reconfigure`. Waits
  ///   for nobody; rank and size have no meaning, and `store` or `init_method` only say which
  ///   network interface leads to the others (or, in a browser, where to meet them).
  [Waits,
   Throws=(AlreadyInitialized, InvalidArgument, UnknownBackend, Rendezvous, RendezvousTimeout)]
  undefined init_process_group(optional DOMString? backend = null,
                               optional DOMString? init_method = null,
                               optional Duration? timeout = null, optional long world_size = -1,
                               optional long rank = -1, optional Store? store = null,
                               optional DOMString group_name = "",
                               optional BackendOptions? pg_options = null,
                               optional Object? device_id = null,
                               optional boolean enable_reconfigure = false);

  /// Whether the default group exists.
  boolean is_initialized();

  /// Leaves a group cleanly and unregisters it. The default group takes those of `new_group` with
  /// it; without `group`, all groups are left, also those that were joined. Operations in flight
  /// are treated as by `ProcessGroup.shutdown`, and it raises as that does. A group of `new_group`
  /// is left without waiting for other ranks: a disagreement on what they ran that is not known by
  /// then is reported when the default group is destroyed. The rank whose process hosts the store
  /// waits for the others to leave, up to ten seconds, unless they are gone.
  [Waits, Leaves=in_order, NonMember, Throws=InvalidGroup]
  undefined destroy_process_group([Positional] optional ProcessGroup? group = null);

  /// Aborts a group and unregisters it. The default group takes those of `new_group` with it;
  /// without `group`, all groups are aborted, also those that were joined. Every operation fails,
  /// on all ranks.
  /// Does not wait for operations in flight, only until the other ranks have been notified, for a
  /// second at most.
  [Waits, Leaves=immediately, Throws=(NotInitialized, InvalidGroup)]
  undefined abort_process_group([Positional] optional ProcessGroup? group = null);

  /// The group of the innermost `process_group` block that this thread or task is in, else the
  /// default group.
  [Own=javascript, Throws=(NotInitialized, InvalidGroup)] ProcessGroup current_process_group();

  /// Makes `pg` the current group for a block of this thread or task.
  [Handwritten, Own=javascript, JavaScript=withProcessGroup, Rust=with_process_group]
  CurrentProcessGroup process_group(ProcessGroup pg);

  /// The default group.
  [Throws=NotInitialized, Alias="_get_default_group"] ProcessGroup default_group();

  /// Makes a group of some ranks. Its members call it, and wait for one another; the other ranks
  /// may call it too, as c10d requires, and do not wait. If the default group is bound to a CUDA
  /// device, all its ranks must call it, and make all groups in the same order.
  ///
  /// Ranks that belong to several new groups make them one after the other in the same order: calls
  /// that deadlock fail, on all ranks involved, with an error that names both. Or they make them at
  /// the same time, from several threads, or in an event loop without awaiting one before the next:
  /// then in any order, if groups of the same ranks have names.
  ///
  /// - `ranks`: global ranks; none: all.
  /// - `timeout`: limit of the group's operations; none: the default.
  /// - `backend`: none: the default group's.
  /// - `use_local_synchronization`: accepted for c10d's callers, and ignored: only members wait.
  /// - `group_desc`: a description for logs.
  /// - `sort_ranks`: order the new group by global rank, not as `ranks` are given.
  /// - `enable_reconfigure`: make a group without members, which it gets by `reconfigure`: nobody
  ///   is waited for, and `ranks` have no meaning.
  ///
  /// Returns the group; on a rank that is not in it, the value for a non-member.
  [Waits, Throws=(CollectiveMismatch, DuplicateGroup, InvalidArgument, NotInitialized, RankFailed,
                  Rendezvous, RendezvousTimeout)]
  ProcessGroup? new_group([Positional] optional sequence<Rank>? ranks = null,
                          optional Duration? timeout = null, optional DOMString? backend = null,
                          optional BackendOptions? pg_options = null,
                          optional boolean use_local_synchronization = false,
                          optional DOMString? group_desc = null,
                          optional Object? device_id = null, optional boolean sort_ranks = true,
                          optional boolean enable_reconfigure = false);

  /// Joins the group `group_name`, whose ranks meet in a store or at a URL, and waits until all of
  /// them are there: programs in any language, started in any order, that need have nothing else in
  /// common. The process has no default group for it, and may join several; groups in one store are
  /// told apart by their names. `destroy_process_group` leaves it. Where a program ended without
  /// that, its place is free for another one in the next group of this name.
  ///
  /// - `init_method`: where ranks meet, as for `init_process_group`; none, without a store too, is
  ///   `env://`.
  /// - `timeout`: limit of the meeting and of operations; none: 30 minutes.
  /// - `world_size`: the number of ranks; -1: the URL or the environment says it.
  /// - `rank`: this rank; -1: the URL or the environment says it.
  /// - `store`: the store to meet in, instead of a URL; needs `rank` and `world_size`.
  /// - `backend`: none: as for `init_process_group`.
  /// - `version`: the version of what this program has to say to the others. A rank of another one
  ///   is refused, with an error that names both, and those that wait go on waiting. Where rank 0
  ///   serves the store, it is rank 0's version that counts, otherwise that of the rank that came
  ///   first. One that gives none belongs to any.
  [Waits, Throws=(DuplicateGroup, InvalidArgument, Network, Rendezvous, RendezvousTimeout,
                  UnknownBackend)]
  ProcessGroup join_group(DOMString group_name, optional DOMString? init_method = null,
                          optional Duration? timeout = null, optional long world_size = -1,
                          optional long rank = -1, optional Store? store = null,
                          optional DOMString? backend = null,
                          optional BackendOptions? pg_options = null,
                          optional Object? device_id = null, optional DOMString? version = null);

  /// Splits a group: each list of ranks (in the parent group) becomes a group. The ranks of a list
  /// call it with the same list, and wait for one another; if the parent is bound to a CUDA device,
  /// all its ranks must call it. Returns the group of this rank; none if it is in no list.
  [Waits, Rust="ProcessGroup::split_group",
   Throws=(CollectiveMismatch, InvalidArgument, RankFailed, Rendezvous, RendezvousTimeout)]
  ProcessGroup? split_group([Positional] optional ProcessGroup? parent_pg = null,
                            optional sequence<sequence<Rank>>? split_ranks = null,
                            optional Duration? timeout = null,
                            optional BackendOptions? pg_options = null,
                            optional DOMString? group_desc = null);

  /// This process's rank in a group; -1 if it is not a member.
  [NonMember, Throws=NotInitialized]
  long get_rank([Positional] optional ProcessGroup? group = null);

  /// The number of ranks of a group; -1 if this process is not a member.
  [NonMember, Throws=NotInitialized]
  long get_world_size([Positional] optional ProcessGroup? group = null);

  /// This process's rank among those on its host, from the launcher.
  [Throws=Rendezvous]
  long get_node_local_rank([Positional] optional long? fallback_rank = null);

  /// The number of groups that this process made or joined and has not destroyed.
  unsigned long get_pg_count();

  /// The name of a group's backend, lower case, as it was requested: `gloo` or `tcp`.
  [Rust="ProcessGroup::backend_name", Throws=(NotInitialized, InvalidGroup)]
  DOMString get_backend([Positional] optional ProcessGroup? group = null);

  /// Which backend serves which device: `cpu:tcp`.
  [Rust="ProcessGroup::backend_config", Throws=(NotInitialized, InvalidGroup)]
  DOMString get_backend_config([Positional] optional ProcessGroup? group = null);

  /// The rank in `group` of a global rank.
  [Rust="ProcessGroup::group_rank", Throws=RankNotInGroup]
  long get_group_rank(ProcessGroup group, Rank global_rank);

  /// The global rank of a rank in `group`.
  [Rust="ProcessGroup::global_rank", Throws=RankNotInGroup]
  long get_global_rank(ProcessGroup group, Rank group_rank);

  /// The global ranks of a group's members, by rank in the group.
  [Rust="ProcessGroup::ranks", Throws=NotInitialized]
  sequence<Rank> get_process_group_ranks([Positional] optional ProcessGroup? group = null);

  /// Sets the limit of a group's later operations.
  [Rust="ProcessGroup::set_timeout", Throws=NotInitialized]
  undefined set_timeout(Duration timeout, [Positional] optional ProcessGroup? group = null);

  /// Meets the other ranks at a URL, once: yields the store, the rank and the world size.
  [Handwritten, Waits, Own=javascript, Rust="rendezvous::rendezvous",
   Throws=(Rendezvous, RendezvousTimeout)]
  Object rendezvous(DOMString url, optional long rank = -1, optional long world_size = -1,
                    optional Duration? timeout = null);

  /// Adds a URL scheme to `rendezvous`. A scheme has one handler.
  [Handwritten, Own=javascript, Rust="rendezvous::register_rendezvous_handler", Throws=Rendezvous]
  undefined register_rendezvous_handler(DOMString scheme, RendezvousHandler handler);

  /// A client of the store at `host:port/prefix`, with the prefix put before every key. The host
  /// may be an IPv6 address in brackets; `ws://host:port/prefix` and `wss://…` reach the store over
  /// a WebSocket, as pages do in any case.
  ///
  /// - `timeout`: limit of connecting and of requests that wait; zero is none.
  [Waits, Throws=(InvalidArgument, Network, StoreTimeout)]
  Store create_store_client(DOMString store_addr, optional Duration timeout = 60);
};

/// Yields the store, the rank and the world size for a URL.
[Own=javascript]
callback RendezvousHandler = any (DOMString url, Duration timeout, long rank, long world_size);

/// Represents a group that this process is not a member of: what `new_group` returns on a rank that
/// is not in it. A function that is given it as its group does nothing and returns nothing; a rank
/// in it is -1.
[Handwritten, Own=javascript, NotIn=rust, Since=0.1]
interface NonGroupMember {};

/// The block in which a group is the current one: `with process_group(pg):` in Python.
[Handwritten, NotIn=(javascript, rust), Since=0.1]
interface CurrentProcessGroup {};
