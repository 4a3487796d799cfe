//! The names that a Python module exports, and how it declares them.

use super::{Declaration, depth, on_one_line};

/// What the module exports, in the order of its `__all__`.
pub(super) fn exported(text: &str) -> Vec<Declaration> {
    let lines: Vec<&str> = text.lines().collect();
    let declared = |name: &String| Some(declaration(&lines, name)).filter(|it| !it.code.is_empty());
    names(text).iter().filter_map(declared).collect()
}

/// The names in `__all__`.
fn names(text: &str) -> Vec<String> {
    let Some((_, list)) = text.split_once("__all__ = [") else { return Vec::new() };
    let list = list.split_once(']').map_or(list, |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn declaration(lines: &[&str], name: &str) -> Declaration {
    let mut all = Declaration { name: name.to_owned(), ..Declaration::default() };
    let mut codes: Vec<String> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (header, end) = match line.split_once(name) {
            Some(("class " | "def ", rest)) if rest.starts_with(['(', ':']) => header(lines, at),
            Some(("", rest)) if rest.starts_with([':', ' ']) => ((*line).to_owned(), at),
            _ => continue,
        };
        if all.doc.is_empty() {
            all.doc = docstring(&lines[end + 1..]);
        }
        let is_class = line.starts_with("class ");
        codes.push(if is_class { format!("{header}:") } else { header });
        for (method, signature) in if is_class { members(lines, end + 1) } else { Vec::new() } {
            codes.push(format!("    {signature}"));
            all.methods.push((method, signature));
        }
    }
    all.code = codes.join("\n").trim_end_matches(':').to_owned();
    all
}

/// The header of a class or function that begins in line `at`, without its last colon, and the
/// line in which it ends.
fn header(lines: &[&str], at: usize) -> (String, usize) {
    let (mut code, mut deep) = (String::new(), 0);
    for (end, line) in lines.iter().enumerate().skip(at) {
        code.push_str(line);
        code.push('\n');
        deep += depth(line);
        if deep == 0 {
            let code = on_one_line(&code);
            let code = code.trim_end_matches(" ...").trim_end_matches(':');
            return (code.to_owned(), end);
        }
    }
    (String::new(), at)
}

/// The methods and properties of the class whose body begins in line `at`, but for those that are
/// Python's, and for further spellings.
fn members(lines: &[&str], at: usize) -> Vec<(String, String)> {
    let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', ')']);
    let end = at + lines[at..].iter().take_while(|line| is_inside(line)).count();
    let mut methods = Vec::new();
    for (at, line) in lines.iter().enumerate().take(end).skip(at) {
        let Some(rest) = line.strip_prefix("    def ") else { continue };
        let name = rest.split('(').next().unwrap_or_default();
        let above = lines[at - 1].trim();
        let is_spelling = name.contains(|letter: char| letter.is_uppercase());
        if above.ends_with(".setter") || is_spelling {
            continue;
        }
        let header = header(lines, at).0;
        if above == "@property" {
            let ty = header.rsplit("-> ").next().unwrap_or_default();
            methods.push((name.to_owned(), format!("{name}: {ty}")));
        } else if !name.starts_with('_') || name == "__init__" {
            methods.push((name.to_owned(), header));
        }
    }
    methods
}

/// The docstring with which a body begins.
fn docstring(body: &[&str]) -> String {
    let body = body.join("\n");
    let body = body.trim_start();
    let Some(text) = body.strip_prefix("\"\"\"") else { return String::new() };
    let text = text.split_once("\"\"\"").map_or(text, |(text, _)| text);
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned()
}
