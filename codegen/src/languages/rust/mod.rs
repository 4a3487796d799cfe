//! Rust: the tables and types that `polyrank` is built on.

use crate::files::Files;
use crate::model::Api;

/// The files under `core/src/generated`.
pub fn files(_api: &Api) -> Result<Files, askama::Error> {
    Ok(Files::new())
}
