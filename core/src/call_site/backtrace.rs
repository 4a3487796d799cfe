//! Which lines of a program in Rust have led to a call, from the stack of its thread: with lines
//! where the program was built with them, else with functions alone. Knows no operations.

use std::backtrace::Backtrace;

use super::CallFrame;

/// Most lines that are told.
const MAX_FRAMES: usize = 32;

/// Crates that are not the program's.
const ELSEWHERE: [&str; 15] = [
    "polyrank",
    "std",
    "core",
    "alloc",
    "proc_macro",
    "tokio",
    "tracing",
    "tracing_core",
    "futures",
    "futures_channel",
    "futures_core",
    "futures_executor",
    "futures_io",
    "futures_task",
    "futures_util",
];

/// What the functions of the standard library that run tests begin with: a program may have that
/// name, too.
const RUNS_TESTS: [&str; 7] = [
    "test::__",
    "test::assert_test_result",
    "test::console::",
    "test::run_test",
    "test::test_main",
    "test::types::",
    "test::bench::",
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

/// Whether a function is the program's: its own, or an implementation of a trait or for a type of
/// its own.
fn is_own(name: &str) -> bool {
    match name.strip_prefix('<') {
        // `<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once`, `<app::Step as Run>::run`.
        Some(inside) => {
            let (of, as_what) = parts_of(inside);
            is_of_program(of) || as_what.is_some_and(is_of_program)
        }
        None => is_of_program(name),
    }
}

/// The type before `>`, and the trait that it is taken as, if it is.
fn parts_of(inside: &str) -> (&str, Option<&str>) {
    let (mut depth, mut as_at, mut before) = (0, None, ' ');
    for (at, letter) in inside.char_indices() {
        match letter {
            '<' => depth += 1,
            // `fn() -> T`.
            '>' if before == '-' => {}
            '>' if depth == 0 => {
                return match as_at {
                    Some(place) => (&inside[..place], Some(&inside[place + " as ".len()..at])),
                    None => (&inside[..at], None),
                };
            }
            '>' => depth -= 1,
            ' ' if depth == 0 && as_at.is_none() && inside[at..].starts_with(" as ") => {
                as_at = Some(at);
            }
            _ => {}
        }
        before = letter;
    }
    (inside, None)
}

/// Whether a path begins with a crate of the program.
fn is_of_program(path: &str) -> bool {
    let mut path = path;
    loop {
        let bare = path.trim_start_matches(['&', '*', '(', '[', ' ']);
        let words = ["mut ", "const ", "dyn ", "impl "];
        let bare = words.iter().find_map(|word| bare.strip_prefix(word)).unwrap_or(bare);
        if bare == path {
            break;
        }
        path = bare;
    }
    if path.starts_with('<') {
        return is_own(path);
    }
    // A parameter of a type, and what the system has written, is of no crate.
    let Some((name, _)) = path.split_once("::") else { return false };
    // `app[5f3a]::step`.
    let name = name.split('[').next().unwrap_or_default();
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    name.chars().all(is_name)
        && !name.starts_with("__")
        && !ELSEWHERE.contains(&name)
        && !RUNS_TESTS.iter().any(|begin| path.starts_with(begin))
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

    #[test]
    fn functions_are_the_programs_by_the_whole_name_of_their_crate() {
        for own in [
            "app::step",
            "test::train",
            "futures_x::run",
            "corelib::step",
            "polyrank_tests::processes::run",
            "<app::Step as core::ops::function::FnOnce<()>>::call_once",
            "<app::Step<T>>::run",
            "<&mut app::Step as app::Run>::run",
            "<alloc::vec::Vec<T> as app::Run>::run",
            "<T as app::Run>::run",
            "<[T] as app::Run>::run",
            "<<T as core::iter::traits::iterator::Iterator>::Item as app::Run>::run",
            "<dyn app::Run as core::fmt::Debug>::fmt",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "core::ops::function::FnOnce::call_once",
            "<&mut core::iter::Map<I,F> as core::iter::Iterator>::next",
            "<&mut dyn core::ops::function::FnMut<A> as core::ops::FnOnce<A>>::call_once",
            "<T as core::convert::Into<U>>::into",
            "<alloc::boxed::Box<fn() -> app::Step> as core::ops::function::FnOnce<A>>::call_once",
            "<F as futures_util::Run<app::Step>>::run",
            "futures_util::future::map",
            "test::run_test::{{closure}}",
            "test::types::RunnableTest::run",
            "test::__rust_begin_short_backtrace",
            "__libc_start_main",
            "__rust_alloc::here",
            "main",
            "<unknown>",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
