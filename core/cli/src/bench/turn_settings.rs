//! How each contender is measured. Knows nothing of who measures it.

/// What one contender does before and in each turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnSettings {
    pub(super) turns: u32,
    /// Calls of a turn; `None` for as many as fit into `seconds`.
    pub(super) iterations: Option<u64>,
    pub(super) seconds: f64,
    pub(super) warmup: u64,
    pub(super) check: bool,
}
