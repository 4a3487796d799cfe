// Collectives of values that are not tensors.
//
// Objects travel as CBOR (RFC 8949), which every language reads: a list of objects is one array. A
// parameter whose name ends in `list` takes a list of the language, which is changed in place. An
// object that cannot be encoded raises on every rank that waits for it.

/// How objects are encoded.
[NotIn=javascript, Rust=Codec, Since=0.1]
enum ObjectCodec {
  /// CBOR: nothing, booleans, numbers, texts, bytes, lists, maps, arrays. Runs no code of the
  /// program. In Python also tuples, sets, integers of any size, paths, dates and times with their
  /// zones, decimals, scalars and element types of NumPy, ml_dtypes and PyTorch, structured ones
  /// among them, and dataclasses, named tuples and enums that `register_object_type` was told of;
  /// other languages see them as plain values: a map of fields, a list of the names of flags, a
  /// text, a number. JavaScript reads a time with an offset from UTC as a `Date`, to the
  /// millisecond, and sends a `Date` as a time in UTC. Arrays of the element types of `DType` keep
  /// type, shape and elements between Python and JavaScript, there and back: what JavaScript has no
  /// typed array for comes as a `Tensor` (`bool`, `bf16`, complex numbers, `f16` where there is no
  /// `Float16Array`, all but one dimension, and `u8`, as a `Uint8Array` is bytes), and a `Tensor`
  /// is sent as the array that it is, row by row. A reader imports NumPy, ml_dtypes, PyTorch or
  /// zoneinfo when a type of theirs comes, and sees the plain value where it is not installed. Up
  /// to 100 levels, of which an object of a registered type takes two; an object that occurs twice
  /// comes as two. Python refuses a map or a set in which more than 64 keys have one hash, as a
  /// peer could choose them.
  "cbor",
  /// Python's pickle, for any object. Reading it may run code: use it only among trusted ranks.
  /// Only a rank that passes `pickle` itself reads it.
  "pickle"
};

partial namespace distributed {
  /// All ranks get the objects of `src`, in their `object_list`, which has the same length.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::broadcast_object",
   Throws=(InvalidArgument, InvalidType)]
  undefined broadcast_object_list(Object object_list, [Positional] optional Rank? src = null,
                                  [Positional] optional ProcessGroup? group = null,
                                  [NotIn=javascript] optional Object? device = null,
                                  optional Rank? group_src = null,
                                  [NotIn=javascript] optional ObjectCodec codec = "cbor");

  /// All ranks get every rank's object, in `object_list`, which has one place for each rank.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::all_gather_object",
   Throws=(InvalidArgument, InvalidType)]
  undefined all_gather_object(Object object_list, Object obj,
                              [Positional] optional ProcessGroup? group = null,
                              [NotIn=javascript] optional ObjectCodec codec = "cbor");

  /// `dst` gets every rank's object, in `object_gather_list`, which only it passes.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::gather_object",
   Throws=(InvalidArgument, InvalidType)]
  undefined gather_object(Object obj, [Positional] optional Object? object_gather_list = null,
                          [Positional] optional Rank? dst = null,
                          [Positional] optional ProcessGroup? group = null,
                          optional Rank? group_dst = null,
                          [NotIn=javascript] optional ObjectCodec codec = "cbor");

  /// Each rank gets its object of the list of `src`, in place 0 of its output list.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::scatter_object",
   Throws=(InvalidArgument, InvalidType)]
  undefined scatter_object_list(Object scatter_object_output_list,
                                [Positional] optional Object? scatter_object_input_list = null,
                                [Positional] optional Rank? src = null,
                                [Positional] optional ProcessGroup? group = null,
                                optional Rank? group_src = null,
                                [NotIn=javascript] optional ObjectCodec codec = "cbor");

  /// Sends the objects of a list to `dst`.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::send_object",
   Throws=(InvalidArgument, InvalidType)]
  undefined send_object_list(Object object_list, [GlobalPeer, Positional] optional Rank? dst = null,
                             [Positional] optional ProcessGroup? group = null,
                             [NotIn=javascript] optional Object? device = null,
                             [Peer] optional Rank? group_dst = null,
                             [NotIn=javascript] optional ObjectCodec codec = "cbor");

  /// Receives objects into a list of the same length as the sender's. Returns the sender's global
  /// rank; -1 if this process is not in the group.
  [Handwritten, Own=python, Waits, NonMember, Rust="ProcessGroup::recv_object",
   Throws=(InvalidArgument, InvalidType)]
  long recv_object_list(Object object_list, [GlobalPeer, Positional] optional Rank? src = null,
                        [Positional] optional ProcessGroup? group = null,
                        [NotIn=javascript] optional Object? device = null,
                        [Peer] optional Rank? group_src = null,
                        [NotIn=javascript] optional ObjectCodec codec = "cbor");
};
