//! Words that are not used here, each with the field's word for it. A name that was retired stays
//! away by its line in this list.

use crate::files::{File, Language};

/// Names in code and settings, and what they are called now. Whole words, as they are spelled.
const NAMES: &[(&str, &str)] = &[
    ("AheadFrames", "UnexpectedFrames"),
    ("AT_ONCE_BYTES", "FAST_PATH_BYTES"),
    ("Bf16s", "Bf16PairLanes"),
    ("Boarded", "SlotExchange"),
    ("Boarding", "SlotProgress"),
    ("Bulletin", "GroupStatus"),
    ("bulletin", "status"),
    ("ByPeer", "PeerSteps"),
    ("carry_out", "run, or execute"),
    ("Crowd", "CpuContention"),
    ("DepartingRank", "ShutdownDriver"),
    ("Ear", "AbortWatch"),
    ("Effort", "TurnSettings"),
    ("EndKind", "RankExit"),
    ("F16s", "F16Lanes"),
    ("Flushed", "FlushResult"),
    ("Foreigns", "OpaqueObjects"),
    ("FoundPrograms", "ContenderPrograms"),
    ("HalfBits", "OrderedHalf"),
    ("Halves", "HalfLaneBytes"),
    ("hear_of_failure", "poll_failure"),
    ("Hindrance", "StartError"),
    ("is_doubtful", "may_disagree"),
    ("is_usual", "is_fast_path"),
    ("Kept", "a noun: HeldBuffers, CacheEntry"),
    ("Lack", "MissingServer"),
    ("Lasting", "PersistentBuffers"),
    ("Lookout", "AdaptivePoll"),
    ("lookout", "adaptive poll"),
    ("Means", "Endpoints"),
    ("not_brought", "missing_file_reason"),
    ("OfBackend", "SpecificOptions"),
    ("PlacedMember", "DefinedMember"),
    ("POLYRANK_PRICES", "POLYRANK_LINK_COSTS"),
    ("Prices", "LinkCosts"),
    ("SetBack", "ModeGuard"),
    ("settle_family", "settle_comparisons"),
    ("Settling", "DeferredCompletions"),
    ("Small", "SmallCollective"),
    ("Spare", "SpareBuffers"),
    ("Spinning", "AdaptiveSpin"),
    ("Strangers", "PendingConnections"),
    ("Told", "ErrorDelivery"),
    ("Tried", "FastPathResult, or an enum of outcomes"),
];

/// Beginnings of names, and what they are instead.
const PREFIXES: &[(&str, &str)] =
    &[("LEAST_", "MIN_"), ("LONGEST_", "MAX_"), ("MOST_", "MAX_"), ("SHORTEST_", "MIN_")];

/// The same in camelCase, before a capital letter.
const CAMEL_PREFIXES: &[(&str, &str)] =
    &[("least", "min"), ("longest", "max"), ("most", "max"), ("shortest", "min")];

/// Phrases, and what a native reader expects in their place. In any case of the first letter, in
/// code, comments and messages alike.
const PHRASES: &[(&str, &str)] = &[
    ("carried out", "run"),
    ("carries out", "runs"),
    ("carry out", "run"),
    ("carrying out", "running"),
    ("known are", "expected one of"),
    ("let go of", "release, or released"),
    ("lets go of", "releases"),
    ("letting go of", "releasing"),
    ("no so much memory", "not enough memory"),
    ("option<bool>", "an enum that names the three cases"),
];

/// Articles and nouns of `'x' is no y`, of which messages were made.
const NO_NOUNS: &[&str] = &[
    "address",
    "argument",
    "array",
    "collective",
    "device",
    "dtype",
    "group",
    "integer",
    "key",
    "list",
    "member",
    "name",
    "number",
    "operation",
    "origin",
    "page",
    "path",
    "peer",
    "process",
    "rank",
    "record",
    "request",
    "shape",
    "size",
    "store",
    "string",
    "tensor",
    "type",
    "unit",
    "value",
];

/// Every retired word in a file, with its place and what to say.
pub(crate) fn retired(file: &File) -> Vec<String> {
    // This list, and the history of names for users.
    if file.path.ends_with("tidy/words.rs") || file.path == "CHANGELOG.md" {
        return Vec::new();
    }
    let is_rust = file.language() == Language::Rust;
    let mut offences = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        // In prose, and so in the texts of other languages, a word without `_` is not a name.
        let names = names_in(line).into_iter().filter(|(word, _)| is_rust || word.contains('_'));
        for (word, replacement) in names.chain(camel_names_in(line)).chain(phrases_in(line)) {
            let place = format!("{}:{}", file.path, index + 1);
            offences.push(format!("{place}: `{word}`; say {replacement}"));
        }
    }
    offences
}

