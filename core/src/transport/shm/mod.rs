//! Memory that the ranks of one host share. Knows nothing of groups.

pub mod board;
mod memory;
mod ring;
