/// Element types.
[DTypes]
namespace DType {
  /// `bool`, one byte.
  [Number=0, Bytes=1, Class=bool] readonly attribute DType bool;
};

/// Reduction operators.
[ReduceOps]
namespace ReduceOp {
  /// Addition.
  [Number=0, DTypes="all -quaternions"] readonly attribute ReduceOp SUM;
};
