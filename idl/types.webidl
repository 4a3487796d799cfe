// The names of values that every language has in its own form.

/// A tensor: memory, element type and shape.
///
/// Rust: anything that implements `Buffers`. Python: NumPy arrays, objects with the buffer
/// protocol, objects with `__dlpack__` (PyTorch CPU tensors, JAX arrays for input). A contiguous
/// tensor is used in place, without a copy; others go through a staging copy.
[Opaque] typedef any Tensor;

/// A run of bytes. A string is taken as its UTF-8 encoding.
[Opaque] typedef any Bytes;

/// A length of time. Python: `datetime.timedelta`, or a number of seconds. Rust:
/// `std::time::Duration`. TypeScript: milliseconds.
[Opaque] typedef any Duration;

/// The number of a process in a group, from 0 to the group's size - 1.
typedef unsigned long Rank;

/// Any value of the language.
[Opaque] typedef any Object;
