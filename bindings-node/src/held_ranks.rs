//! Tells the core which ranks the inspector holds. Knows nothing of who asks.

use napi_derive::napi;

/// A debugger holds the rank with this global number at `site`, or, with none, no longer.
#[napi]
pub fn hold_at(rank: u32, site: Option<String>) {
    polyrank::held_ranks::hold(rank, site.as_deref());
}
