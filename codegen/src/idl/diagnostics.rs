//! Mistakes, and how a person reads them. Knows nothing of what the rules are about.

use std::collections::BTreeMap;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::rule::Rule;
use super::span::{Sources, Span};

/// One mistake.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The rule that is broken.
    pub rule: Rule,
    /// Where.
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// What stands at the caret, if that is not the message itself.
    pub label: Option<String>,
    /// Other places that matter, and why.
    pub related: Vec<(Span, String)>,
    /// What to do.
    pub advice: Option<String>,
}

impl Diagnostic {
    /// A mistake without label, related places and advice.
    pub fn new(rule: Rule, span: Span, message: impl Into<String>) -> Diagnostic {
        let message = message.into();
        Diagnostic { rule, span, message, label: None, related: Vec::new(), advice: None }
    }

    /// Sets what stands at the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = Some(label.into());
        self
    }

    /// Adds a place that matters.
    #[must_use]
    pub fn related(mut self, span: Span, why: impl Into<String>) -> Diagnostic {
        self.related.push((span, why.into()));
        self
    }

    /// Sets what to do.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Diagnostic {
        self.advice = Some(advice.into());
        self
    }

    /// The mistake with `file:line:column`, the source line, a caret and the advice.
    pub fn render(&self, sources: &Sources, renderer: &Renderer) -> String {
        let title = Level::ERROR.primary_title(&self.message).id(self.rule.name());
        let mut group = Group::with_title(title);
        for (file, places) in self.places_by_file() {
            let text = sources.text(file);
            let mut snippet = Snippet::source(text).path(sources.name(file));
            for (span, label, kind) in places {
                snippet = snippet.annotation(kind.span(within(text, span)).label(label));
            }
            group = group.element(snippet);
        }
        if let Some(advice) = &self.advice {
            group = group.element(Level::HELP.message(advice));
        }
        renderer.render(&[group])
    }

    /// The places to show, those of the mistake's own file first.
    fn places_by_file(&self) -> Vec<(usize, Vec<ShownSpan<'_>>)> {
        let own = (self.span, self.label.as_deref(), AnnotationKind::Primary);
        let mut files = BTreeMap::from([(self.span.file, vec![own])]);
        for (span, why) in &self.related {
            let place = (*span, Some(why.as_str()), AnnotationKind::Context);
            files.entry(span.file).or_default().push(place);
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|&(file, _)| (file != self.span.file, file));
        files
    }
}

/// A place, what stands at it, and whether it is the mistake's own.
type ShownSpan<'a> = (Span, Option<&'a str>, AnnotationKind);

/// The mistakes found so far.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.all.push(diagnostic);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.all.truncate(count);
    }

    /// Keeps those for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.all.retain(keep);
    }

    /// All of them, by file and place.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.all.sort_by_key(|diagnostic| diagnostic.span);
        self.all
    }
}

/// `span` as bytes of `text`, on character boundaries. The end of the file shows at its last
/// character, because a caret after the last line break would stand on a line of nothing.
fn within(text: &str, span: Span) -> std::ops::Range<usize> {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(span.start.min(text.trim_end().len()));
    start..floor(span.end).max(start)
}
