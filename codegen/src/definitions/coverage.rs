//! Which test exercises a definition: the words of all tests, and the forms in which a call, a
//! property, an option or an error is named. Knows a test's source as text only.

use std::collections::BTreeMap;

use super::{Definition, Kind};

/// A file of tests.
#[derive(Clone, Debug)]
pub struct TestSource {
    /// From the repository's root.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// Says of each definition which test exercises it, if one does.
pub fn find_tests(all: &mut [Definition], sources: &[TestSource]) {
    let index = Index::of(sources);
    for definition in all {
        definition.test = index.best(definition);
    }
}

/// The words of all tests, and where they stand.
struct Index<'a> {
    parts: Vec<Part<'a>>,
    words: BTreeMap<&'a str, Vec<Place>>,
}

/// One test, or what stands before the first of a file.
struct Part<'a> {
    path: &'a str,
    /// Empty for what is no test.
    name: &'a str,
    text: &'a str,
}

/// Where a word begins.
#[derive(Clone, Copy)]
struct Place {
    part: usize,
    at: usize,
}

/// A word with what stands around it.
struct Occurrence<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> Index<'a> {
    fn of(sources: &'a [TestSource]) -> Index<'a> {
        let parts: Vec<Part> = sources.iter().flat_map(parts).collect();
        let mut words: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        for (part, Part { text, .. }) in parts.iter().enumerate() {
            for (at, word) in words_of(text) {
                words.entry(word).or_default().push(Place { part, at });
            }
        }
        Index { parts, words }
    }

    /// The test that says most plainly that it is about the definition; the first of several.
    fn best(&self, definition: &Definition) -> Option<String> {
        let named = last(&definition.name).trim_start_matches('_').to_lowercase();
        let mut best: Option<(usize, &Part)> = None;
        for (form, word) in forms(definition) {
            for place in self.words.get(word.as_str()).into_iter().flatten() {
                let part = &self.parts[place.part];
                let occurrence = Occurrence {
                    before: &part.text[..place.at],
                    after: &part.text[place.at + word.len()..],
                };
                if !form.fits(&occurrence) || !self.is_about(definition, place.part) {
                    continue;
                }
                let title = part.name.to_lowercase().replace([' ', '-'], "_");
                let of = owner(&definition.name).is_some_and(|owner| part.text.contains(owner));
                let score = usize::from(!part.name.is_empty()) * 8
                    + usize::from(of) * 4
                    + usize::from(title.contains(&named)) * 2
                    + usize::from(part.path.contains(&definition.topic));
                if best.is_none_or(|(known, _)| score > known) {
                    best = Some((score, part));
                }
            }
        }
        best.map(|(_, Part { path, name, .. })| match *name {
            "" => (*path).to_owned(),
            name => format!("{path}: {name}"),
        })
    }

    /// Whether a part has to do with what the definition belongs to, and not with others whose
    /// members have the same names.
    fn is_about(&self, definition: &Definition, part: usize) -> bool {
        let owners: Vec<&str> = match definition.kind {
            Kind::ErrorField => [&definition.rust, &definition.python]
                .into_iter()
                .flatten()
                .filter_map(|name| owner(name))
                .collect(),
            Kind::Method | Kind::Attribute | Kind::Option => match owner(&definition.name) {
                Some("ProcessGroup" | "Work" | "Future" | "BackendOptions") | None => return true,
                Some(owner) if owner.contains("Store") => vec!["Store"],
                Some(owner) => vec![owner],
            },
            _ => return true,
        };
        let path = self.parts[part].path;
        let mut texts = self.parts.iter().filter(|it| match definition.kind {
            Kind::ErrorField => std::ptr::eq(*it, &self.parts[part]),
            _ => it.path == path,
        });
        texts.any(|it| owners.iter().any(|owner| it.text.contains(last(owner))))
    }
}

