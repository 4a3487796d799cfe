//! `polyrank bench --calibrate FILE`, its second part: what the ways to copy between two ranks of
//! this host cost, in a table, and for the next jobs. Real operations tell; knows no way to copy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::Parser;

use super::arguments::{BenchArguments, Benchmark};
use super::files;
use super::library::Memory;
use super::operation::Operation;
use super::results::Report;
use crate::sizes;
use polyrank::backend::kept_prices::replace_file;
use polyrank::env::prices_folder;
use polyrank::env::variable::{self, Variable};
use polyrank::price::{KnownPrices, Price};

/// The messages that are measured in each way.
const MESSAGES: &str = "bench pingpong --sizes 4K,16K,64K,256K,1M,4M,16M,64M -n 2 --no-check \
                        --inputs untouched -w 32";
/// What is measured while polyrank chooses; before the clock starts, it has tried all ways.
const CHOICES: &str = "bench pingpong,broadcast,allgather,alltoall,allreduce,reduce_scatter \
                       --sizes 64K,256K,1M,4M,16M -n 2 --no-check --inputs untouched --turns 3 -w \
                       64";
/// The ways of messages: how each is called, what `POLYRANK_COPY` says, and whose the memory is.
const WAYS: [(&str, &str, Memory); 5] = [
    ("slots", "slots", Memory::User),
    ("attached", "attach", Memory::User),
    ("chosen", "auto", Memory::User),
    ("lent", "lent", Memory::Polyrank),
    ("chosen lent", "auto", Memory::Polyrank),
];
/// What polyrank chooses between: how prices' names begin, and the ways in the order of prices.
const CHOSEN: [(&str, [&str; 2]); 2] =
    [("exchange/", ["direct", "messages"]), ("stores/", ["cached", "streaming"])];
const NAME_WIDTH: usize = 36;
const PRICE_WIDTH: usize = 12;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: BenchArguments,
}

/// The benchmarks that measure copies; what ranks learn of their choices, they leave in `folder`.
///
/// # Errors
/// None that a user can cause.
pub(super) fn benchmarks(folder: &Path) -> Result<[Benchmark; 2], String> {
    let [mut messages, mut choices] = [parse(MESSAGES)?, parse(CHOICES)?];
    let contender = messages.contenders.pop().ok_or("a course has a contender")?;
    let free = |variable: Variable| (variable.name().to_owned(), "auto".to_owned());
    for (name, copy, memory) in WAYS {
        let mut way = contender.clone();
        way.name = name.to_owned();
        way.memory = memory;
        way.environment = vec![
            (variable::POLYRANK_COPY.name().to_owned(), copy.to_owned()),
            free(variable::POLYRANK_TRANSPORT),
            (variable::POLYRANK_COPY_PRICES.name().to_owned(), "off".to_owned()),
        ];
        messages.contenders.push(way);
    }
    for contender in &mut choices.contenders {
        contender.environment = vec![
            free(variable::POLYRANK_COPY),
            free(variable::POLYRANK_TRANSPORT),
            (variable::POLYRANK_ALGORITHM.name().to_owned(), String::new()),
            (variable::POLYRANK_COPY_PRICES.name().to_owned(), folder.display().to_string()),
        ];
    }
    Ok([messages, choices])
}

/// Shows what `report` says of messages and what ranks have left in `folder`, and keeps the latter
/// for the next jobs, unless the user keeps nothing.
///
/// # Errors
/// The ranks have left nothing, or it cannot be kept.
pub(super) fn show(report: &Report, folder: &Path) -> Result<(), String> {
    let left = fs::read_dir(folder).map_err(|error| error.to_string())?.flatten().next();
    let left = left.ok_or("the ranks have not left what copies cost")?;
    let text = fs::read_to_string(left.path()).map_err(|error| error.to_string())?;
    let (owner, known) = KnownPrices::decode(&text).map_err(str::to_owned)?;
    files::show(&message_table(report));
    if !known.names().any(|name| name.starts_with("message/")) {
        files::show("# The system lets no rank read another's memory: attached is as slots.\n");
    }
    files::show(&choice_tables(&known));
    let Some(folder) = prices_folder() else { return Ok(()) };
    let kept = replace_file(&folder.join(left.file_name()), &text);
    kept.map_err(|error| format!("cannot keep that in {}: {error}", folder.display()))?;
    files::show(&format!("\nKept in {} for jobs of {owner}.\n", folder.display()));
    Ok(())
}

