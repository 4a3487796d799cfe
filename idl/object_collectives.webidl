// Collectives of values that are not tensors. Not built in this version.
//
// Objects are encoded as CBOR. A parameter whose name ends in `list` takes a list of the language,
// which is changed in place.

partial namespace distributed {
  /// All ranks get the objects of `src`, in their `object_list`, which has the same length.
  [Unbuilt, Throws=InvalidArgument]
  undefined broadcast_object_list(Object object_list, optional Rank? src = null,
                                  optional ProcessGroup? group = null,
                                  optional Object? device = null,
                                  optional Rank? group_src = null);

  /// All ranks get every rank's object, in `object_list`, which has one place for each rank.
  [Unbuilt, Throws=InvalidArgument]
  undefined all_gather_object(Object object_list, Object obj,
                              optional ProcessGroup? group = null);

  /// `dst` gets every rank's object, in `object_gather_list`, which only it gives.
  [Unbuilt, Throws=InvalidArgument]
  undefined gather_object(Object obj, optional Object? object_gather_list = null,
                          optional Rank? dst = null, optional ProcessGroup? group = null,
                          optional Rank? group_dst = null);

  /// Each rank gets its object of the list of `src`, in place 0 of its output list.
  [Unbuilt, Throws=InvalidArgument]
  undefined scatter_object_list(Object scatter_object_output_list,
                                optional Object? scatter_object_input_list = null,
                                optional Rank? src = null,
                                optional ProcessGroup? group = null,
                                optional Rank? group_src = null);

  /// Sends the objects of a list to `dst`.
  [Unbuilt, Throws=InvalidArgument]
  undefined send_object_list(Object object_list, optional Rank? dst = null,
                             optional ProcessGroup? group = null,
                             optional Object? device = null, optional Rank? group_dst = null);

  /// Receives objects into a list of the same length as the sender's. The sender's global rank;
  /// -1 if this process is not in the group.
  [Unbuilt, Throws=InvalidArgument]
  long recv_object_list(Object object_list, optional Rank? src = null,
                        optional ProcessGroup? group = null, optional Object? device = null,
                        optional Rank? group_src = null);
};
