//! What the page that opens flight recorders' files calls: texts in, texts out. Knows no element of
//! a page. Empty on other platforms.

#![cfg(target_family = "wasm")]
// JavaScript reaches what no Rust does.
#![allow(unreachable_pub)]

use polyrank_trace::{Job, Selection, read};
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

/// The files of one job, read.
#[wasm_bindgen]
pub struct Trace {
    job: Job,
}

#[wasm_bindgen]
impl Trace {
    /// Reads files, of which the names are for messages.
    ///
    /// # Errors
    /// If a file is not what a flight recorder writes, or if they are those of different runs.
    #[wasm_bindgen(constructor)]
    pub fn new(names: Vec<String>, texts: Vec<String>) -> Result<Trace, JsError> {
        let read = |(name, text): (&String, &String)| read(name, text);
        let files = names.iter().zip(&texts).map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Trace { job: Job::new(files)? })
    }

    /// What went wrong, in words; `last` operations of each rank are listed, 0 for one.
    #[must_use]
    pub fn report(&self, last: u32) -> String {
        self.job.report(&selection(last))
    }

    /// The timeline; 0 is for all operations.
    #[must_use]
    pub fn svg(&self, last: u32) -> String {
        self.job.svg(&selection(last))
    }

    /// The trace events for ui.perfetto.dev.
    #[must_use]
    pub fn perfetto(&self) -> String {
        self.job.perfetto(&Selection::default()).to_string()
    }
}

fn selection(last: u32) -> Selection {
    Selection { last: (last > 0).then_some(last as usize), ..Selection::default() }
}
