//! Which lines of a program in Rust have led to a call, from the stack of its thread: with lines
//! where the program was built with them, else with functions alone. Knows no operations.

use std::backtrace::Backtrace;

use super::CallFrame;

/// Most lines that are told.
const MAX_FRAMES: usize = 32;

/// What the names of functions begin with that are not the program's.
const ELSEWHERE: [&str; 12] = [
    "polyrank::",
    "std::",
    "core::",
    "alloc::",
    "test::",
    "tokio::",
    "futures_",
    "tracing::",
    "__",
    "_start",
    "rust_begin_",
    "<unknown>",
];

/// Those of this thread, the innermost first.
pub(super) fn frames() -> Vec<CallFrame> {
    frames_in(&Backtrace::force_capture().to_string())
}

/// Those of a backtrace as the standard library writes it: a line `3: app::step` for each function,
/// and below it, if that is known, one `at ./main.rs:40:5`.
fn frames_in(text: &str) -> Vec<CallFrame> {
    let mut frames = Vec::new();
    let mut lines = text.lines().map(str::trim_start).peekable();
    while let Some(line) = lines.next() {
        let Some((number, name)) = line.split_once(": ") else { continue };
        let place = lines.next_if(|next| next.starts_with("at "));
        if number.parse::<u32>().is_err() || !is_own(name) {
            continue;
        }
        let place = place.and_then(|place| place_of(&place["at ".len()..]));
        let (filename, line) = place.unwrap_or_default();
        frames.push(CallFrame { name: name.replace("::{{closure}}", ""), filename, line });
        if frames.len() == MAX_FRAMES {
            break;
        }
    }
    frames
}

/// The file and the line of `./main.rs:40:5`.
fn place_of(place: &str) -> Option<(String, u32)> {
    let (place, _) = place.rsplit_once(':')?;
    let (file, line) = place.rsplit_once(':')?;
    // Those in the present folder are written from there.
    Some((file.trim_start_matches("./").to_owned(), line.parse().ok()?))
}

/// Whether a function is the program's.
fn is_own(name: &str) -> bool {
    // `<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once`, `<app::Step as Run>::run`.
    let name = name.trim_start_matches(['<', '&']).trim_start_matches("dyn ");
    !ELSEWHERE.iter().any(|other| name.starts_with(other)) && name.contains("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_the_program_are_told() {
        let text = "   0: std::backtrace::Backtrace::create\n   \
            1: polyrank::process_group::ProcessGroup::allreduce\n             \
            at /registry/polyrank/src/lib.rs:7:9\n   \
            2: <alloc::boxed::Box<F> as core::ops::function::FnOnce<()>>::call_once\n   \
            3: app::train::step::{{closure}}\n             at ./src/train.rs:40:13\n   \
            4: app::main\n   5: main\n   6: <unknown>\n";
        let frame = |name: &str, filename: &str, line| CallFrame {
            name: name.to_owned(),
            filename: filename.to_owned(),
            line,
        };
        let expected = [frame("app::train::step", "src/train.rs", 40), frame("app::main", "", 0)];
        assert_eq!(frames_in(text), expected);
        assert_eq!(frames_in("disabled backtrace"), []);
    }
}
