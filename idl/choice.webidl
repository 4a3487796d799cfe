// Which backend: what a build has, what is found, and what follows from it.

/// What is known of a backend. In Python it is a `dict` of these.
[Since=0.1]
dictionary BackendInfo {
  /// Its name.
  required DOMString name;
  /// The kinds of devices that it may be named for.
  required sequence<DOMString> devices;
  /// Why it cannot be used here; none if it can.
  required DOMString? unavailable;
  /// The library behind it, if one was found: its version, and what it was opened as.
  required DOMString? library;
  /// Whether it reads and writes memory of CUDA devices itself; none where that is not known, as of
  /// an MPI library before it is initialised.
  required boolean? takes_cuda_memory;
};

/// What a build of polyrank has. In Python it is a `dict` of these.
[Since=0.1]
dictionary BuildInfo {
  /// The package's version.
  required DOMString version;
  /// What it was built for: `x86_64-linux-gnu`.
  required DOMString target;
  /// The features that were built in.
  required sequence<DOMString> features;
  /// The backends, those that the program registered last.
  required sequence<BackendInfo> backends;
};

/// A backend to use, and why. In Python it is a `dict` of these.
[Since=0.1]
dictionary Recommendation {
  /// Which backend serves which device, for `init_process_group`: `cpu:tcp,cuda:nccl`.
  required DOMString backend;
  /// The reason, in words.
  required DOMString reason;
};

partial namespace distributed {
  /// What this build has, and what of it can be used here. Libraries and drivers are looked for,
  /// and loaded where they are; an MPI library is not initialised.
  BuildInfo build_info();

  /// Which backends are best here, by the devices and the network of this host and the launcher of
  /// this process.
  Recommendation recommend_backend();
};
