// Training that goes on when replicas come and go: torchft's manager.

/// How many replicas participate in a step.
[Numbers="0 1", Since=0.1]
enum WorldSizeMode {
  /// All that are there.
  "DYNAMIC",
  /// `min_replica_size` of them; the others are spares, which contribute nothing, and take the
  /// place of one that fails.
  "FIXED_WITH_SPARES"
};

/// How far training is.
[Since=0.1]
dictionary ManagerState {
  /// Steps that were committed.
  required long long step;
  /// Batches of all replicas that were in them.
  required long long batches_committed;
};

/// Gives a part of a replica's state: an object that object collectives carry.
[Own=javascript]
callback StateDict = any ();

/// Becomes what the other function of another replica gave.
[Own=javascript]
callback LoadStateDict = any (any state_dict);

/// One rank's part in training that goes on when replicas come and go: torchft's `Manager`.
///
/// A replica is what fails as a whole: a process, or a group of ranks that share a model. Each of
/// its ranks has a manager, and the ranks of the same number in all replicas average gradients. A
/// lighthouse, which `polyrank lighthouse` starts, says at each step which replicas there are. Each
/// step is `start_quorum`, then `allreduce` of gradients, then `should_commit`; if that is true,
/// the program changes its parameters, and otherwise it begins the same step anew.
///
/// No error of the group or of the network gets into the training loop: what fails is known when
/// `should_commit` says no, and `errored` says why. A replica that is killed costs the others at
/// most the step in which it is. One that is started anew takes the state of the others.
///
/// Between `start_quorum` and `should_commit` a program changes nothing of what it has registered.
/// One thread trains with a manager; any may ask how far it is.
///
/// Pages of browsers have none: there it cannot be started.
[NotInPages, Since=0.1]
interface Manager {
  /// Starts one. Rank 0 of the replica waits for the lighthouse, the others for rank 0. The
  /// environment's `TORCHFT_*_SEC` go before what is said here of timeouts.
  ///
  /// - `min_replica_size`: fewer replicas commit nothing.
  /// - `lighthouse_addr`: `http://host:port` of the lighthouse; none: what `TORCHFT_LIGHTHOUSE`
  ///   says. Only rank 0 of a replica needs it.
  /// - `replica_id`: what the replica is called; a part that no other start has is appended.
  /// - `rank`, `world_size`: this process in its replica; none: what `RANK` and `WORLD_SIZE` say,
  ///   or the only one.
  /// - `store_addr`: `host:port` of the `TCPStore` of the replica, which somebody serves; none:
  ///   rank 0 does at `MASTER_ADDR` and `MASTER_PORT`. A replica of one rank needs none.
  /// - `timeout`: limit of an operation, of making the group, and of a state's way.
  /// - `quorum_timeout`: how long a quorum is waited for.
  /// - `connect_timeout`: how long the lighthouse, the manager and the store are waited for.
  /// - `use_async_quorum`: whether the quorum comes while the program computes. If not,
  ///   `start_quorum` waits for it, and who takes a state participates in the same step.
  /// - `world_size_mode`: how many replicas participate.
  /// - `init_sync`: whether all replicas begin with the state of one. If not, they must be alike by
  ///   themselves.
  /// - `max_retries`: so many steps in a row may be lost; one more, and `should_commit` raises.
  ///   None: any number.
  /// - `quorum_retries`: how often a quorum that failed is asked for again before it is an error.
  /// - `hostname`: under which others reach this host. The default is what `POLYRANK_MANAGER_HOST`
  ///   says, which the launcher sets where there are several, or this host itself.
  /// - `port`: of the manager; none: what `TORCHFT_MANAGER_PORT` says, or any that is free.
  /// - `heartbeat_interval`: how often the lighthouse is told that the replica is alive.
  /// - `token`: what the lighthouse was started with; none: what `POLYRANK_TOKEN` says. It travels
  ///   in plain text.
  /// - `data`: what the lighthouse shows of the replica, as JSON.
  /// - `pg`: the group whose members are replaced; none: one of its own over TCP and shared memory.
  [Waits, Factory=start, Throws=(InvalidArgument, ManagerFailed)]
  constructor(unsigned long min_replica_size,
              optional DOMString? lighthouse_addr = null,
              optional DOMString replica_id = "",
              optional Rank? rank = null,
              optional unsigned long? world_size = null,
              optional DOMString? store_addr = null,
              optional Duration timeout = 60,
              optional Duration quorum_timeout = 60,
              optional Duration connect_timeout = 60,
              optional boolean use_async_quorum = true,
              optional WorldSizeMode world_size_mode = "DYNAMIC",
              optional boolean init_sync = true,
              optional unsigned long? max_retries = null,
              optional unsigned long quorum_retries = 0,
              optional DOMString hostname = "127.0.0.1",
              optional unsigned long? port = null,
              optional Duration heartbeat_interval = 0.1,
              optional DOMString? token = null,
              optional DOMString data = "",
              optional ProcessGroup? pg = null);