/// The retired names among the identifiers of a line. A comment may use a word in its own sense.
fn names_in(line: &str) -> Vec<(String, String)> {
    let code = line.split("//").next().unwrap_or(line);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for word in code.split(|c| !is_part(c)) {
        let name = NAMES.iter().find(|(retired, _)| *retired == word);
        found.extend(name.map(|(_, instead)| (word.to_owned(), (*instead).to_owned())));
        let prefix = PREFIXES.iter().find(|(retired, _)| word.starts_with(retired));
        found.extend(prefix.map(|(retired, instead)| {
            (word.to_owned(), format!("{instead}{}", &word[retired.len()..]))
        }));
    }
    found
}

/// The retired names in camelCase, which no prose has, in a line.
fn camel_names_in(line: &str) -> Vec<(String, String)> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let renamed = words.filter_map(|word| {
        let (rest, instead) = CAMEL_PREFIXES.iter().find_map(|(retired, instead)| {
            let rest = word.strip_prefix(retired)?;
            rest.starts_with(|c: char| c.is_ascii_uppercase()).then_some((rest, instead))
        })?;
        Some((word.to_owned(), format!("{instead}{rest}")))
    });
    renamed.collect()
}

/// The retired phrases of a line.
fn phrases_in(line: &str) -> Vec<(String, String)> {
    let line = line.to_lowercase();
    let known = PHRASES.iter().filter(|(phrase, _)| has_words(&line, phrase));
    let mut found: Vec<_> =
        known.map(|(phrase, instead)| ((*phrase).to_owned(), (*instead).to_owned())).collect();
    for noun in NO_NOUNS {
        let phrase = format!("is no {noun}");
        if has_words(&line, &phrase) && !has_words(&line, &format!("there {phrase}")) {
            let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            found.push((phrase, format!("is not {article} {noun}")));
        }
    }
    found
}

/// Whether `phrase` stands in `line`, not as a part of longer words.
fn has_words(line: &str, phrase: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(path: &str, text: &str) -> Vec<String> {
        retired(&File::new(path, text))
    }

    #[test]
    fn a_retired_word_is_named_with_its_place_and_replacement() {
        let text = "//! A file.\n\nconst MOST_RANKS: u32 = 8;\nstruct Ear;\n";
        let expected = ["a.rs:3: `MOST_RANKS`; say MAX_RANKS", "a.rs:4: `Ear`; say AbortWatch"];
        assert_eq!(said_of("a.rs", text), expected);
    }

    #[test]
    fn messages_and_comments_speak_in_the_order_of_english() {
        let text = "// It lets go of the memory.\nlet why = \"'x' is no device; known are cpu\";\n";
        let expected = [
            "a.py:1: `lets go of`; say releases",
            "a.py:2: `known are`; say expected one of",
            "a.py:2: `is no device`; say is not a device",
        ];
        assert_eq!(said_of("a.py", text), expected);
    }

    #[test]
    fn pages_are_read_for_phrases_and_settings() {
        let expected = ["a.md:1: `carried out`; say run"];
        assert_eq!(said_of("a.md", "Small ones are carried out.\n"), expected);
        let expected = ["a.md:1: `POLYRANK_PRICES`; say POLYRANK_LINK_COSTS"];
        assert_eq!(said_of("a.md", "`POLYRANK_PRICES` names a file.\n"), expected);
    }

    #[test]
    fn names_in_camel_case_are_found_in_every_language() {
        let expected = ["a.js:1: `mostBytes`; say maxBytes"];
        assert_eq!(said_of("a.js", "const mostBytes = 8; // almostAll, most bytes\n"), expected);
    }

    #[test]
    fn parts_of_words_and_other_senses_are_left_alone() {
        for line in [
            "let nearby = Earlier::new();",
            "// Small operations are kept.",
            "there is no device",
            "const ALMOST_ALL: u8 = 1;",
        ] {
            assert_eq!(said_of("a.rs", line), [] as [&str; 0], "{line}");
        }
    }

    #[test]
    fn the_list_and_the_history_may_name_what_was_retired() {
        for path in ["tests/tests/tidy/words.rs", "CHANGELOG.md"] {
            assert_eq!(said_of(path, "`POLYRANK_PRICES` carries out"), [] as [&str; 0]);
        }
    }
}
