//! What the generator makes of the IDL for Python. Written by hand until its templates exist.

pub(crate) mod errors;
pub(crate) mod process_group;
pub(crate) mod tables;