/// How a definition is named where it is exercised.
#[derive(Clone, Copy)]
enum Form {
    /// Anyhow.
    Word,
    /// `.name(`, `::name(`, `"name"`.
    Method,
    /// `name(`, after the name of a module at most.
    Function,
    /// `.name`.
    Attribute,
    /// `name=`, `name:`, `.name(`.
    Option,
    /// After this, and a point or two colons.
    Of(&'static str),
    /// In quotes.
    Quoted,
}

impl Form {
    fn fits(self, found: &Occurrence) -> bool {
        let (before, after) = (found.before, found.after);
        let is_member = before.ends_with('.') || before.ends_with("::");
        let is_quoted = before.ends_with(['"', '\'']) && after.starts_with(['"', '\'']);
        let is_called = after.starts_with(['(', '<']) || after.starts_with("_async(");
        match self {
            Form::Word => true,
            Form::Method => (is_member && is_called) || is_quoted,
            Form::Function => {
                let owner = before.trim_end_matches(['.', ':']);
                let start = owner.rfind(|it| !is_letter(it)).map_or(0, |at| at + 1);
                (is_called || after.starts_with(',') || after.starts_with(')'))
                    && (!is_member || MODULES.contains(&&owner[start..]))
                    || is_quoted
            }
            Form::Attribute => is_member || is_quoted,
            Form::Option => {
                let is_given = after.trim_start().starts_with(['=', ':', ',', '}']);
                (is_given && !after.starts_with("::")) || is_member || is_quoted
            }
            Form::Of(owner) => {
                is_member && before.trim_end_matches(['.', ':']).ends_with(owner) || is_quoted
            }
            Form::Quoted => is_quoted,
        }
    }
}

/// What tests call the packages, and modules of the crate.
const MODULES: [&str; 8] =
    ["dist", "polyrank", "distributed", "c10d", "pr", "api", "device_mesh", "rendezvous"];

/// The words by which tests name a definition, and how they stand there.
fn forms(definition: &Definition) -> Vec<(Form, String)> {
    let Definition { rust, python, node, browser, .. } = definition;
    let spelt = [rust, python, node, browser].into_iter().flatten();
    let mut forms: Vec<(Form, String)> = Vec::new();
    for name in spelt.chain(&definition.python_aliases).chain(&definition.javascript_aliases) {
        let form = match definition.kind {
            Kind::Class | Kind::Enum | Kind::Error | Kind::Options | Kind::Record => Form::Word,
            Kind::Result => continue,
            Kind::Texts => continue,
            Kind::Constructor if last(name) == "new" => Form::Word,
            Kind::Constructor | Kind::Method => Form::Method,
            Kind::Function => Form::Function,
            Kind::Value => Form::Word,
            Kind::Attribute | Kind::Field | Kind::Part => Form::Attribute,
            Kind::EnumValue => Form::Of(match owner(name) {
                Some("DType") => "DType",
                Some("ReduceOp") => "ReduceOp",
                Some("BackendType") => "BackendType",
                Some("WorkResult") => "WorkResult",
                _ => "Backend",
            }),
            Kind::Text => Form::Quoted,
            Kind::Option | Kind::ErrorField => Form::Option,
        };
        let word = match definition.kind {
            // An object is made by the name of its class.
            Kind::Constructor if last(name) == "new" => owner(name).unwrap_or(name),
            Kind::Constructor if !name.contains(['.', ':']) => name,
            _ => last(name),
        };
        let form = match (definition.kind, name.contains(['.', ':'])) {
            (Kind::Constructor, false) => Form::Function,
            _ => form,
        };
        forms.push((form, word.to_owned()));
    }
    if matches!(definition.kind, Kind::Text) {
        forms.push((Form::Quoted, last(&definition.name).to_owned()));
    }
    forms
}

/// `allreduce` of `ProcessGroup.allreduce` and of `ProcessGroup::allreduce`.
fn last(name: &str) -> &str {
    name.rsplit(['.', ':']).next().unwrap_or(name)
}

/// What a name stands after.
fn owner(name: &str) -> Option<&str> {
    let before = name.strip_suffix(last(name))?.trim_end_matches(['.', ':']);
    (!before.is_empty()).then_some(before)
}

/// A file's tests, and what stands before them.
fn parts(source: &TestSource) -> Vec<Part<'_>> {
    let TestSource { path, text } = source;
    let mut starts: Vec<(usize, &str)> = vec![(0, "")];
    let (mut at, mut is_marked) = (0, false);
    for line in text.split_inclusive('\n') {
        let code = line.trim_start();
        let title = match path.rsplit('.').next() {
            Some("py") => code.strip_prefix("def test_").and_then(|_| between(code, "def ", "(")),
            Some("rs") if is_marked => between(code, "fn ", "("),
            Some("js" | "mjs") => ["test(\"", "it(\"", "test.concurrent(\""]
                .iter()
                .find_map(|call| code.strip_prefix(call)?.split('"').next()),
            _ => None,
        };
        is_marked = code.starts_with("#[test]") || (is_marked && code.starts_with("#["));
        if let Some(title) = title {
            starts.push((at, title));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([text.len()]);
    let parts = starts.iter().zip(ends);
    parts.map(|((start, name), end)| Part { path, name, text: &text[*start..end] }).collect()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

fn words_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = text.split(|letter| !is_letter(letter)).filter(|word| !word.is_empty());
    words.map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
