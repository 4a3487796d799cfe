// Groups that do more than a group: torchft's wrappers.

/// A group that does what another one does, which it wraps: a class of the program that is derived
/// from it may change what its methods do. Functions that take a group, and other wrappers, go to
/// the group itself, not to such methods.
///
/// Both are the same group: who configures one of them configures both. A wrapper takes no fast
/// path: small operations take longer than those of the group.
[NotInPages, Rust=ProcessGroup, Since=0.1]
interface ProcessGroupWrapper : ProcessGroup {
  /// Wraps a group.
  [Rust=wrapped] constructor(ProcessGroup pg);

  /// The group that was wrapped.
  readonly attribute ProcessGroup parent;
};

/// A group whose operations never raise, around another one: torchft's
/// `ErrorSwallowingProcessGroupWrapper`.
///
/// The first failure is kept, and `error` says it. Operations after it are not run: they end well,
/// with tensors as they were given and no number, until the members are replaced by `configure` or
/// `reconfigure`. While a group has no members, as after a `configure` that failed, nothing is run
/// either.
///
/// These raise as always: a call with a wrong argument, as far as that does not depend on members
/// that are not there; an error of a hook; what returns something else than tensors, as operations
/// on objects, `sync_state` and probes; `monitored_barrier`, windows, and what makes groups; starts
/// of what was prepared for other members; and `Work.wait` with a limit of its own that has passed.
///
/// Other ranks are told nothing: they wait for an operation that is not run here up to its limit,
/// if the failure was not theirs, too.
[NotInPages, Rust=ProcessGroup, Since=0.1]
interface ErrorSwallowingProcessGroupWrapper : ProcessGroup {
  /// Wraps a group.
  [Rust=swallowing_errors] constructor(ProcessGroup pg);

  /// The group that was wrapped, which raises.
  readonly attribute ProcessGroup parent;

  /// What failed first since the group has its members; none if nothing has.
  DOMString? error();

  /// Something has failed that the program noticed by itself: no operation is run any more, as if
  /// one had failed.
  undefined report_error(DOMString error);
};

/// The group of a manager, for what takes a group and knows no manager: torchft's
/// `ManagedProcessGroup`.
///
/// Its allreduces are the manager's: a rank that does not participate contributes nothing, averages
/// are those of the participants, and none raises. They may be called while the quorum comes, and
/// have the manager's limit, not one of their own. Other operations are the group's, among all its
/// ranks, after `wait_quorum`; what they fail with in a step is reported to the manager, and after
/// an error none is run in that step. They are no part of the vote: wait for them before it.
/// Between two steps, and after the manager has left, what fails raises.
[NotInPages, Rust=ProcessGroup, Since=0.1]
interface ManagedProcessGroup : ProcessGroup {
  /// Wraps the group of a manager.
  [Rust="Manager::managed_group"] constructor(Manager manager);

  /// The group of the manager, which raises.
  readonly attribute ProcessGroup parent;

  /// How many replicas participate in this step, as `Manager.num_participants` says: by what sums
  /// are divided. Waits for the quorum. The group's own number of ranks is that of `parent`, and in
  /// JavaScript that of this method, too.
  [Waits, NotIn=javascript, Rust=participants] unsigned long size();

  /// Why this step is not committed, as far as is known; none if nothing has failed.
  DOMString? error();
};

/// A group whose other ranks do not exist: operations end at once, and where the others' tensors
/// would come this rank's own are, or what was there. For a place that must have a group, where
/// nothing is to be sent: torchft's `ProcessGroupDummy`. It has no windows, and wraps no group.
[NotInPages, Rust=ProcessGroup, Since=0.1]
interface ProcessGroupDummy : ProcessGroup {
  /// Makes one.
  [Rust=dummy] constructor(optional Rank rank = 0, optional unsigned long world = 1);

  /// How often `configure` was called, which changes nothing.
  readonly attribute unsigned long configure_count;
};
