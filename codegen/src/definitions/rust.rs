//! The ends of paths in the crate, from the names of the IDL.

use std::collections::BTreeSet;

use super::Definition;
use crate::model::names::camel_case;

/// What is called so in `owner`; a name that says where it is, as `ProcessGroup::rank`, is whole.
pub(super) fn path(owner: &str, name: &str) -> String {
    match owner {
        "" => name.to_owned(),
        _ if name.contains("::") => name.to_owned(),
        owner => format!("{owner}::{name}"),
    }
}

/// A variant of an enum.
pub(super) fn variant(owner: &str, value: &str) -> String {
    format!("{owner}::{}", camel_case(value))
}

/// Those that the crate lacks, by the list of what its users can name, as `cargo xtask public-api`
/// writes it.
pub fn absent_in_rust<'a>(all: &'a [Definition], public_api: &str) -> Vec<&'a Definition> {
    let paths: BTreeSet<String> = public_api.lines().filter_map(path_of).collect();
    let ends: BTreeSet<&str> = paths.iter().flat_map(|path| ends_of(path)).collect();
    // The list does not say what belongs to what comes from a module that is not public.
    let elsewhere = public_api.lines().filter_map(|line| line.strip_prefix("pub use "));
    let elsewhere: BTreeSet<&str> = elsewhere.filter_map(|path| path.rsplit("::").next()).collect();
    let is_elsewhere =
        |path: &str| path.split_once("::").is_some_and(|(owner, _)| elsewhere.contains(owner));
    let is_absent = |it: &&Definition| {
        it.rust.as_ref().is_some_and(|it| !ends.contains(&**it) && !is_elsewhere(it))
    };
    all.iter().filter(is_absent).collect()
}

/// `polyrank::Work::wait` of `pub fn polyrank::Work::wait(&self) -> bool`, and so of the crates
/// whose names begin with this one's; without the parameters of types.
fn path_of(line: &str) -> Option<String> {
    let start = line.find("polyrank")?;
    let (mut path, mut deep) = (String::new(), 0);
    for letter in line[start..].chars() {
        match letter {
            '<' => deep += 1,
            '>' => deep -= 1,
            _ if deep > 0 => {}
            letter if letter.is_alphanumeric() || matches!(letter, '_' | ':') => path.push(letter),
            _ => break,
        }
    }
    Some(path.trim_end_matches(':').to_owned())
}

/// `a::b::c`, `b::c` and `c`.
fn ends_of(path: &str) -> impl Iterator<Item = &str> {
    let starts = path.match_indices("::").map(|(at, _)| at + 2);
    std::iter::once(0).chain(starts).map(|start| &path[start..])
}
