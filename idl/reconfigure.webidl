// Groups whose members change, and what stays when they do.

/// What holds for all operations of a group that do not say it themselves.
[Since=0.1]
dictionary GroupHints {
  /// In which form elements travel, as `compress` of `allreduce` has it: `bf16`, `f16` or `int8`;
  /// `none`, or nothing: as they are.
  DOMString? compress = null;
};

/// The members of a group from now on.
[Since=0.1]
dictionary ReconfigureOptions {
  /// A number that no earlier call of any member had.
  required long long uuid;
  /// Handles of the members; their positions are the new ranks if `ordered`.
  required sequence<DOMString> handles;
  /// Whether positions in `handles` are ranks. If not, ranks are chosen, the same on all members:
  /// those that are members keep their order, and newcomers follow.
  boolean ordered = true;
  /// Limit of the call; none: the group's; 0: no limit.
  Duration? timeout = null;
  /// Hints of the group from then on, as `set_hints` takes them; none: those that this process
  /// has. What counts on all is what the eldest of the members has: the first of those that were
  /// members before, else the first newcomer.
  GroupHints? hints = null;
};

partial interface ProcessGroup {
  /// The hints that were set last; none at first.
  [Handwritten] readonly attribute GroupHints hints;

  /// Sets hints for all later operations of this group, on all ranks alike and at the same place
  /// in the order of its calls; what was set before and is not among them is unset. An operation
  /// that says something else itself is run as it says, and one that cannot do what a hint asks
  /// for as if there were none: `compress` concerns `allreduce`, `reduce_scatter` and `allgather`
  /// in all their forms (of these two not lists of several tensors, unless coalesced) of
  /// `float32` and `float64` in memory of the host, with SUM or AVG, over `tcp` and `websocket`.
  /// What was prepared before stays as it is. When members are replaced, all have the hints of
  /// the eldest member from then on; groups that are split off begin without.
  [Handwritten, Throws=(InvalidArgument, InvalidGroup)] undefined set_hints(GroupHints hints);

  /// Replaces the members of this group. All new members call it, with the same options; those that
  /// are left out do not. The group stays the same object, with another rank and size. What is in
  /// flight fails at once, with `Reconfigured`. Handles on its store and prepared operations end
  /// with the former members; names, timeout and options stay.
  ///
  /// If a member's process is gone, the work fails with `RankFailed`; if one does not come in time,
  /// with `RendezvousTimeout`, which names it. Then the group has no members, and can be
  /// reconfigured again.
  [Handwritten, Throws=(InvalidArgument, InvalidGroup, RankFailed, Rendezvous, RendezvousTimeout,
  Unsupported)]
  Work reconfigure(ReconfigureOptions opts);

  /// This process's handle, which all members need for `reconfigure`: who it is, and where it can
  /// be met. It changes with every call of that.
  [Throws=(InvalidGroup, Network, Unsupported)] DOMString get_reconfigure_handle();

  /// Whether the members of the group can be replaced: over `tcp` and `websocket`, not over
  /// libraries.
  readonly attribute boolean supports_reconfigure;

  /// Goes on without some ranks. The others call this with the same list; they are the members from
  /// then on, in their order, and the group stays the same object: `reconfigure`, where the ranks
  /// exchange handles themselves. That needs a store which lives: the members' own if the group was
  /// reconfigured before, otherwise the one in which it was made. If that went with the rank that
  /// hosted it, the error names that rank; then handles, exchanged in another way, and
  /// `reconfigure` lead on.
  ///
  /// - `ranks_to_exclude`: ranks of this group; not the caller's.
  /// - `timeout`: limit of the call; none: the group's; 0: no limit.
  [Handwritten, Throws=(InvalidArgument, InvalidGroup, Network, NoMembers, RankFailed,
  RendezvousTimeout, Unsupported)]
  Work shrink_group(sequence<Rank> ranks_to_exclude, optional Duration? timeout = null);

  /// Fails everything in flight and everything later, on all ranks, as MPI's `MPIX_Comm_revoke`:
  /// all learn that somebody gave up. `shrink_group`, `agree` and `reconfigure` work all the same.
  [Throws=InvalidGroup]
  undefined revoke();

  /// The bits that the flags of all ranks that live have in common, as MPI's `MPIX_Comm_agree`: the
  /// same on all of them, whatever each knows of failures, and also in a group that is broken. All
  /// ranks that live call it, equally often, and each call ends on all of them in the same way. It
  /// needs a store that lives, as `shrink_group` does: that of the eldest member if the group was
  /// reconfigured. The error names the rank whose store is gone.
  [Waits, Throws=(InvalidArgument, InvalidGroup, Network, NoMembers, RankFailed,
  RendezvousTimeout)]
  long long agree(long long flag, optional Duration? timeout = null);

  /// How the group stands, as far as this rank knows: `SUCCESS` as long as it works. Asks nobody,
  /// and never raises.
  [Handwritten] WorkResult get_error();
};
