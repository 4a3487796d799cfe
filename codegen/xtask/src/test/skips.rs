//! Which tests a suite skipped, and why, read from its output. Knows how each tool prints that.

use std::collections::BTreeSet;

/// The tests that were skipped, wholly or in part, each with its reason. Read from the lines
/// "skipped: NAME: REASON" (our own suites), "ok 3 - NAME # SKIP REASON" (Node),
/// `SKIPPED [1] PLACE: REASON` (pytest), and "test NAME ... ignored, REASON" (cargo).
pub(super) fn skipped(output: &str) -> BTreeSet<String> {
    output.lines().filter_map(skip).collect()
}

/// How many of the skipped tests the tool counted as passed: cargo does so with our own suites.
pub(super) fn counted_as_passed(output: &str) -> u64 {
    let ours = output.lines().filter_map(own_suite);
    let names: BTreeSet<&str> = ours.filter_map(|it| it.split(": ").next()).collect();
    names.len() as u64
}

fn skip(line: &str) -> Option<String> {
    own_suite(line).map(str::to_owned).or_else(|| node(line)).or_else(|| pytest(line)).or_else(
        || {
            let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
            let reason = rest.strip_prefix(", ").unwrap_or("ignored");
            Some(format!("{name}: {reason}"))
        },
    )
}

fn own_suite(line: &str) -> Option<&str> {
    // When cargo runs one test at a time, it has written that test's name before.
    let rest = line.split_once(" ... skipped: ").map(|(_, rest)| rest);
    line.strip_prefix("skipped: ").or(rest)
}

fn node(line: &str) -> Option<String> {
    let (number, rest) = line.trim_start().strip_prefix("ok ")?.split_once(" - ")?;
    number.parse::<u64>().ok()?;
    let (name, reason) = rest.split_once(" # SKIP")?;
    Some(format!("{name}: {}", reason.trim()))
}

fn pytest(line: &str) -> Option<String> {
    let (count, rest) = line.strip_prefix("SKIPPED [")?.split_once("] ")?;
    count.parse::<u64>().ok()?;
    Some(rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_found_in_the_output_of_each_tool() {
        let output = "\
test conformance ... ok
skipped: node_alone: Node: polyrank.node is missing
skipped: node_alone: Node: polyrank.node is missing
test demo ... skipped: demo: Python: there is none
test slow ... ignored
test slower ... ignored, takes an hour
ok 3 - a tab that is closed # SKIP there is no Chromium
ok 4 - a tab that skipped school
SKIPPED [1] tests/test_dlpack.py:9: could not import 'torch'
2 passed, 1 skipped in 0.2s
";
        let expected = [
            "a tab that is closed: there is no Chromium",
            "demo: Python: there is none",
            "node_alone: Node: polyrank.node is missing",
            "slow: ignored",
            "slower: takes an hour",
            "tests/test_dlpack.py:9: could not import 'torch'",
        ];
        assert!(skipped(output).iter().eq(expected.iter()), "{:?}", skipped(output));
        assert_eq!(counted_as_passed(output), 2);
    }
}