  /// What `state_dict` gives belongs to the state of a replica, and `load_state_dict` takes it. All
  /// replicas register the same keys, before the first quorum. The object travels as that of an
  /// object collective: plain values and arrays, no pickle.
  ///
  /// `state_dict` is called on a thread of the manager, between `start_quorum` and the end of the
  /// quorum, and only if another replica is behind; `load_state_dict` by `should_commit`, or by
  /// `start_quorum` if that waits for the quorum. Neither may call what waits for the quorum.
  [Handwritten, Own=javascript, Rust=register_state, Throws=InvalidArgument]
  undefined register_state_dict_fn(DOMString key, LoadStateDict load_state_dict,
                                   StateDict state_dict);

  /// As `register_state_dict_fn`, of bytes in a form of the program's own: `state.get(key)` gives
  /// them, and `state.set(key, value)` takes them.
  [Handwritten, Rust=register_state, Throws=InvalidArgument]
  undefined register_state_store(DOMString key, Store state);

  /// A step begins: asks for a quorum. With `use_async_quorum` it returns at once, and what goes
  /// wrong is raised by `wait_quorum`, or has the step not committed.
  ///
  /// - `allow_heal`: whether this replica takes a state if it is behind, and gives its own to
  ///   others. Without, one that is behind does not participate.
  /// - `shrink_only`: whether only replicas of the last quorum are let in.
  /// - `timeout`: how long the quorum is waited for; none: `quorum_timeout`.
  [Handwritten, Waits, Throws=(InvalidArgument, ManagerFailed, Quorum)]
  undefined start_quorum(optional boolean allow_heal = true, optional boolean shrink_only = false,
                         optional Duration? timeout = null);

  /// Waits until the quorum is there, the group is made, and states have moved.
  [Handwritten, Waits, Throws=(InvalidArgument, ManagerFailed, Quorum)]
  undefined wait_quorum();

  /// Reduces a tensor over the replicas that participate, in place. Waits for the quorum first. If
  /// anything has failed in this step, nothing is sent, and the tensor stays as it is; if the
  /// operation itself fails, it may be anything. The work ends well in any case: what failed is
  /// known when `should_commit` says no.
  ///
  /// AVG is the sum divided by `num_participants`. A rank that does not participate, or takes a
  /// state in this step, contributes nothing, and has the result, too: in the first step of all,
  /// with `init_sync` and a quorum that comes while they compute, that is every rank but one.
  [Handwritten, Throws=(InvalidArgument, UnsupportedDType, Unsupported)]
  Work allreduce([InOut] Tensor tensor, [Positional] optional ReduceOp reduce_op = "AVG");

  /// As `allreduce`, of each tensor for itself, in one operation.
  [Handwritten, Rust=allreduce_coalesced_async,
   Throws=(InvalidArgument, UnsupportedDType, Unsupported)]
  Work allreduce_coalesced([InOut] sequence<Tensor> tensors,
                           [Positional] optional ReduceOp reduce_op = "AVG");

