// What was called, counted: how often, how long it took, and who was waited for.

/// What was counted of a method of a group. In Python it is a `dict` of these.
[NotIn=python, Since=0.1]
dictionary OperationStats {
  /// The method: `allreduce`.
  required DOMString name;
  /// What `record_comm` calls the operations, none without: those of other names are counted apart,
  /// as far as there are not hundreds.
  required DOMString? comm_name;
  /// Operations that have ended, well or not.
  required unsigned long long count;
  /// Those of them that have failed.
  required unsigned long long failed;
  /// Operations that were called and have not ended.
  required unsigned long long in_flight;
  /// Bytes of all that have ended well: of each what this rank reads, or what it writes if that is
  /// more.
  required unsigned long long bytes;
  /// Half of them took no longer, in seconds.
  required double p50_seconds;
  /// 99 of 100 took no longer, in seconds.
  required double p99_seconds;
  /// The longest that was timed, in seconds.
  required double max_seconds;
  /// What all of them took together, in seconds.
  required double total_seconds;
  /// Bytes per second: those of all, by what all of them took together; `algbw` of nccl-tests. The
  /// bytes of an operation are those of the whole buffer, as there.
  required double algorithm_bandwidth;
};

/// How long this rank has waited for another. In Python it is a `dict` of these.
[NotIn=python, Since=0.1]
dictionary PeerStats {
  /// The other rank, in the group.
  required Rank rank;
  /// The same in the group of all.
  required Rank global_rank;
  /// How long operations of this rank have waited for data of the other, or for its consent to
  /// send, in seconds.
  required double waited_seconds;
};

/// What a group has called. In Python it is a `dict` of these.
[NotIn=python, Since=0.1]
dictionary ProcessGroupStats {
  /// The name of the group.
  required DOMString group;
  /// This process's rank in the group.
  required Rank rank;
  /// The same in the group of all.
  required Rank global_rank;
  /// The number of ranks.
  required unsigned long size;
  /// For how long it has been counted, in seconds.
  required double seconds;
  /// What was called, by name.
  required sequence<OperationStats> operations;
  /// For whom this rank has waited, by rank.
  required sequence<PeerStats> peers;
  /// For whom it has waited longest; none if it has waited for nobody.
  required Rank? slowest_peer;
};

partial interface ProcessGroup {
  /// What this rank has called in this group since it was made: of each method how often, how many
  /// bytes, how long that took and at what bandwidth; and for whom it has waited, of the present
  /// members. Always counted, and asked for without waiting for anybody.
  ///
  /// All is exact but durations: of operations that are done when their call returns, which
  /// take less than a microsecond or a few, one in 64 is timed after the first thousand of the
  /// group, and counts as 64; and quantiles are known to some percent.
  ///
  /// Who is waited for is known of the backends `tcp` and `websocket`: each moment in which an
  /// operation here could not go on counts for the rank whose data ended that. In a ring, that is
  /// the neighbour: the slow rank is the one for which its neighbour waits, and that waits for
  /// nobody itself. A moment counts once for a rank, however many operations wait for it, and also
  /// while the program computes meanwhile. Waits of calls that do not go to sleep do not count, as
  /// most of small operations do not on one host. A page counts nothing: there it raises
  /// `Unsupported`.
  [Handwritten, Throws=Unsupported]
  ProcessGroupStats stats();
};

partial namespace distributed {
  /// What `stats` of all groups of this process say, as OpenMetrics text, which Prometheus reads:
  /// operations, failures, bytes, durations and waits, by rank, group, operation and peer.
  /// `polyrank run --metrics-port` serves the same for all ranks of a host. A page raises
  /// `Unsupported`.
  [Throws=Unsupported]
  DOMString metrics();
};
