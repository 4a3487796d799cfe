//! What was measured of how ranks start together. Knows nothing of how.

/// How a team's ranks start together, as measured without calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StartTiming {
    /// From when the last rank is ready until all start.
    pub(super) lead_ns: u64,
    /// From the common start to the end of a call that does nothing, of the slowest rank: what the
    /// measure adds to every call.
    pub(super) empty_call_s: f64,
}
