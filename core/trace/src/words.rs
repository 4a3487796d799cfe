//! Numbers, ranks and operations in words. Knows no analysis.

use crate::dump::{Entry, Frame, Message};

/// "rank 2", "ranks 0, 1 and 3", "ranks 0-62 and 64".
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let parts = runs(ranks);
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list(&parts))
}

/// "have" for several, "has" for one.
pub(crate) fn have(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "has" } else { "have" }
}

/// "wait" for several, "waits" for one.
pub(crate) fn wait(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "waits" } else { "wait" }
}

/// "are" for several, "is" for one.
pub(crate) fn are(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "is" } else { "are" }
}

/// "a", "a and b", "a, b and c".
pub(crate) fn list(parts: &[String]) -> String {
    match parts {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

/// "1 operation", "2 operations".
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// "12 s", "1.5 s", "350 ms", "40 µs", "3 min 20 s".
pub(crate) fn duration(ns: i64) -> String {
    let ns = ns.max(0);
    let s = ns / 1_000_000_000;
    match ns {
        ns if ns < 1_000 => format!("{ns} ns"),
        ns if ns < 1_000_000 => scaled(ns, 1e3, "µs"),
        ns if ns < 1_000_000_000 => scaled(ns, 1e6, "ms"),
        _ if s < 120 => scaled(ns, 1e9, "s"),
        _ if s < 7200 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

fn scaled(ns: i64, unit: f64, name: &str) -> String {
    let value = ns as f64 / unit;
    if value < 9.95 {
        let short = format!("{value:.1}");
        format!("{} {name}", short.trim_end_matches(".0"))
    } else {
        format!("{value:.0} {name}")
    }
}

/// "allreduce #17 of default_pg", "send to rank 2 (tag 0) in default_pg".
pub(crate) fn operation(entry: &Entry, group: &str) -> String {
    let label = entry.label.as_ref().map(|label| format!(" (\"{label}\")"));
    let label = label.unwrap_or_default();
    let tag = entry.tag.map(|tag| format!(" (tag {tag})")).unwrap_or_default();
    match entry.message {
        None => format!("{} #{}{label} of {group}", entry.name, entry.sequence),
        Some(Message::SendTo(peer)) => format!("send to rank {peer}{tag}{label} in {group}"),
        Some(Message::ReceiveFrom(Some(peer))) => {
            format!("recv from rank {peer}{tag}{label} in {group}")
        }
        Some(Message::ReceiveFrom(None)) => format!("recv from any rank{tag}{label} in {group}"),
    }
}

/// What an operation is in every language: `all_reduce`, `allreduce` and `allReduce` are the same.
pub(crate) fn canonical(operation: &str) -> String {
    let letters = operation.chars().filter(|letter| *letter != '_');
    let plain: String = letters.flat_map(char::to_lowercase).collect();
    match plain.as_str() {
        "allgatherintotensor" | "allgathersingle" => "allgatherbase".to_owned(),
        "reducescattertensor" | "reducescattersingle" => "reducescatterbase".to_owned(),
        "alltoallsingle" => "alltoallbase".to_owned(),
        _ => plain,
    }
}

/// " (train.py:41 in step)", nothing if it is not known.
pub(crate) fn site(entry: &Entry) -> String {
    place(entry).map(|place| format!(" ({place})")).unwrap_or_default()
}

/// "train.py:41 in step".
pub(crate) fn place(entry: &Entry) -> Option<String> {
    entry.frames.first().map(frame)
}

/// "train.py:41 in step".
pub(crate) fn frame(frame: &Frame) -> String {
    let file = frame.filename.rsplit(['/', '\\']).next().unwrap_or(&frame.filename);
    match file {
        // Programs in Rust may be built without lines.
        "" => frame.name.clone(),
        file => format!("{file}:{} in {}", frame.line, frame.name),
    }
}

/// "float32 [1024]", "float32 [4, 4] and [4]".
pub(crate) fn tensors(sizes: &[Vec<u64>], dtypes: &[String]) -> String {
    let shapes: Vec<String> = sizes.iter().take(4).map(|shape| format!("{shape:?}")).collect();
    let more = sizes.len().saturating_sub(shapes.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let mut kinds: Vec<&str> = dtypes.iter().map(String::as_str).collect();
    kinds.dedup();
    format!("{} {}{more}", kinds.join("/"), list(&shapes)).trim_start().to_owned()
}

/// Ranks in order, three and more that follow each other as "0-5".
fn runs(ranks: &[u32]) -> Vec<String> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts = Vec::new();
    let mut rest = sorted.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() + 1;
        if length > 4 {
            parts.push(format!("{first}-{}", rest[length - 1]));
            rest = &rest[length..];
        } else {
            parts.push(first.to_string());
            rest = &rest[1..];
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_one_by_one_while_they_are_few() {
        let shown = [&[2][..], &[0, 1, 3], &[0, 1, 2, 3], &[0, 1, 2, 3, 4, 7], &[5, 4]].map(ranks);
        let expected = [
            "rank 2",
            "ranks 0, 1 and 3",
            "ranks 0, 1, 2 and 3",
            "ranks 0-4 and 7",
            "ranks 4 and 5",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn durations_have_two_digits() {
        let ns = [40, 1_500, 40_000, 350_000_000, 1_500_000_000, 12_000_000_000, 200_000_000_000];
        let shown = ns.map(duration);
        assert_eq!(shown, ["40 ns", "1.5 µs", "40 µs", "350 ms", "1.5 s", "12 s", "3 min 20 s"]);
    }
}
