//! The floors of core: a room imports only what stands below it, so that nothing runs back up and
//! no two rooms import each other. The crate's root is above all of them: it is for users. Code for
//! tests only is free, as in `imports`.

use crate::files::{File, Language};
use crate::imports::{imports, is_test};

const CORE: &str = "core/src/";

/// The rooms of core, each above all that it imports.
const FLOORS: [&str; 39] = [
    "cause",
    "fork",
    "fnv",
    "random",
    "clock",
    "context",
    "process_mutex",
    "standard_error",
    "call_site",
    "held_ranks",
    "process_end",
    "sorted",
    "price",
    "setters",
    "spin",
    "wire",
    "whole_file",
    "env",
    "stall_report",
    "debug_level",
    "kernels",
    "schedule",
    "tensor",
    "completion",
    "blocking",
    "request",
    "transport",
    "store",
    "recorder",
    "rendezvous",
    "spawn",
    "executor",
    "backend",
    "work",
    "process_group",
    "objects",
    "distributed",
    "device_mesh",
    "calls",
];

/// Imports of a room that stands above the file's own, and rooms that have no floor.
pub(crate) fn upward(file: &File) -> Vec<String> {
    let Some(inside) = file.path.strip_prefix(CORE) else { return Vec::new() };
    let room = inside.split(['/', '.']).next().unwrap_or_default();
    // The crate's root exports what the rooms have, and generated code ties all of them together.
    if file.language() != Language::Rust || is_test(&file.path) || room == "lib" {
        return Vec::new();
    }
    let Some(floor) = floor_of(room) else {
        return vec![format!("{}: the room `{room}` has no floor", file.path)];
    };
    let mut offences = Vec::new();
    for (path, line) in imports(file) {
        let other = path.strip_prefix("crate::").and_then(|path| path.split("::").next());
        if other.is_some_and(is_of_root) {
            let place = &file.path;
            offences.push(format!("{place}:{line}: uses {path}, not the room that defines it"));
        }
        let Some(other) = other.filter(|other| floor_of(other).is_some_and(|it| it > floor)) else {
            continue;
        };
        offences.push(format!("{}:{line}: uses {path}: `{other}` is above `{room}`", file.path));
    }
    offences.dedup();
    offences
}

/// Whether a name is one that the crate's root exports, and no room.
fn is_of_root(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        || matches!(name, "arguments" | "options")
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().position(|known| *known == room)
}
