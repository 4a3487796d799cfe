// Neighbour collectives: exchanges with the neighbours that a rank has in a grid or in a graph.
// MPI 4.1, sections 8.5 to 8.8.

/// Who is whose neighbour among the ranks of a group: a grid (MPI's cartesian topology) or a graph.
///
/// All ranks make it together, by `create_cart` or `create_dist_graph_adjacent` of the group. Its
/// operations are collectives of the group: all ranks call them, in the same order as the group's
/// own, and a rank without neighbours calls them, too. Ranks that call different ones, or the same
/// on two topologies, learn that by `CollectiveMismatch`; where one calls a form with lists,
/// another may call the form with a single tensor. Hooks see an operation under the name of the
/// method, as `NEIGHBOR_ALLTOALL`. A rank may be its own neighbour, and may have another one twice:
/// the first block that one of them gives the other is the first that this one gets from it, and so
/// on; in a grid, what a rank gives in one direction arrives from the opposite one.
///
/// The neighbours of a rank in a grid are, for each dimension, the one before it and the one after
/// it. Where the grid ends, there is none: what stands there in the inputs goes nowhere, and what
/// stands there in the outputs stays as it was. Only elements of the host's memory are exchanged.
[Since=0.1]
interface Topology {
  /// The length of each dimension of a grid; none for a graph.
  [Handwritten] readonly attribute sequence<unsigned long>? dims;

  /// Whether each dimension of a grid goes on with its first index after its last; none for a
  /// graph.
  [Handwritten] readonly attribute sequence<boolean>? periods;

  /// The ranks from which this one gets blocks, in the order of the outputs; none where a grid
  /// ends.
  [Handwritten] readonly attribute sequence<Rank?> sources;

  /// The ranks to which this one gives blocks, in the order of the inputs; none where a grid ends.
  [Handwritten] readonly attribute sequence<Rank?> destinations;

  /// The index of a rank in each dimension of a grid (MPI's `Cart_coords`). The last dimension
  /// counts fastest.
  [Handwritten, Throws=InvalidArgument] sequence<unsigned long> coordinates(Rank rank);

  /// The rank with this index in each dimension of a grid (MPI's `Cart_rank`). In a dimension that
  /// is periodic, an index may be any number.
  [Handwritten, Throws=InvalidArgument] Rank rank_at(sequence<long> coordinates);

  /// The two ranks with which this one shifts something by `displacement` along a dimension: that
  /// from which it gets, and that to which it gives, as `ppermute` and `sendrecv` can do it (MPI's
  /// `Cart_shift`). None where the grid ends.
  [Handwritten, Throws=InvalidArgument]
  sequence<Rank?> shift(unsigned long dimension, [Positional] optional long displacement = 1);

  /// Gives one tensor to all destinations, and gets one from each source (MPI's
  /// `Neighbor_allgatherv`): output `i` is the input of `sources[i]`, whose size it has.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work neighbor_allgather([Out] sequence<Tensor> outputs, [In] Tensor input,
                          optional Duration? timeout = null);

  /// As `neighbor_allgather`, for outputs of one size in one tensor, which has them one after the
  /// other along dimension 0.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work neighbor_allgather_single([Out] Tensor output, [In] Tensor input,
                                 optional Duration? timeout = null);

  /// Gives each destination a tensor of its own, and gets one from each source (MPI's
  /// `Neighbor_alltoallv`): input `i` goes to `destinations[i]`, and output `i` comes from
  /// `sources[i]`. Tensors may differ in size, and have one dtype.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work neighbor_alltoall([Out] sequence<Tensor> outputs, [In] sequence<Tensor> inputs,
                         optional Duration? timeout = null);

  /// As `neighbor_alltoall`, for inputs of one size in one tensor, and outputs of one size in one
  /// tensor, each of which has them one after the other along dimension 0.
  [Handwritten, Throws=(InvalidArgument, CollectiveMismatch)]
  Work neighbor_alltoall_single([Out] Tensor output, [In] Tensor input,
                                optional Duration? timeout = null);
};

partial interface ProcessGroup {
  /// Arranges the ranks in a grid, as many as there are (MPI's `Cart_create`). All ranks call it,
  /// with the same arguments. Ranks stand as in an array: the last dimension counts fastest.
  ///
  /// - `dims`: the length of each dimension: `compute_dims` finds balanced ones.
  /// - `periods`: for each dimension, whether the last one's next neighbour is the first. An empty
  ///   list: in none of them.
  [Handwritten, Waits, Throws=(InvalidArgument, TopologyMismatch)]
  Topology create_cart(sequence<unsigned long> dims,
                       [Positional] optional sequence<boolean> periods = []);

  /// Makes a graph of the ranks, each of which says who its neighbours are (MPI's
  /// `Dist_graph_create_adjacent`). All ranks call it. A rank that names another as its
  /// destination is named by that one as a source, as often; a rank may name itself.
  ///
  /// - `sources`: the ranks from which this one gets, in the order of the outputs.
  /// - `destinations`: the ranks to which it gives, in the order of the inputs.
  [Handwritten, Waits, Throws=(InvalidArgument, TopologyMismatch)]
  Topology create_dist_graph_adjacent(sequence<Rank> sources, sequence<Rank> destinations);
};

partial namespace distributed {
  /// The lengths of the dimensions of a grid of `size` ranks, as close to one another as they can
  /// be, the longest first (MPI's `Dims_create`).
  ///
  /// - `dims`: how many dimensions, or a list of their lengths, in which 0 stands for those that
  ///   are to be found.
  [Handwritten, Throws=InvalidArgument]
  sequence<unsigned long> compute_dims(unsigned long size, unsigned long dims);
  [Handwritten]
  sequence<unsigned long> compute_dims(unsigned long size, sequence<unsigned long> dims);
};

/// Ranks disagree on the topology that they make. All ranks that make it get this.
[Error, Python=TopologyMismatchError, Parent=InvalidArgument,
 Message="ranks disagree on a topology: rank {rank} gave {ours}, but rank {other_rank} gave {theirs}"]
dictionary TopologyMismatch {
  /// One rank: of an edge of a graph, the one where it begins.
  required Rank rank;
  /// What that rank gave.
  required DOMString ours;
  /// Another rank: of an edge of a graph, the one where it ends.
  required Rank other_rank;
  /// What the other rank gave.
  required DOMString theirs;
};
