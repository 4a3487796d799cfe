//! What languages declare beside the IDL, and how: read from their declarations, as a person wrote
//! them or another tool did.

mod python;
mod rust;
mod typescript;

/// The texts in which languages declare what they have.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    /// The Python modules whose `__all__` the package exports, stubs or not.
    pub python: Vec<String>,
    /// What `index.d.ts` exports.
    pub typescript: Vec<String>,
    /// What users of the crate can name, a line each, as `cargo xtask public-api` writes it.
    pub rust: String,
}

/// Something that a language declares, on its top level or in a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) name: String,
    /// Its doc comment, as text.
    pub(super) doc: String,
    /// The whole of it, without comments.
    pub(super) code: String,
    /// The signature of each of its methods, in one line, with the name.
    pub(super) methods: Vec<(String, String)>,
}

/// All that languages declare.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) python: Vec<Declaration>,
    pub(super) typescript: Vec<Declaration>,
    pub(super) rust: Vec<Declaration>,
}

impl Declared {
    pub(super) fn read(declarations: &Declarations) -> Declared {
        let Declarations { python, typescript, rust } = declarations;
        Declared {
            python: python.iter().flat_map(|text| python::exported(text)).collect(),
            typescript: typescript.iter().flat_map(|text| typescript::exported(text)).collect(),
            rust: rust::public(rust),
        }
    }
}

/// The signatures of a function, or of a method of `class`.
pub(super) fn signatures(known: &[Declaration], class: Option<&str>, name: &str) -> Vec<String> {
    let wanted = class.unwrap_or(name);
    let mut found: Vec<String> = Vec::new();
    for declaration in known.iter().filter(|known| known.name == wanted) {
        let methods = declaration.methods.iter().filter(|(method, _)| method == name);
        let forms: Vec<String> = match class {
            Some(_) => methods.map(|(_, signature)| signature.clone()).collect(),
            None => vec![on_one_line(&declaration.code)],
        };
        found.extend(forms.into_iter().filter(|form| !form.is_empty()));
    }
    let mut seen = Vec::new();
    found.retain(|form| {
        let is_new = !seen.contains(form);
        seen.push(form.clone());
        is_new
    });
    found
}

/// Code without the breaks of its lines.
fn on_one_line(code: &str) -> String {
    let joined = code.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    joined.replace("( ", "(").replace(", )", ")").replace(" )", ")")
}

/// How much deeper brackets are after `code` than before it.
fn depth(code: &str) -> i32 {
    let step = |letter: char| match letter {
        '(' | '[' | '{' => 1,
        ')' | ']' | '}' => -1,
        _ => 0,
    };
    code.chars().map(step).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(known: &[Declaration]) -> Vec<(&str, &str)> {
        known.iter().map(|it| (&*it.name, &*it.code)).collect()
    }

    #[test]
    fn exports_of_javascript_are_read_with_their_docs() {
        let text = "\
/** A view. */
export class View<A = unknown> {
  private constructor();
  /** Its (only) part. */
  readonly part: A;
  /**
   * Copies {@link View.part}.
   */
  copy<B>(
    to: B,
  ): Promise<B>;
}

/** Makes one. */
export function view(
  part: string,
): View<string>;
type Hidden = string;
";
        let known = typescript::exported(text);
        let class = "class View<A = unknown> {\n  readonly part: A;\n  copy<B>(\n    to: B,\n  ): \
                     Promise<B>;\n}";
        let function = "function view(\n  part: string,\n): View<string>;";
        assert_eq!(texts(&known), [("View", class), ("view", function)]);
        assert_eq!(known[0].doc, "A view.");
        assert_eq!(signatures(&known, Some("View"), "copy"), ["copy<B>(to: B): Promise<B>"]);
        assert_eq!(
            signatures(&known, None, "view"),
            ["function view(part: string): View<string>;"]
        );
    }

    #[test]
    fn exports_of_python_are_what_a_module_lists() {
        let text = "\
__all__ = [\"Batch\", \"alias\", \"make\"]

alias = make

class Batch(Base):
    \"\"\"Some operations.

    More of it.\"\"\"

    def add(self, work: Work | None = None) -> None:
        \"\"\"Adds.\"\"\"
        self.works.append(work)

    def _hidden(self) -> None: ...

@contextmanager
def make(
    group: int = 0, device: Any = None
) -> Generator[Batch, None, None]:
    \"\"\"Makes.\"\"\"
    yield

def other() -> None: ...
";
        let known = python::exported(text);
        let class = "class Batch(Base):\n    def add(self, work: Work | None = None) -> None";
        let make = "def make(group: int = 0, device: Any = None) -> Generator[Batch, None, None]";
        assert_eq!(texts(&known), [("Batch", class), ("alias", "alias = make"), ("make", make)]);
        assert_eq!(known[0].doc, "Some operations.\n\nMore of it.");
    }

    #[test]
    fn names_of_rust_are_read_from_the_list() {
        let text = "\
pub mod polyrank::store
#[non_exhaustive] pub struct polyrank::store::HashStore
impl polyrank::store::HashStore
pub fn polyrank::store::HashStore::new() -> Self
pub fn polyrank::store::HashStore::wait(&self, Option<core::time::Duration>) -> polyrank::Result<()>
pub fn polyrank::store::grace(u32) -> core::option::Option<u32>
pub enum polyrank::Device
pub polyrank::Device::Cpu
";
        let known = rust::public(text);
        let class = "struct store::HashStore\nHashStore::new() -> Self\n\
                     HashStore::wait(&self, Option<Duration>) -> Result<()>";
        let grace = "fn store::grace(u32) -> Option<u32>";
        let device = "enum Device\nDevice::Cpu";
        assert_eq!(texts(&known), [("HashStore", class), ("grace", grace), ("Device", device)]);
        let wait = "HashStore::wait(&self, Option<Duration>) -> Result<()>";
        assert_eq!(signatures(&known, Some("HashStore"), "wait"), [wait]);
    }
}
