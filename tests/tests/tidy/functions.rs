//! How long functions are: in Rust by its grammar, in Python and JavaScript by indentation.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::files::{File, Language};
use crate::rules::parse;

const MAX_LINES: usize = 70;

pub(crate) fn too_long(file: &File) -> Vec<String> {
    let functions = match file.language() {
        Language::Rust => rust(file),
        Language::Python => python(&file.text),
        Language::JavaScript => javascript(&file.text),
        _ => return Vec::new(),
    };
    let long = functions.into_iter().filter(|function| function.lines > MAX_LINES);
    long.map(|Function { name, first, lines }| {
        format!("{}:{first}: {name} has {lines} lines, {MAX_LINES} are allowed", file.path)
    })
    .collect()
}

/// A function from its `fn` or `def` to its end.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    first: usize,
    lines: usize,
}

fn rust(file: &File) -> Vec<Function> {
    let mut found = Functions(Vec::new());
    found.visit_file(&parse(file));
    found.0
}

struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        self.0.push(Function { name: signature.ident.to_string(), first, lines });
    }
}

impl<'tree> Visit<'tree> for Functions {
    fn visit_item_fn(&mut self, item: &'tree syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'tree syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'tree syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// A function ends before the first line that is not indented deeper than its `def`, apart from
/// empty lines, comments, and the bracket that closes its signature.
fn python(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        let Some(rest) = start.strip_prefix("async ").unwrap_or(start).strip_prefix("def ") else {
            continue;
        };
        let mut last = at;
        for (next, line) in lines.iter().enumerate().skip(at + 1) {
            let code = line.trim();
            let is_inside = indent(line) > indent(lines[at]) || code.starts_with(')');
            if is_inside && !code.is_empty() {
                last = next;
            } else if !code.is_empty() && !code.starts_with('#') {
                break;
            }
        }
        let name = rest.split('(').next().unwrap_or(rest).to_owned();
        found.push(Function { name, first: at + 1, lines: last + 1 - at });
    }
    found
}

/// A function goes from a line that opens its body to the next line that is indented alike and
/// closes it.
fn javascript(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim();
        if !opens_a_function(code) {
            continue;
        }
        let closes = |next: &&str| next.trim().starts_with('}') && indent(next) == indent(line);
        let more = lines[at + 1..].iter().position(closes);
        let name = code.trim_end_matches('{').trim().to_owned();
        found.extend(more.map(|more| Function { name, first: at + 1, lines: more + 2 }));
    }
    found
}

/// `function f() {`, `const f = () => {`, `test("…", async () => {`, `f() {` in a class.
fn opens_a_function(code: &str) -> bool {
    let Some(head) = code.strip_suffix('{') else { return false };
    let head = head.trim();
    let first = head.split(['(', ' ']).next().unwrap_or_default();
    let is_statement =
        ["if", "for", "while", "switch", "}", "else", "catch", "do"].contains(&first);
    let is_function = head.ends_with("=>") || (head.ends_with(')') && head.contains('('));
    is_function && !is_statement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(functions: Vec<Function>) -> Vec<(String, usize, usize)> {
        functions.into_iter().map(|found| (found.name, found.first, found.lines)).collect()
    }

    #[test]
    fn rust_functions_are_measured() {
        let text = "//! A.\nfn a() {\n    b()\n}\nimpl X {\n    /// Doc.\n    pub fn c(\n        \
                    &self,\n    ) {\n    }\n}\ntrait T { fn d(); fn e() { fn f() {} } }\n";
        let expected = [("a", 2, 3), ("c", 7, 4), ("e", 12, 1), ("f", 12, 1)];
        let found = shape(rust(&File::new("a.rs", text)));
        assert_eq!(found, expected.map(|(name, first, lines)| (name.to_owned(), first, lines)));
    }

    #[test]
    fn python_functions_are_measured() {
        let text = "def a(\n    x,\n):\n    return x\n\n\nclass B:\n    async def c(self):\n\
                    # odd\n        return 1\n\n    def d(self): pass\nx = 1\n";
        let expected = [("a", 1, 4), ("c", 8, 3), ("d", 12, 1)];
        let found = shape(python(text));
        assert_eq!(found, expected.map(|(name, first, lines)| (name.to_owned(), first, lines)));
    }

    #[test]
    fn javascript_functions_are_measured() {
        let text = "export function a() {\n  if (x) {\n    y();\n  }\n}\nclass B {\n  \
                    async #c(d) {\n    for (;;) {\n    }\n  }\n}\ntest(\"e\", () => {\n});\n";
        let expected =
            [("export function a()", 1, 5), ("async #c(d)", 7, 4), ("test(\"e\", () =>", 12, 2)];
        let found = shape(javascript(text));
        assert_eq!(found, expected.map(|(name, first, lines)| (name.to_owned(), first, lines)));
    }

    #[test]
    fn a_long_function_is_an_offence() {
        let text = format!("//! A.\nfn long() {{\n{}}}\n", "    x();\n".repeat(69));
        let expected = ["a.rs:2: long has 71 lines, 70 are allowed"];
        assert_eq!(too_long(&File::new("a.rs", &text)), expected);
    }
}
