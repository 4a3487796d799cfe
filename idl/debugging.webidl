// What stops a program on purpose, to look at it. JavaScript has its own form, in milliseconds.

partial namespace distributed {
  /// Stops one rank in the debugger of its language; the other ranks of the group wait in a barrier
  /// until it goes on. All ranks of the group call it. In Python that is `pdb`, in the frame of the
  /// caller; in JavaScript what is connected to the inspector, or a browser's developer tools; in
  /// Rust the rank waits for a debugger that attaches to its process.
  ///
  /// - `rank`: the rank that stops, a global rank.
  /// - `skip`: the first so many calls of this line do nothing.
  /// - `timeout_s`: how long the others wait; zero: without limit; none: as long as the group's
  ///   operations may take. Groups of this process that have a shorter limit have this one from
  ///   then on, as one steps through their operations slowly.
  /// - `group`: its ranks wait for one another; none: the default group.
  [Handwritten, Waits, NonMember, Own=javascript,
   Throws=(InvalidGroup, NotInitialized, RankNotInGroup, RankFailed, CollectiveTimeout,
           Unsupported)]
  undefined breakpoint(optional Rank rank = 0, optional unsigned long skip = 0,
                       optional Duration? timeout_s = 3600,
                       [Positional] optional ProcessGroup? group = null);
};
