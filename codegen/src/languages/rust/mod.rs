//! Rust: the types and tables that `polyrank` is built on, and the typed methods of its groups.
//!
//! The views here compute; the templates under `templates/rust` only print.

mod callback_arguments;
mod calls;
mod dispatch;
mod distributed;
mod errors;
mod options;
mod parameters;
mod prepared;
mod roles;
mod signatures;
mod surface;
mod types;
mod values;

use askama::Template;

use super::stamp;
use crate::files::Files;
use crate::model::Api;

pub(crate) use signatures::signatures;

const FOLDER: &str = "core/src/generated";

/// Modules that `polyrank` exports as they are; of the others it exports items.
const EXPORTED: [&str; 4] = ["arguments", "calls", "options", "parameters"];

#[derive(Template)]
#[template(path = "rust/mod.rs.jinja", escape = "none")]
struct Modules {
    stamp: String,
    /// With their visibility.
    modules: Vec<String>,
}

/// The files under `core/src/generated`.
///
/// # Errors
/// A template fails, which would be a mistake of this package.
pub fn files(api: &Api) -> Result<Files, askama::Error> {
    let mut files = Files::new();
    let mut add = |name: &str, text: String| files.insert(format!("{FOLDER}/{name}.rs"), text);
    add("dtype", values::dtypes(api).render()?);
    add("reduce_op", values::reduce_ops(api).render()?);
    add("collective", values::collectives(api).render()?);
    add("schedules", values::schedules(api).render()?);
    add("error", errors::errors(api).render()?);
    add("options", options::options(api).render()?);
    add("backend_options", options::of_backends(api).render()?);
    add("callback_arguments", callback_arguments::view(api).render()?);
    add("calls", calls::calls(api).render()?);
    add("parameters", parameters::parameters(api).render()?);
    add("roles", roles::roles().render()?);
    add("types", types::types().render()?);
    add("dispatch", dispatch::dispatch(api).render()?);
    add("arguments", surface::arguments(api).render()?);
    add("process_group", surface::process_group(api).render()?);
    add("prepared", prepared::methods(api).render()?);
    add("scope", surface::scope(api).render()?);
    add("distributed", distributed::functions(api).render()?);
    // The schedules stand below `schedule`, which they are part of.
    let module = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        let visible = if EXPORTED.contains(&name) { "pub" } else { "pub(crate)" };
        (name != "schedules").then(|| format!("{visible} mod {name}"))
    };
    let modules = files.keys().filter_map(module).collect();
    let text = Modules { stamp: stamp("idl/*.webidl"), modules }.render()?;
    files.insert(format!("{FOLDER}/mod.rs"), text);
    Ok(files)
}

/// A doc comment in Rust. Lines that would not fit are broken.
fn doc_comment(doc: &str) -> String {
    let mut comment = Vec::new();
    for line in doc.lines() {
        // The rest of a list's item stays below its text.
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut rest = line.to_owned();
        while let Some(space) = break_before(&rest, MAX_DOC_COLUMNS) {
            comment.push(format!("/// {}", &rest[..space]));
            rest = format!("{indent}{}", rest[space..].trim_start());
        }
        comment.push(if rest.is_empty() { "///".to_owned() } else { format!("/// {rest}") });
    }
    comment.join("\n")
}

/// Columns of a doc comment's text, so that it fits 100 with its signs and four of indentation.
const MAX_DOC_COLUMNS: usize = 92;

/// The last space at which a line that is too long can be broken.
fn break_before(line: &str, most: usize) -> Option<usize> {
    let (end, _) = line.char_indices().nth(most)?;
    // A space in front of the first word breaks nothing.
    let first_word = line.len() - line.trim_start().len();
    let until = line.get(..end).unwrap_or(line);
    until.rfind(' ').filter(|space| *space > first_word + 1)
}

/// `a`, `b` or `c`.
fn any_of(words: &[String]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}
