//! Everything that `idl/*.webidl` decides. Knows nothing of transports, schedules' steps or backends.

pub mod collective;
pub mod dtype;
pub mod error;
pub mod options;
pub mod reduce_op;
