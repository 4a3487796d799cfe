//! Schedules, their timelines and what they cost, for pages that draw them: see `drawing.d.ts`.
//! Needs no group and no socket.

use polyrank::schedule::drawing;
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

/// The collectives and their algorithms: `Collective[]` as JSON.
#[wasm_bindgen(js_name = drawCollectives)]
pub fn collectives() -> String {
    drawing::collectives()
}

/// The schedules of all ranks with their timeline: `Drawing` as JSON.
///
/// # Errors
/// As [`drawing::schedule`].
#[wasm_bindgen(js_name = drawSchedule)]
pub fn schedule(
    collective: &str,
    algorithm: &str,
    ranks: u32,
    root: u32,
    bytes: f64,
) -> Result<String, JsError> {
    drawing::schedule(collective, algorithm, ranks, root, bytes).map_err(raise)
}

/// Seconds that each algorithm costs for each of the sizes.
///
/// # Errors
/// As [`drawing::prices`].
#[wasm_bindgen(js_name = drawPrices)]
pub fn prices(collective: &str, ranks: u32, bytes: &[f64]) -> Result<Vec<f64>, JsError> {
    drawing::prices(collective, ranks, bytes).map_err(raise)
}

/// The index of the algorithm that polyrank picks, for each of the sizes.
///
/// # Errors
/// As [`drawing::selection`].
#[wasm_bindgen(js_name = drawSelection)]
pub fn selection(collective: &str, ranks: u32, bytes: &[f64]) -> Result<Vec<u32>, JsError> {
    drawing::selection(collective, ranks, bytes).map_err(raise)
}

fn raise(message: String) -> JsError {
    JsError::new(&message)
}
