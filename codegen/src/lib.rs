//! polyrank's generator: `idl/*.webidl` in, the text of every generated file out.
//!
//! Text to text: it reads no file, writes no file, and knows nothing of the `polyrank` crate.

pub mod definitions;
pub mod files;
pub mod idl;
pub mod languages;
pub mod model;
pub mod reference;

use annotate_snippets::Renderer;

use idl::{Diagnostic, Diagnostics, Rule, Sources};
use model::Api;

/// The model of some IDL files, (name, text) each; every mistake of all of them if there is one.
pub fn read(mut files: Vec<(String, String)>) -> Result<Api, Mistakes> {
    files.sort();
    let sources = Sources::new(files);
    let mut diagnostics = Diagnostics::default();
    let mut definitions = Vec::new();
    for file in sources.indices() {
        definitions.extend(idl::parse(&sources, file, &mut diagnostics));
    }
    let unread = !diagnostics.is_empty();
    let api = model::build(&sources, &definitions, &mut diagnostics);
    if unread {
        diagnostics.retain(|diagnostic| !needs_all(diagnostic.rule));
    }
    if diagnostics.is_empty() {
        return Ok(api);
    }
    Err(Mistakes { sources, diagnostics: diagnostics.into_sorted() })
}

/// Why files could not be read.
#[derive(Clone, Debug)]
pub struct Mistakes {
    sources: Sources,
    diagnostics: Vec<Diagnostic>,
}

impl Mistakes {
    /// One by one, by file and place.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// As a person reads them; in colours if `styled`.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let render = |diagnostic: &Diagnostic| diagnostic.render(&self.sources, &renderer);
        let all: Vec<String> = self.diagnostics.iter().map(render).collect();
        all.join("\n\n") + "\n"
    }
}

/// Rules that a file seems to break when a definition that it needs could not be read.
fn needs_all(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::PartialOfNothing
            | Rule::UnknownType
            | Rule::UnknownBase
            | Rule::UnknownError
            | Rule::UnknownDType
            | Rule::UnknownSplits
            | Rule::DefaultType
            | Rule::Number
            | Rule::CollectiveFacts
            | Rule::MessageField
    )
}
