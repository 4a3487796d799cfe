// Groups that do more than a group: torchft's wrappers.

/// A group that does what another one does, which it wraps: a place for programs to change that.
///
/// It has the members of the other one, also when those are replaced, of whichever it is asked.
[NotInPages, Since=0.1]
interface ProcessGroupWrapper : ProcessGroup {
  /// Wraps a group.
  constructor(ProcessGroup pg);

  /// The group that was wrapped.
  readonly attribute ProcessGroup parent;
};

/// A group whose operations never raise, around another one: torchft's
/// `ErrorSwallowingProcessGroupWrapper`.
///
/// The first failure is kept, and `error` says it. Operations after it are not run: they end well,
/// with tensors as they were given, until the members are replaced by `configure` or `reconfigure`.
/// A call that cannot be run whoever the members are, as one with a wrong argument, raises as
/// always. So does an operation that returns something else than tensors, as those on objects do.
///
/// Other ranks are told nothing: they wait for an operation that is not run here up to its limit,
/// unless what has failed failed for them, too.
[NotInPages, Since=0.1]
interface ErrorSwallowingProcessGroupWrapper : ProcessGroup {
  /// Wraps a group.
  constructor(ProcessGroup pg);

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
/// are those of the participants, and none raises. They may be called while the quorum comes. Other
/// operations are the group's, after `wait_quorum`, and what they fail with is reported to the
/// manager. They are no part of the vote: wait for them before it. Between two steps, and after the
/// manager has left, they raise.
[NotInPages, Since=0.1]
interface ManagedProcessGroup : ProcessGroup {
  /// Wraps the group of a manager.
  constructor(Manager manager);

  /// The group of the manager, which raises.
  readonly attribute ProcessGroup parent;

  /// How many replicas participate in this step, as `Manager.num_participants` says. Waits for the
  /// quorum.
  [Waits, NotIn=javascript] unsigned long size();

  /// Why this step is not committed, as far as is known; none if nothing has failed.
  DOMString? error();
};

/// A group whose other ranks do not exist: operations end at once, as if those had contributed
/// nothing. For a place that must have a group, where nothing is to be sent: torchft's
/// `ProcessGroupDummy`.
[NotInPages, Since=0.1]
interface ProcessGroupDummy : ProcessGroup {
  /// Makes one.
  constructor(optional Rank rank = 0, optional unsigned long world = 1);

  /// How often `configure` was called, which changes nothing.
  readonly attribute unsigned long configure_count;
};
