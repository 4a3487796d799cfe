//! The native half of the Node package: what its JavaScript half calls. Knows the core, and nothing
//! of how the package is used.
