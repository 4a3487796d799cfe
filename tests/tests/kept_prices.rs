//! What copies cost is kept for the next job on the machine: real jobs, one after the other and at
//! once, with every file that the first may find.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::{Debug, Write};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use polyrank::ProcessGroup;
use polyrank::price::{KnownPrices, Price};
use polyrank_tests::processes::{ProcessEnd, is_rank, processes, report, with_variable};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Where a rank reads how many messages it exchanges.
const MESSAGES: &str = "POLYRANK_TEST_MESSAGES";
/// Bytes of a message; four times as many go through the caches of two ranks that exchange one.
const BYTES: usize = 1 << 20;
/// The name of what it costs to store a received one through the caches and past them.
const STORES: &str = "stores/message/4MiB";
/// Messages after which both ways are known.
const ENOUGH: u32 = 40;
/// Fewer than both ways have to be tried, where nothing is known.
const FEW: u32 = 6;
/// What rank 0 says that has found a file.
const BEGINS: &str = "begins with what copies cost before";

/// Reports what the library logs of its choices.
struct Log;

/// The text of an event.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("polyrank")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        report(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Two ranks exchange messages, whose contents are checked.
fn exchange(group: &ProcessGroup) {
    let messages: u32 = std::env::var(MESSAGES).unwrap().parse().unwrap();
    let (rank, peer) = (group.rank(), 1 - group.rank());
    for number in 0..messages {
        let (given, expected) = ((number + rank) as u8, (number + peer) as u8);
        let sent = group.send_async(vec![given; BYTES], peer, 0).unwrap();
        let mut received = vec![0; BYTES];
        group.recv(&mut received, peer, 0).unwrap();
        sent.wait(None).unwrap();
        assert!(received.iter().all(|byte| *byte == expected), "message {number}");
    }
}

/// Runs `run`, whose ranks get these variables.
fn with_variables<R>(variables: &[(&str, &str)], run: &dyn Fn() -> R) -> R {
    match variables {
        [] => run(),
        [(name, value), rest @ ..] => with_variable(name, value, || with_variables(rest, run)),
    }
}

/// Runs a job of two ranks that keep their prices as `variables` say, and exchange so many
/// messages. In a rank this does not return.
fn job(test: &str, variables: &[(&str, &str)], messages: u32) -> Vec<ProcessEnd> {
    if is_rank() {
        tracing::subscriber::set_global_default(Log).unwrap();
    }
    let messages = messages.to_string();
    let run = &|| processes(test, 2, |group| exchange(&group));
    let ended = with_variable(MESSAGES, &messages, || with_variables(variables, run));
    for rank in &ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
    ended
}

fn said(ended: &ProcessEnd, words: &str) -> bool {
    ended.printed.iter().any(|line| line.contains(words))
}

/// The only file in `folder`.
fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// What a file says about messages.
fn stores(file: &Path) -> [u32; 2] {
    let text = fs::read_to_string(file).unwrap();
    let (_, known) = KnownPrices::decode(&text).unwrap();
    known.get(STORES).unwrap_or_else(|| panic!("{text}")).map(|price: Price| price.0)
}

#[test]
fn the_second_job_begins_where_the_first_has_ended() {
    let test = "the_second_job_begins_where_the_first_has_ended";
    let made = tempfile::tempdir().unwrap();
    let cache = made.path().to_str().unwrap();
    let variables = [("XDG_CACHE_HOME", cache), ("POLYRANK_COPY_PRICES", "")];
    let first = job(test, &variables, ENOUGH);
    assert!(!said(&first[0], BEGINS) && said(&first[0], "kept what copies cost"));
    assert!(said(&first[1], STORES), "{}", first[1].output);
    let file = only_file(&made.path().join("polyrank"));
    assert!(stores(&file).iter().all(|price| (1..100_000).contains(price)));
    let second = job(test, &variables, FEW);
    assert!(said(&second[0], BEGINS), "{}", second[0].output);
    for rank in &second {
        // It knows both prices before it could have tried both.
        assert!(said(rank, STORES), "{}", rank.output);
    }
    let off = job(test, &[("XDG_CACHE_HOME", cache), ("POLYRANK_COPY_PRICES", "off")], FEW);
    for rank in &off {
        assert!(!said(rank, BEGINS) && !said(rank, STORES), "{}", rank.output);
    }
}

#[test]
fn wrong_prices_are_found_out_and_corrected() {
    let test = "wrong_prices_are_found_out_and_corrected";
    let made = tempfile::tempdir().unwrap();
    let variables = [("POLYRANK_COPY_PRICES", made.path().to_str().unwrap())];
    job(test, &variables, ENOUGH);
    let file = only_file(made.path());
    let text = fs::read_to_string(&file).unwrap();
    let (owner, known) = KnownPrices::decode(&text).unwrap();
    for wrong in [[1, 1_000_000], [1_000_000, 1]] {
        let mut known = known.clone();
        known.insert(STORES.to_owned(), &wrong.map(Price));
        fs::write(&file, known.encode(owner)).unwrap();
        let corrected = job(test, &variables, 200);
        assert!(said(&corrected[0], BEGINS), "{}", corrected[0].output);
        let prices = stores(&file);
        assert!(prices.iter().all(|price| (10..100_000).contains(price)), "{prices:?}");
    }
}

#[test]
fn whatever_lies_there_is_replaced() {
    let test = "whatever_lies_there_is_replaced";
    let made = tempfile::tempdir().unwrap();
    let variables = [("POLYRANK_COPY_PRICES", made.path().to_str().unwrap())];
    job(test, &variables, ENOUGH);
    let file = only_file(made.path());
    let text = fs::read_to_string(&file).unwrap();
    let cut_off = &text[..text.len() / 2];
    let other = KnownPrices::decode(&text).unwrap().1.encode("polyrank 0.0.1");
    for content in ["", "\0\0\0", cut_off, &other] {
        fs::write(&file, content).unwrap();
        let ended = job(test, &variables, ENOUGH);
        assert!(!said(&ended[0], BEGINS), "{}", ended[0].output);
        assert!(stores(&file).iter().all(|price| (1..100_000).contains(price)));
    }
}

#[test]
fn where_nothing_can_be_kept_nothing_is_said() {
    let test = "where_nothing_can_be_kept_nothing_is_said";
    let made = tempfile::tempdir().unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // The superuser may write everywhere but below a file.
    for cache in [made.path().to_str().unwrap(), "/dev/null"] {
        let ended = job(test, &[("XDG_CACHE_HOME", cache), ("POLYRANK_COPY_PRICES", "")], ENOUGH);
        for rank in ended {
            let words = ["WARN", "ERROR", "panicked", "No such file", "Permission denied"];
            let own: String = rank.output.lines().filter(|it| !it.starts_with("REPORT")).collect();
            assert!(!words.iter().any(|word| own.contains(word)), "{}", rank.output);
        }
    }
}

#[test]
fn several_jobs_at_once_leave_a_whole_file() {
    let test = "several_jobs_at_once_leave_a_whole_file";
    let made = tempfile::tempdir().unwrap();
    let variables = [("POLYRANK_COPY_PRICES", made.path().to_str().unwrap())];
    if is_rank() {
        job(test, &variables, ENOUGH);
    }
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| job(test, &variables, ENOUGH));
        }
    });
    assert!(stores(&only_file(made.path())).iter().all(|price| *price > 0));
}
