// Element types. The numbers travel between ranks and never change.

/// The type of a tensor's elements.
///
/// NumPy and PyTorch names correspond: `f32` is `float32`, `u8` is `uint8`, `complex64` is a pair
/// of `f32`.
[DTypes, Since=0.1]
namespace DType {
  /// `bool`, one byte, 0 or 1.
  [Number=0, Bytes=1, Class="bool"] readonly attribute DType bool;
  /// Unsigned 8-bit integer.
  [Number=1, Bytes=1, Class="integer"] readonly attribute DType u8;
  /// Signed 8-bit integer.
  [Number=2, Bytes=1, Class="integer"] readonly attribute DType i8;
  /// Unsigned 16-bit integer.
  [Number=3, Bytes=2, Class="integer"] readonly attribute DType u16;
  /// Signed 16-bit integer.
  [Number=4, Bytes=2, Class="integer"] readonly attribute DType i16;
  /// Unsigned 32-bit integer.
  [Number=5, Bytes=4, Class="integer"] readonly attribute DType u32;
  /// Signed 32-bit integer.
  [Number=6, Bytes=4, Class="integer"] readonly attribute DType i32;
  /// Unsigned 64-bit integer.
  [Number=7, Bytes=8, Class="integer"] readonly attribute DType u64;
  /// Signed 64-bit integer.
  [Number=8, Bytes=8, Class="integer"] readonly attribute DType i64;
  /// IEEE 754 binary16.
  [Number=9, Bytes=2, Class="float"] readonly attribute DType f16;
  /// bfloat16.
  [Number=10, Bytes=2, Class="float"] readonly attribute DType bf16;
  /// IEEE 754 binary32.
  [Number=11, Bytes=4, Class="float"] readonly attribute DType f32;
  /// IEEE 754 binary64.
  [Number=12, Bytes=8, Class="float"] readonly attribute DType f64;
  /// A pair of binary32: real, imaginary.
  [Number=13, Bytes=8, Class="complex"] readonly attribute DType complex64;
  /// A pair of binary64: real, imaginary.
  [Number=14, Bytes=16, Class="complex"] readonly attribute DType complex128;
};
