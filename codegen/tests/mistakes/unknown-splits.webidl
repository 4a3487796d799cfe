/// A tensor.
[Opaque] typedef any Tensor;

/// A process group.
interface ProcessGroup {
  /// Sends a part to every rank.
  [Collective=alltoall, Number=0, Input=All, Output=All, Sizes=Pairwise]
  undefined all_to_all_single([Out, Flat] Tensor output,
                              [In, Flat, Splits=input_sizes] Tensor input,
                              optional sequence<unsigned long> input_sizes = []);
};