fn parse(course: &str) -> Result<Benchmark, String> {
    let line = Line::try_parse_from(course.split_whitespace());
    line.map_err(|error| error.to_string())?.arguments.benchmark()
}

/// A line of a table; the first of the cheapest ways is marked.
fn line(name: &str, prices: &[Option<f64>]) -> String {
    let least = prices.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let mut marked = false;
    let mut text = format!("{name:>NAME_WIDTH$}");
    for price in prices {
        let is_least = *price == Some(least) && !marked;
        marked |= is_least;
        let price = price.map_or_else(|| "-".to_owned(), |price| format!("{price:.0}"));
        let mark = if is_least { '*' } else { ' ' };
        // Writing to a String cannot fail.
        let _ = write!(text, "{price:>PRICE_WIDTH$}{mark}");
    }
    format!("{}\n", text.trim_end())
}

fn header(title: &str, ways: &[&str]) -> String {
    let ways: String = ways.iter().map(|way| format!("{way:>PRICE_WIDTH$} ")).collect();
    format!("\n{title:>NAME_WIDTH$}{}\n", format!(" {ways}")[1..].trim_end())
}

fn message_table(report: &Report) -> String {
    let title = "# Picoseconds for a byte between two ranks of this host; * is the cheapest way.\n";
    let mut text = format!("\n{title}{}", header("messages", &WAYS.map(|(name, ..)| name)));
    for case in report.cases.iter().filter(|case| case.operation == Operation::Pingpong) {
        let price = |(name, ..): (&str, &str, Memory)| {
            let result = case.results.iter().find(|result| result.contender == name)?;
            Some(result.time_us * 1e6 / case.bytes.max(1) as f64)
        };
        text.push_str(&line(&sizes::show(case.bytes), &WAYS.map(price)));
    }
    text
}

fn choice_tables(known: &KnownPrices) -> String {
    let mut text = String::new();
    for (beginning, ways) in CHOSEN {
        let mut lines: Vec<(&str, [Price; 2])> = Vec::new();
        for name in known.names().filter(|name| name.starts_with(beginning)) {
            lines.extend(known.get(name).map(|prices| (name, prices)));
        }
        lines.sort_by_key(|(name, _)| size_of_name(name));
        if !lines.is_empty() {
            text.push_str(&header(beginning.trim_end_matches('/'), &ways));
        }
        for (name, prices) in lines {
            let name = name[beginning.len()..].replace('/', " ");
            text.push_str(&line(&name, &prices.map(|price| Some(f64::from(price.0)))));
        }
    }
    text
}

/// What a name is of, and of how many bytes.
fn size_of_name(name: &str) -> (&str, u64) {
    let (of, size) = name.rsplit_once('/').unwrap_or((name, ""));
    (of, sizes::parse(size).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_way_is_measured_and_ranks_choose_freely() {
        let [messages, choices] = benchmarks(Path::new("/folder")).unwrap();
        let names: Vec<&str> = messages.contenders.iter().map(|it| &*it.name).collect();
        assert_eq!(names, WAYS.map(|(name, ..)| name));
        let said = |name: &str| {
            let mut variables = choices.contenders[0].environment.iter();
            variables.find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        assert_eq!(said("POLYRANK_COPY_PRICES").as_deref(), Some("/folder"));
        assert_eq!(said("POLYRANK_COPY").as_deref(), Some("auto"));
    }

    #[test]
    fn the_cheaper_way_is_marked() {
        let mut known = KnownPrices::default();
        for (name, prices) in [
            ("exchange/allgather/1MiB", [90, 60]),
            ("exchange/allgather/64KiB", [50, 60]),
            ("message/1MiB", [1, 2]),
            ("stores/message/4MiB", [70, 70]),
        ] {
            known.insert(name.to_owned(), &prices.map(Price));
        }
        let table = choice_tables(&known);
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(
            lines,
            [
                "exchange direct messages",
                "allgather 64KiB 50* 60",
                "allgather 1MiB 90 60*",
                "stores cached streaming",
                "message 4MiB 70* 70",
            ]
        );
        assert_eq!(line("x", &[None, Some(2.0)]).split_whitespace().last(), Some("2*"));
    }
}
