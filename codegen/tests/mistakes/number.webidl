/// Element types.
[DTypes]
namespace DType {
  /// `bool`, one byte.
  [Number=0, Bytes=1, Class=bool] readonly attribute DType bool;
  /// Unsigned 8-bit integer.
  [Number=0, Bytes=1, Class=integer] readonly attribute DType u8;
};
