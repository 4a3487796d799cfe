//! The method that the user called, in errors about the collective that it is to the backends:
//! `all_gather_v` is an allgather, `sendrecv` two messages. Knows no operations.

use std::ops::Range;

use crate::generated::error::Error;
use crate::request::tables::METHODS;

/// `error`, about the method `name` where it is about the collective that this is, as one of the
/// operations with these numbers. Methods that differ from their collective in underscores alone
/// (`all_reduce`) are called as that is.
pub(super) fn as_called(mut error: Error, name: &'static str, numbers: Range<u64>) -> Error {
    let is_own = error.sequence().is_none_or(|sequence| numbers.contains(&sequence));
    if is_own
        && let Some(said) = error.collective_mut()
        && is_part_of(said, name)
    {
        name.clone_into(said);
    }
    error
}

/// Whether the method `name` runs operations that are called `said` to the backends, and is not
/// called so itself.
fn is_part_of(said: &str, name: &str) -> bool {
    match name {
        "sendrecv" => matches!(said, "send" | "recv"),
        "tensor_register" => said == "allgather",
        _ => collective_of(name) == Some(said),
    }
}

/// The name of the collective that the method is, if it is another one.
fn collective_of(name: &str) -> Option<&'static str> {
    let is_method = |known: &&&crate::request::Method| known.name == name;
    let collective = METHODS.iter().find(is_method)?.collective?.facts().name;
    (name.replace('_', "") != collective.replace('_', "")).then_some(collective)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(collective: &str, sequence: u64) -> Error {
        let (group, why) = ("g".to_owned(), "it is gone".to_owned());
        Error::RankFailed { group, rank: 1, why, collective: collective.to_owned(), sequence }
    }

    #[test]
    fn the_method_is_named_that_was_called() {
        for (called, said, expected) in [
            ("all_gather_v", "allgather", "all_gather_v"),
            ("all_gather_single", "allgather", "all_gather_single"),
            ("all_reduce", "allreduce", "allreduce"),
            ("allreduce", "allreduce", "allreduce"),
            ("all_gather_v", "allreduce", "allreduce"),
            ("send", "send", "send"),
            ("sendrecv", "recv", "sendrecv"),
            ("tensor_register", "allgather", "tensor_register"),
        ] {
            let named = as_called(failed(said, 7), called, 7..8);
            assert_eq!(named.collective(), Some(expected), "{called}");
            // What was said of another operation stays.
            assert_eq!(as_called(failed(said, 7), called, 8..9).collective(), Some(said));
        }
    }
}
