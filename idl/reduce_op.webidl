// Reduction operators, and which of them an element type has. The numbers are c10d's.

/// How elements of several ranks are combined.
///
/// Integers wrap around. On `bool`, `SUM` and `MAX` are logical or, `PRODUCT` and `MIN` logical
/// and. An operator that has no meaning for an element type raises `UnsupportedDType`.
[ReduceOps, Since=0.1]
namespace ReduceOp {
  /// Addition.
  [Number=0, DTypes="all"] readonly attribute ReduceOp SUM;
  /// Sum divided by the number of ranks; integers truncate toward zero.
  [Number=1, DTypes="all -bool"] readonly attribute ReduceOp AVG;
  /// Multiplication.
  [Number=2, DTypes="all -complex"] readonly attribute ReduceOp PRODUCT;
  /// The minimum; NaN propagates.
  [Number=3, DTypes="all -complex"] readonly attribute ReduceOp MIN;
  /// The maximum; NaN propagates.
  [Number=4, DTypes="all -complex"] readonly attribute ReduceOp MAX;
  /// Bitwise and.
  [Number=5, DTypes="bool integers"] readonly attribute ReduceOp BAND;
  /// Bitwise or.
  [Number=6, DTypes="bool integers"] readonly attribute ReduceOp BOR;
  /// Bitwise exclusive or.
  [Number=7, DTypes="bool integers"] readonly attribute ReduceOp BXOR;
  /// Each rank's elements times the factor, then the sum. Made by `premul_sum(factor)`.
  [Number=8, DTypes="floats complex", Factor] readonly attribute ReduceOp PREMUL_SUM;
  /// A function of the program, of two whole tensors: what `ReduceOp.custom(function)` makes. It
  /// combines the tensors of all ranks in the order of the ranks. Every rank that runs the
  /// operation passes a custom operator, and the functions must give the same everywhere.
  [Number=9, DTypes="all", Custom] readonly attribute ReduceOp CUSTOM;
  /// Logical and: 1 where no rank has 0, else 0.
  [Number=10, DTypes="bool integers"] readonly attribute ReduceOp LAND;
  /// Logical or: 1 where any rank has something else than 0, else 0.
  [Number=11, DTypes="bool integers"] readonly attribute ReduceOp LOR;
  /// Logical exclusive or: 1 where an odd number of ranks has something else than 0, else 0.
  [Number=12, DTypes="bool integers"] readonly attribute ReduceOp LXOR;
  /// The maximum, and whose it is: elements are pairs, one after the other, of a value and an
  /// index, in tensors whose last dimension is even. Of equal values, that with the lowest index; a
  /// NaN is greater than all others. Both have the tensor's element type.
  [Number=13, DTypes="all -bool -complex", Pairs] readonly attribute ReduceOp MAXLOC;
  /// The minimum, and whose it is, as `MAXLOC` has it; a NaN is less than all others.
  [Number=14, DTypes="all -bool -complex", Pairs] readonly attribute ReduceOp MINLOC;
};
