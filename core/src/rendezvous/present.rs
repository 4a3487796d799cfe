//! Which generations of a group ranks may come to, as it stands in the store: one list, changed as
//! a whole. Knows nothing of places.

use super::generation::{Generation, Generations};
use crate::generated::error::Result;
use crate::store::Store;

fn key_of(base: &str) -> String {
    format!("{base}/generation")
}

/// The first generation that is not among `passed`, for a rank that knows so many restarts: a new
/// one if there is none. `base` begins the keys of all.
pub(super) async fn first_beside(
    store: &dyn Store,
    base: &str,
    restart_count: Option<u32>,
    passed: &[Generation],
) -> Result<Generation> {
    let (key, first) = (key_of(base), Generation::first(restart_count).to_string());
    let mut known = store.compare_set_async(&key, b"", first.as_bytes()).await?;
    loop {
        let generations = Generations::read(&known);
        if let Some(present) = generations.first_beside(passed) {
            return Ok(present);
        }
        let next = generations.with_next(restart_count).to_string();
        known = store.compare_set_async(&key, &known, next.as_bytes()).await?;
    }
}

/// Whether ranks may come to `generation`.
pub(super) async fn has(store: &dyn Store, base: &str, generation: Generation) -> Result<bool> {
    let present = generation.to_string();
    let known = store.compare_set_async(&key_of(base), b"", present.as_bytes()).await?;
    Ok(Generations::read(&known).has(generation))
}

/// Sees that no rank comes to `generation` any more.
pub(super) async fn remove(
    store: &dyn Store,
    base: &str,
    generation: Generation,
    restart_count: Option<u32>,
) -> Result<()> {
    let (key, present) = (key_of(base), generation.to_string());
    let mut known = store.compare_set_async(&key, b"", present.as_bytes()).await?;
    loop {
        let generations = Generations::read(&known);
        if !generations.has(generation) {
            return Ok(());
        }
        let without = generations.without(generation, restart_count).to_string();
        known = store.compare_set_async(&key, &known, without.as_bytes()).await?;
    }
}
