//! `polyrank run` keeps the ranks' output in files, shows some of it, with time stamps and prefixes
//! that align, and shows what ranks wrote about their failures. Shell scripts stand in for ranks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod launcher;

use launcher::{collect, file_below, polyrank, run, sorted_lines, text};

/// A line on each stream.
const TWO_LINES: &str = "echo out $RANK; echo err $RANK >&2";

#[test]
fn logs_lie_in_a_folder_for_each_start_and_rank() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    let output = run(&["-n", "2", "--run-id", "a/b", "--log-dir", name, "sh", "-c", TWO_LINES]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sorted_lines(&output.stdout), ["[rank 0] out 0", "[rank 1] out 1"]);
    let errors = text(&output.stderr);
    assert!(errors.contains("[rank 1] err 1") && errors.contains("logs are in "), "{errors}");
    for rank in [0, 1] {
        for (stream, word) in [("stdout", "out"), ("stderr", "err")] {
            let path = format!("attempt_0/{rank}/{stream}.log");
            assert_eq!(file_below(folder.path(), &path), format!("{word} {rank}\n"));
        }
    }
    let job = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
    assert!(job.file_name().to_str().unwrap().starts_with("a_b_"), "{job:?}");
}

#[test]
fn streams_go_to_files_or_to_both_as_torchrun_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    // Rank 0: stdout to its file, stderr to both. Rank 1: stderr to its file. Rank 2: all shown.
    let words = ["-n", "3", "--log_dir", name, "-r", "0:1,1:2", "-t", "0:2"];
    let output = run(&[&words[..], &["sh", "-c", TWO_LINES]].concat());
    assert_eq!(sorted_lines(&output.stdout), ["[rank 1] out 1", "[rank 2] out 2"]);
    let shown: Vec<_> = sorted_lines(&output.stderr);
    assert_eq!(shown[..2], ["[rank 0] err 0", "[rank 2] err 2"]);
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert_eq!(file_below(folder.path(), "0/stdout.log"), "out 0\n");
    assert_eq!(file_below(folder.path(), "0/stderr.log"), "err 0\n");
    assert_eq!(file_below(folder.path(), "1/stderr.log"), "err 1\n");
    let mut files = Vec::new();
    collect(folder.path(), &mut files);
    assert_eq!(files.len(), 3, "{files:?}");
}

#[test]
fn the_output_of_some_ranks_is_shown_and_files_have_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    let words = ["-n", "3", "--log-dir", name, "--tee", "1", "--local-ranks-filter", "0,2"];
    let output = run(&[&words[..], &["sh", "-c", "echo out $RANK"]].concat());
    assert_eq!(sorted_lines(&output.stdout), ["[rank 0] out 0", "[rank 2] out 2"]);
    assert_eq!(file_below(folder.path(), "1/stdout.log"), "out 1\n");
}

#[test]
fn files_have_every_byte_that_a_rank_writes() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    let script =
        "printf 'a\\n\\nb\\r\\n'; head -c 200000 /dev/zero | tr '\\0' x; printf '\\377end'";
    let output = run(&["--log-dir", name, "-r", "1", "sh", "-c", script]);
    assert_eq!(text(&output.stdout), "");
    let mut files = Vec::new();
    collect(folder.path(), &mut files);
    let kept = std::fs::read(&files[0]).unwrap();
    let expected = [b"a\n\nb\r\n".to_vec(), vec![b'x'; 200_000], b"\xffend".to_vec()].concat();
    assert!(kept == expected, "{} bytes of {}", kept.len(), expected.len());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().join("logs");
    let output = run(&["--log-dir", name.to_str().unwrap(), "true"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("no folder for logs: ") && errors.contains("logs"), "{errors}");
}

#[test]
fn prefixes_align_and_lines_have_times_on_request() {
    let output = run(&["-n", "11", "sh", "-c", "echo line"]);
    let mut expected: Vec<String> = (0..11).map(|rank| format!("[rank {rank:>2}] line")).collect();
    expected.sort();
    assert_eq!(sorted_lines(&output.stdout), expected);
    let output = run(&["--timestamps", "sh", "-c", "echo line"]);
    let line = text(&output.stdout);
    let (time, rest) = line.split_once(' ').unwrap();
    assert_eq!(rest, "[rank 0] line\n");
    let shape: String =
        time.chars().map(|sign| if sign.is_ascii_digit() { '0' } else { sign }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    let output = run(&["--timestamp-output", "--no-prefix", "sh", "-c", "echo line"]);
    assert!(text(&output.stdout).ends_with("Z line\n"));
    let output = run(&["-tag-output", "sh", "-c", "echo line"]);
    assert_eq!(text(&output.stdout), "[rank 0] line\n");
}

#[test]
fn a_reply_file_is_the_report_of_a_failure() {
    let script = r#"echo noise; cat > "$TORCHELASTIC_ERROR_FILE" <<END
{"message": {"message": "ValueError: no column $RANK",
 "extraInfo": {"py_callstack": "Traceback\n  line 3\n", "timestamp": "1700000000"}}}
END
exit 3"#;
    let output = run(&["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    let errors = text(&output.stderr);
    let expected =
        "its error file says: ValueError: no column 0\n    | Traceback\n    |   line 3\n";
    assert!(errors.contains(expected), "{errors}");
    assert!(!errors.contains("| noise"), "{errors}");
}

#[test]
fn an_older_reply_of_another_rank_is_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    // Rank 1 raises first and stays; rank 0 fails because of that.
    let script = format!(
        r#"reply() {{ echo "{{\"message\": {{\"message\": \"$1\",
          \"extraInfo\": {{\"timestamp\": $2}}}}}}" > "$TORCHELASTIC_ERROR_FILE"; }}
        if [ $RANK = 1 ]; then reply "the cause" 100; touch {ready}; exec sleep 600; fi
        while [ ! -e {ready} ]; do sleep 0.01; done
        reply "a consequence" 105; exit 4"#,
        ready = ready.display()
    );
    let output = run(&["-n", "2", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(4));
    let errors = text(&output.stderr);
    assert!(errors.contains("rank 0 failed first: exit code 4"), "{errors}");
    assert!(errors.contains("error file says: a consequence"), "{errors}");
    assert!(
        errors.contains("the cause is in rank 1, whose error file is older: the cause"),
        "{errors}"
    );
}

#[test]
fn no_files_stay_behind_where_none_were_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let script = "test -d $(dirname $TORCHELASTIC_ERROR_FILE) && echo $TORCHELASTIC_ERROR_FILE";
    let mut command = polyrank(&["--no-prefix", "sh", "-c", script]);
    let output = command.env("TMPDIR", folder.path()).output().unwrap();
    assert!(text(&output.stdout).starts_with(folder.path().to_str().unwrap()), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
