//! Tells the core which ranks pdb holds. Knows nothing of who asks.

use polyrank::held_ranks;
use pyo3::prelude::*;

/// A debugger holds the rank with this global number at `site`, or, with none, no longer.
#[pyfunction(name = "_hold")]
#[pyo3(signature = (rank, site, /))]
pub(crate) fn hold(rank: u32, site: Option<String>) {
    held_ranks::hold(rank, site.as_deref());
}
