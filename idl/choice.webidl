// Which backend: what a build has, what is found, and what follows from it.

partial namespace distributed {
  /// What this build of polyrank has, and what of it can be used here, as a record: `version`;
  /// `target`, what it was built for; `features`, the names of those that were built in;
  /// `backends`, a record of each with its `name`, the kinds of `devices` that it may be named for,
  /// why it is `unavailable` (none if it can be used), the `library` behind it, if one was found,
  /// and `takes_cuda_memory`: whether that reads and writes memory of CUDA devices itself, none
  /// where it is not known, as of an MPI library before it is initialised.
  ///
  /// Libraries and drivers are looked for, and loaded where they are.
  [Own=javascript] Object build_info();

  /// Which backends are best here, by the devices and the network of this host and the launcher of
  /// this process, as a record: `backend`, for `init_process_group`, and the `reason` in words.
  [Own=javascript] Object recommend_backend();
};