  /// Whether the step is committed: all ranks of the replica got through it, and enough replicas
  /// participate. Waits for the operations of the step, and loads a state that has come. If it is
  /// true, the program changes its parameters; if not, it does not, and begins the same step anew.
  ///
  /// - `timeout`: how long the vote of several ranks is waited for; none: as long as one of them
  ///   may need for its quorum, the group, a state and an operation that fails.
  [Handwritten, Waits, Throws=(InvalidArgument, ManagerFailed)]
  boolean should_commit(optional Duration? timeout = null);

  /// This step cannot be committed: what the program noticed by itself. The other replicas do not
  /// wait for this one.
  [Handwritten] undefined report_error(DOMString error);

  /// Why this step is not committed, as far as is known; none if nothing has failed.
  [Handwritten] DOMString? errored();

  /// How many replicas participate in this step, those that take a state among them: by what
  /// averages are divided. Waits for the quorum; 0 if there is none.
  [Handwritten, Waits] unsigned long num_participants();

  /// The number of this replica among those that participate, which it has also in a step in which
  /// it takes a state; none if it does not, as a spare. Waits for the quorum.
  [Handwritten, Waits] Rank? participating_rank();

  /// Whether what this rank has counts in this step. Waits for the quorum.
  [Handwritten, Waits] boolean is_participating();

  /// How many steps were committed.
  [Handwritten] long long current_step();

  /// How many batches of all replicas were in them.
  [Handwritten] long long batches_committed();

  /// How far training is, by the names of `ManagerState`, to be kept with a checkpoint: written
  /// after `should_commit`.
  [Handwritten, Rust=state] ManagerState state_dict();

  /// Goes on from there. For a program that has read its checkpoint, before the first quorum, or
  /// after a state could not be loaded. Waits for the quorum if one was asked for.
  [Handwritten, Waits, Rust=load_state] undefined load_state_dict(ManagerState state_dict);

  /// What the replica is called, with what was appended.
  [Handwritten] DOMString replica_id();

  /// The ids of the replicas of the quorum, by their ranks in the group. Waits for the quorum.
  [Handwritten, Waits] sequence<DOMString> replicas();

  /// The group whose members are the ranks of this number in all replicas.
  [Handwritten] ProcessGroup group();

  /// Leaves in order: ends what waits, leaves the group, and stops the manager of the replica. A
  /// second call does nothing. In a replica of several ranks rank 0 waits until the others have
  /// left, for 3 s at most.
  [Handwritten, Waits, Throws=ManagerFailed] undefined shutdown();
};

/// Says which replicas of a job train together, as they come and go: torchft's lighthouse, as
/// `polyrank lighthouse` serves it. A page at the same address shows what it sees. It serves as
/// long as the object is there.
///
/// Pages of browsers have none: there it cannot be started.
[NotInPages, Rust=Lighthouse, Since=0.1]
interface LighthouseServer {
  /// Starts one.
  ///
  /// - `min_replicas`: fewest replicas that may train, unless all of the last quorum ask again.
  /// - `bind`: `host:port` at which it listens; port 0 is any that is free.
  /// - `join_timeout`: how long replicas that ask wait for those that are alive and do not: less
  ///   than the limit of their calls.
  /// - `quorum_tick`: how often it looks whether somebody has been waited for long enough.
  /// - `heartbeat_timeout`: after how long without a heartbeat a replica counts as dead.
  /// - `token`: what replicas must have; none: what `POLYRANK_TOKEN` says. It has to be there where
  ///   other hosts can reach it.
  [Waits, Factory=start, Rust=start, Throws=(InvalidArgument, Network)]
  constructor(unsigned long min_replicas, optional DOMString bind = "127.0.0.1:29510",
              optional Duration join_timeout = 30, optional Duration quorum_tick = 0.1,
              optional Duration heartbeat_timeout = 5, optional DOMString? token = null);

  /// `http://host:port`, for `lighthouse_addr` of managers, and for people.
  [Handwritten, Rust=url] DOMString address();

  /// Ends it. A second call does nothing.
  [Handwritten, Waits, Rust=stopper] undefined shutdown();
};
