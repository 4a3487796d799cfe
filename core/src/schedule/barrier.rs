//! Placeholder.
use super::{Algorithm, Contract};
/// Contract.
pub const CONTRACT: Contract =
    Contract { before: |_| (vec![], vec![]), after: |_| vec![], barrier: false };
/// Algorithms.
pub const ALGORITHMS: &[Algorithm] = &[];
