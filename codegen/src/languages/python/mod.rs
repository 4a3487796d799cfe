//! Python: the classes' methods, options, exceptions and functions in Rust, and their stub.
//!
//! What a generated method does is one of: raise (unbuilt), hand a collective to
//! `convert::collective`, hand a call that core runs to `convert::invoke`, or call the function of
//! the same name in `crate::implementations`, which is written by hand. Knows no other language.

mod callback_arguments;
mod classes;
mod enums;
mod errors;
mod options;
mod records;
mod reduce_ops;
mod signatures;
mod spelling;
mod stub;

use askama::Template;

use crate::files::Files;
use crate::model::Api;

pub(crate) use signatures::{exception_class, signatures, spelt};

const RUST: &str = "bindings-python/src/generated";
const PYTHON: &str = "bindings-python/python/polyrank";

/// Every generated file of the Python package.
///
/// # Errors
/// A template cannot be rendered.
pub fn files(api: &Api) -> Result<Files, askama::Error> {
    let mut files = Files::new();
    let mut add = |path: String, text: Result<String, askama::Error>| {
        text.map(|text| files.insert(path, text.trim_end().to_owned() + "\n"))
    };
    add(format!("{RUST}/mod.rs"), classes::index(api).render())?;
    add(format!("{RUST}/errors.rs"), errors::view(api).render())?;
    add(format!("{RUST}/callback_arguments.rs"), callback_arguments::view(api).render())?;
    add(format!("{RUST}/options.rs"), options::view(api).render())?;
    add(format!("{RUST}/classes.rs"), classes::view(api).render())?;
    add(format!("{RUST}/reduce_ops.rs"), reduce_ops::view(api).render())?;
    add(format!("{RUST}/functions.rs"), classes::functions(api).render())?;
    add(format!("{PYTHON}/_core.pyi"), stub::view(api).render())?;
    add(format!("{PYTHON}/_enums.py"), enums::view(api).render())?;
    add(format!("{PYTHON}/_error_fields.py"), errors::lacked_fields(api).render())?;
    Ok(files)
}
