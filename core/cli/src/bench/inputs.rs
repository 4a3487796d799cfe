//! Whether ranks write what they contribute before each call, and so which of the two measures a
//! figure belongs to. Knows nothing of how either is taken.
//!
//! *Rewritten*, as programs do it: before a call, every rank writes the buffers that the call
//! reads, so that their cache lines have to travel. Each burst of calls is timed by itself,
//! from a moment that the ranks agreed on to the end of the last of them; the writing lies
//! outside.
//!
//! *Untouched*: the same buffers again and again, calls back to back and timed together. A library
//! that copies straight out of a peer's memory then finds lines that its own cache still holds.

use serde::{Deserialize, Serialize};

/// What happens to the inputs between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Inputs {
    Rewritten,
    Untouched,
}

impl Inputs {
    pub(super) const ALL: [Inputs; 2] = [Inputs::Rewritten, Inputs::Untouched];

    pub(super) fn name(self) -> &'static str {
        match self {
            Inputs::Rewritten => "rewritten",
            Inputs::Untouched => "untouched",
        }
    }

    /// Those of a list of names, each once, in the order in which they are shown.
    ///
    /// # Errors
    /// Names the one that is neither.
    pub(super) fn list(names: &[String]) -> Result<Vec<Inputs>, String> {
        let known =
            |name: &&String| Inputs::ALL.iter().all(|inputs| inputs.name() != name.as_str());
        if let Some(name) = names.iter().find(known) {
            return Err(format!("--inputs: '{name}' is neither rewritten nor untouched"));
        }
        let is_asked = |inputs: &Inputs| names.iter().any(|name| name == inputs.name());
        Ok(Inputs::ALL.into_iter().filter(is_asked).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rewritten_inputs_are_shown_first() {
        let list = |names: &[&str]| {
            Inputs::list(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(list(&["untouched", "rewritten"]).unwrap(), Inputs::ALL);
        assert_eq!(list(&["untouched", "untouched"]).unwrap(), [Inputs::Untouched]);
        assert!(list(&["rewritten", "written"]).unwrap_err().contains("'written' is neither"));
    }
}
