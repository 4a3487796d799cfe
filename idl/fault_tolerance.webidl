// Groups as torchft has them.

partial interface ProcessGroup {
  /// Replaces the members of this group by those that call this with the same store, prefix and
  /// world size, each with its rank: torchft's `configure`. The group stays the same object, with
  /// another rank and size; what is in flight fails, with `Reconfigured`, before they meet. The
  /// store serves while they meet, and is not needed afterwards, unless a page is among them.
  ///
  /// A call that failed leaves the group without members; it can be configured again, under another
  /// prefix. Whoever exchanges handles in another way than through a store calls `reconfigure`.
  ///
  /// - `store_addr`: `host:port/prefix` or `ws://host:port/prefix`: a store that all reach, and a
  ///   prefix that no earlier call had.
  /// - `replica_id`: what this member is called, for the log.
  /// - `quorum_id`: the number of the quorum; a prefix may serve once for each.
  /// - `group_rank`, `group_world_size`: this process's rank in its replica, and how many ranks
  ///   that has, for the log.
  /// - `global_ranks`: the ranks of the members in the whole job, by rank, for the log.
  [Handwritten, Waits, Throws=(Aborted, InvalidArgument, InvalidGroup, Network, RankFailed,
  Rendezvous, RendezvousTimeout, Unsupported)]
  undefined configure(DOMString store_addr, DOMString replica_id, Rank rank, Rank world_size,
                      optional long long? quorum_id = null, optional Rank? group_rank = null,
                      optional Rank? group_world_size = null,
                      optional sequence<Rank>? global_ranks = null);
  [Handwritten, Waits] undefined configure(DOMString store_addr, Rank rank, Rank world_size);
};
