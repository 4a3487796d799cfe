// Meshes: the ranks of the default group in an n-dimensional array, and a group for each dimension.

/// The ranks of a job in an n-dimensional array, with a group along each of its dimensions.
///
/// A mesh of 2 x 4 ranks with the dimensions `dp` and `tp` gives each rank two groups: that of its
/// column (`dp`) and that of its row (`tp`). In a group of a dimension, ranks stand as in the mesh.
/// Two meshes are equal if their ranks, shape, names and device type are.
///
/// All ranks of the default group make a mesh together, those that are not in it as well. One that
/// differs between ranks is an error on all of them, which names who gave what.
[Since=0.1]
interface DeviceMesh {
  /// Makes a mesh of the given ranks. Makes the default group if there is none.
  ///
  /// - `device_type`: `cpu` or `cuda`.
  /// - `mesh`: global ranks, as nested lists or as an array of integers with one dimension or more.
  /// - `mesh_dim_names`: a name for each dimension.
  /// - `backend_override`: other backends for the groups of some dimensions, by the dimension's
  ///   index or name: a backend's name, its options, or both in a pair.
  /// - `init_backend`: false: a layout only, without groups, and without the other ranks.
  [Factory=create, Waits, Own=python,
   Throws=(InvalidArgument, CollectiveMismatch, CollectiveTimeout, RankFailed)]
  constructor(DOMString device_type, Object mesh,
              optional sequence<DOMString>? mesh_dim_names = null,
              optional Object? backend_override = null,
              [Python="_init_backend"] optional boolean init_backend = true);

  /// Makes a mesh of groups that exist, without the other ranks: of one group, or of one for each
  /// dimension, in their order.
  ///
  /// - `group`: the group, or a list of groups.
  /// - `mesh`: as for the constructor; needed with several groups.
  /// - `mesh_dim_names`: a name for each dimension; needed with several groups.
  [Handwritten, Own=python, Throws=InvalidArgument]
  static DeviceMesh from_group(ProcessGroup group, DOMString device_type,
                               optional Object? mesh = null,
                               optional sequence<DOMString>? mesh_dim_names = null);
  [Handwritten] static DeviceMesh from_group(sequence<ProcessGroup> group,
                                             DOMString device_type,
                                             optional Object? mesh = null,
                                             optional sequence<DOMString>? mesh_dim_names = null);

  /// `cpu` or `cuda`.
  [Handwritten] readonly attribute DOMString device_type;

  /// The global ranks: an array of 32-bit integers in Python, nested arrays in JavaScript.
  [Handwritten, Rust=ranks] readonly attribute Object mesh;

  /// The names of the dimensions, if they have any.
  [Handwritten, Rust=names] readonly attribute sequence<DOMString>? mesh_dim_names;

  /// The number of dimensions.
  [Handwritten] readonly attribute unsigned long ndim;

  /// The length of each dimension.
  [Handwritten] readonly attribute sequence<unsigned long> shape;

  /// The number of ranks, or the length of a dimension, which may be one that `flatten` gave.
  [Handwritten, Throws=(InvalidArgument, MeshDimension)]
  unsigned long size([Positional] optional long? mesh_dim = null);
  [Handwritten] unsigned long size(DOMString mesh_dim);

  /// This process's global rank. Refused once the group that the mesh was made in is destroyed.
  [Handwritten, Rust=rank, Throws=(NotInitialized, InvalidGroup)] Rank get_rank();

  /// This process's index in each dimension; none if it is not in the mesh.
  [Handwritten, Rust=coordinate] sequence<unsigned long>? get_coordinate();

  /// This process's index in a dimension, which is its rank in that dimension's group. Without
  /// `mesh_dim`: in the only one. A name may be one that `flatten` gave.
  [Handwritten, Rust=local_rank, Throws=(InvalidArgument, InvalidGroup, MeshDimension)]
  Rank get_local_rank([Positional] optional long? mesh_dim = null);
  [Handwritten] Rank get_local_rank(DOMString mesh_dim);

  /// The group of this process along a dimension, by index or name. Without `mesh_dim`: along the
  /// only one. A name may be one that `flatten` gave.
  [Handwritten, Rust=group, Throws=(InvalidArgument, InvalidGroup, MeshDimension)]
  ProcessGroup get_group([Positional] optional long? mesh_dim = null);
  [Handwritten] ProcessGroup get_group(DOMString mesh_dim);

  /// The groups of this process along all dimensions.
  [Handwritten, Rust=groups, Throws=InvalidGroup] sequence<ProcessGroup> get_all_groups();

  /// The part of the mesh that has this process and these dimensions, in the order in which they
  /// stand in the mesh; `mesh["dp", "tp"]` in Python. Its groups are those of the mesh. A name may
  /// be one that `flatten` gave.
  [Handwritten, Throws=(InvalidArgument, InvalidGroup, MeshDimension)]
  DeviceMesh slice(DOMString mesh_dim_names);
  [Handwritten] DeviceMesh slice(sequence<DOMString> mesh_dim_names);

  /// A mesh with all dimensions of this one in one, whose group is made by this call. All ranks of
  /// this mesh call it. The mesh that this one was sliced out of knows it by its name, too.
  ///
  /// - `mesh_dim_name`: none: the names of the dimensions, with `_` between them.
  [Handwritten, Waits, Alias="_flatten",
   Throws=(InvalidArgument, InvalidGroup, RankFailed, Rendezvous, RendezvousTimeout)]
  DeviceMesh flatten([Positional] optional DOMString? mesh_dim_name = null);

  /// Whether the ranks, the shape, the names and the device type are the same: `==` in Python.
  [Handwritten, Rust=eq] boolean equals(DeviceMesh other);

  /// The mesh that this one was sliced out of, or flattened from; else itself.
  [Handwritten, Rust=root, Alias="_get_root_mesh"] DeviceMesh get_root_mesh();
};

partial namespace distributed {
  /// Makes a mesh of this shape: rank 0 first, along the last dimension. If there are more ranks
  /// than that, the last ones are not in it. Makes the default group if there is none.
  ///
  /// - `device_type`: `cpu` or `cuda`.
  /// - `mesh_shape`: the length of each dimension.
  /// - `mesh_dim_names`: a name for each dimension.
  /// - `backend_override`: other backends for the groups of some dimensions, by the dimension's
  ///   index or name: a backend's name, its options, or both in a pair.
  [Handwritten, Waits, Own=python, Rust="device_mesh::init_device_mesh",
   Throws=(InvalidArgument, CollectiveMismatch, CollectiveTimeout, RankFailed)]
  DeviceMesh init_device_mesh(DOMString device_type, sequence<unsigned long> mesh_shape,
                              optional sequence<DOMString>? mesh_dim_names = null,
                              optional Object? backend_override = null);

  /// The mesh of the innermost `with mesh:` block that this thread or task is in.
  [Own=javascript, Rust="device_mesh::current_device_mesh", Throws=InvalidArgument]
  DeviceMesh current_device_mesh();

  /// A mesh with one more dimension of length 1, whose group is `pg`, of whatever size: one whose
  /// members change.
  ///
  /// - `name`: the name of the new dimension.
  /// - `dim`: its index.
  [Handwritten, Rust="device_mesh::extend_device_mesh", Throws=InvalidArgument]
  DeviceMesh extend_device_mesh(DeviceMesh mesh, ProcessGroup pg, optional DOMString name = "dp",
                                optional long dim = 0);
};
