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
    /// By part: the tests that run it.
    credited: Vec<Vec<usize>>,
    words: BTreeMap<&'a str, Vec<Place>>,
}

/// One test, a function that tests call, or what else stands in a file.
struct Part<'a> {
    path: &'a str,
    /// Empty for what is neither a test nor a function.
    name: &'a str,
    is_test: bool,
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
        let of_part = |part| tests_of(&parts, &words, part);
        let credited = (0..parts.len()).map(of_part).collect();
        Index { parts, credited, words }
    }

    /// The test that says most plainly that it is about the definition; the first of several.
    fn best(&self, definition: &Definition) -> Option<String> {
        let named = last(&definition.name).trim_start_matches('_').to_lowercase();
        let mut best: Option<(usize, &str, &str)> = None;
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
                let of = owner(&definition.name).is_some_and(|owner| part.text.contains(owner));
                let tests = self.credited[place.part].iter().map(|test| self.parts[*test].name);
                // What no test runs that is known counts for its file.
                let is_of_file = self.credited[place.part].is_empty();
                for name in tests.chain(is_of_file.then_some("")) {
                    let title = name.to_lowercase().replace([' ', '-'], "_");
                    let score = usize::from(!is_of_file) * 16
                        + usize::from(of) * 8
                        + usize::from(title.contains(&named)) * 4
                        + usize::from(part.path.contains(&definition.topic)) * 2
                        + usize::from(part.is_test);
                    if best.is_none_or(|(known, ..)| score > known) {
                        best = Some((score, part.path, name));
                    }
                }
            }
        }
        best.map(|(_, path, name)| match name {
            "" => path.to_owned(),
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

/// The tests that run a part: itself, or those that name the function, also by way of others.
fn tests_of(parts: &[Part], words: &BTreeMap<&str, Vec<Place>>, part: usize) -> Vec<usize> {
    let mut tests = Vec::new();
    let mut reached = vec![part];
    let mut next = 0;
    while let Some(&current) = reached.get(next) {
        next += 1;
        let Part { path, name, is_test, .. } = parts[current];
        if is_test {
            tests.push(current);
            continue;
        }
        for place in words.get(name).into_iter().flatten() {
            let other = &parts[place.part];
            // A member of something else may have the same name.
            let is_member = other.text[..place.at].ends_with('.');
            if other.path == path && !is_member && !reached.contains(&place.part) {
                reached.push(place.part);
            }
        }
    }
    tests.sort_unstable();
    tests
}

/// Where a part begins, what it is called, and whether it is a test.
type Start<'a> = (usize, &'a str, bool);

/// A file's tests and functions, and what else stands there.
fn parts(source: &TestSource) -> Vec<Part<'_>> {
    let TestSource { path, text } = source;
    let mut starts: Vec<Start> = vec![(0, "", false)];
    starts.extend(match path.rsplit('.').next() {
        Some("py") => starts_in_python(text),
        Some("rs") => starts_in_rust(text),
        Some("js" | "mjs") => starts_in_javascript(text),
        _ => Vec::new(),
    });
    let ends = starts.iter().skip(1).map(|(at, ..)| *at).chain([text.len()]);
    let parts = starts.iter().zip(ends);
    parts
        .map(|(&(start, name, is_test), end)| Part { path, name, is_test, text: &text[start..end] })
        .collect()
}

/// Lines, and where they begin.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split_inclusive('\n');
    lines.map(|line| (line.as_ptr() as usize - text.as_ptr() as usize, line))
}

/// Functions, classes and values that stand at the left, with the decorators before them.
fn starts_in_python(text: &str) -> Vec<Start<'_>> {
    let mut starts = Vec::new();
    let (mut is_in_string, mut decorated): (bool, Option<usize>) = (false, None);
    for (at, line) in lines_of(text) {
        let is_statement = !is_in_string && line.starts_with(|it| is_letter(it) || it == '@');
        is_in_string ^= line.matches("\"\"\"").count() % 2 == 1;
        if !is_statement {
            continue;
        }
        let code = line.strip_prefix("async ").unwrap_or(line);
        if code.starts_with('@') {
            decorated = decorated.or(Some(at));
            continue;
        }
        let code =
            ["def ", "class "].iter().find_map(|word| code.strip_prefix(word)).unwrap_or(code);
        let (name, after) = code.split_at(code.find(|it| !is_letter(it)).unwrap_or(code.len()));
        let is_named = after.starts_with(['(', ':']) || after.starts_with(" = ");
        let is_function = code.len() < line.trim_start_matches("async ").len();
        let is_named = is_named && (is_function || !after.starts_with('('));
        let is_test = is_function && name.starts_with("test_");
        let start = decorated.take().unwrap_or(at);
        starts.push((start, if is_named { name } else { "" }, is_test));
    }
    starts
}

/// Functions, also those in modules.
fn starts_in_rust(text: &str) -> Vec<Start<'_>> {
    let (mut starts, mut marked) = (Vec::new(), None);
    for (at, line) in lines_of(text) {
        let code = line.trim_start();
        let is_mark = code.starts_with("#[test]");
        if is_mark || (marked.is_some() && code.starts_with("#[")) {
            marked = marked.or(Some(at));
            continue;
        }
        let code = ["pub ", "pub(crate) ", "pub(super) ", "async "]
            .iter()
            .fold(code, |code, word| code.strip_prefix(word).unwrap_or(code));
        // Methods of a type of the tests are found by no name of theirs.
        if let Some(name) = code.strip_prefix("fn ").filter(|_| !line.contains("self")) {
            let name = &name[..name.find(|it| !is_letter(it)).unwrap_or(name.len())];
            starts.push((marked.unwrap_or(at), name, marked.is_some()));
        }
        marked = None;
    }
    starts
}

/// Tests, and functions that stand at the left.
fn starts_in_javascript(text: &str) -> Vec<Start<'_>> {
    let calls = ["test(\"", "it(\"", "test.concurrent(\""];
    let mut starts = Vec::new();
    for (at, line) in lines_of(text) {
        let titled = calls.iter().find_map(|call| line.trim_start().strip_prefix(call));
        if let Some(title) = titled.and_then(|title| title.split('"').next()) {
            starts.push((at, title, true));
            continue;
        }
        let code = ["export ", "async "]
            .iter()
            .fold(line, |code, word| code.strip_prefix(word).unwrap_or(code));
        let words = ["function ", "function* ", "class ", "const "];
        if let Some(name) = words.iter().find_map(|word| code.strip_prefix(word)) {
            let name = &name[..name.find(|it| !is_letter(it)).unwrap_or(name.len())];
            starts.push((at, name, false));
        }
    }
    starts
}

fn words_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = text.split(|letter| !is_letter(letter)).filter(|word| !word.is_empty());
    words.map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
