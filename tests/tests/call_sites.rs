//! At the debug level DETAIL, ranks that disagree say where each has called, in Rust, too: by its
//! functions, and by their lines where the program was built with those.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{Error, ProcessGroup, Result};
use polyrank_tests::processes::{ProcessEnd, all_went_well, processes, report, with_variable};

#[inline(never)]
fn of_first(group: &ProcessGroup) -> Result<()> {
    group.allreduce(&mut [1.0_f32; 4], ())
}

#[inline(never)]
fn of_last(group: &ProcessGroup) -> Result<()> {
    group.barrier(())
}

/// Reports both sides of the error, by rank.
fn disagree(group: ProcessGroup) {
    let is_last = group.rank() + 1 == group.size();
    let error = if is_last { of_last(&group) } else { of_first(&group) }.unwrap_err();
    let Error::CollectiveMismatch { rank, ours, other_rank, theirs, .. } = &error else {
        panic!("{error}")
    };
    let mut sides = [(rank, ours), (other_rank, theirs)];
    sides.sort();
    for (rank, text) in sides {
        report(format!("{rank} {text}"));
        assert!(error.to_string().contains(text), "{error}");
    }
}

fn sides(test: &str, size: u32, level: &str) -> Vec<ProcessEnd> {
    let ended = with_variable("POLYRANK_DEBUG", level, || processes(test, size, disagree));
    all_went_well(&ended);
    ended
}

#[test]
fn both_sides_say_which_function_called() {
    for size in [2, 3] {
        for end in sides("both_sides_say_which_function_called", size, "DETAIL") {
            let [first, last] = end.printed.as_slice() else { panic!("{}", end.output) };
            assert!(last.starts_with(&(size - 1).to_string()), "{last}");
            for (side, function) in [(first, "of_first"), (last, "of_last")] {
                let (_, site) = side.split_once(", called at ").expect(side);
                assert!(site.ends_with(&format!("call_sites::{function}")), "{side}");
            }
        }
    }
}

#[test]
fn below_detail_nobody_says_it() {
    for level in ["OFF", "INFO"] {
        for end in sides("below_detail_nobody_says_it", 2, level) {
            assert_eq!(end.printed.len(), 2, "{}", end.output);
            assert!(
                end.printed.iter().all(|side| !side.contains("called at")),
                "{:?}",
                end.printed
            );
        }
    }
}
