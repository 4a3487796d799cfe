//! What a step says of its tests that failed: all of it where it happens, and in short at the end.
//! Knows what cargo, pytest and Node print; nothing of steps.

/// Lines of one step that are repeated at the end.
const MAX_LINES: usize = 24;

/// Characters of such a line.
const MAX_CHARACTERS: usize = 300;

/// Lines that follow the place where a Rust test panicked: what it says, and the two sides.
const LINES_AFTER_PANIC: usize = 3;

/// What cargo prints of the tests that failed: from "failures:" to the result, for each binary.
/// Later binaries print so much that it would be hidden.
pub(super) fn reports<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut inside = false;
    let reports = lines.iter().copied().filter(|line| {
        inside |= *line == "failures:";
        let shown = inside;
        inside &= !line.starts_with("test result: ");
        shown
    });
    reports.collect()
}

/// Where tests failed and what they said first.
pub(super) fn in_short(output: &str) -> Vec<String> {
    let mut after_panic = 0;
    let told = output.lines().filter(|line| {
        let is_place = line.starts_with("thread '") && line.contains(" panicked at ");
        after_panic = if is_place { LINES_AFTER_PANIC + 1 } else { after_panic };
        let follows_panic = after_panic > 0 && !line.starts_with("note: ");
        after_panic = after_panic.saturating_sub(1);
        let is_failure = line.ends_with("... FAILED") || line.starts_with("not ok ");
        // The prefix with which pytest repeats what was raised, and its closing lines.
        let is_raised = line.starts_with("E  ") || line.starts_with("FAILED ");
        is_place || follows_panic || is_failure || is_raised
    });
    told.take(MAX_LINES).map(|line| line.chars().take(MAX_CHARACTERS).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_say_first_is_repeated() {
        let output = "test a ... ok\ntest b ... FAILED\nthread 'b' (7) panicked at x.rs:1:2:\n\
                      assertion `left == right` failed\n  left: 1\n right: 2\nstack backtrace:\n\
                      E   ValueError: no\nnot ok 3 - of Node\nok 4";
        let told = in_short(output);
        assert_eq!(told.len(), 7, "{told:?}");
        assert!(told.iter().all(|line| !line.contains("ok ") || line.starts_with("not")));
        assert!(told[2].contains("left == right") && told[4].contains("right: 2"));
        let long = format!("E   {}", "x".repeat(1000));
        assert_eq!(in_short(&long)[0].len(), MAX_CHARACTERS);
    }

    #[test]
    fn the_tests_that_failed_are_shown_whatever_follows() {
        let (failed, passed) =
            ("test result: FAILED. 1 passed; 1 failed", "test result: ok. 1 passed");
        let output = ["test a ... FAILED", "failures:", "---- a stdout ----", "left: 1", failed];
        let lines = [&output[..], &["test b ... ok", passed]].concat();
        assert_eq!(reports(&lines), output[1..]);
        assert!(reports(&["test b ... ok", passed]).is_empty());
    }
}
