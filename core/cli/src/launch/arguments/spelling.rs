//! Options in the spellings that users of torchrun and mpirun have in their fingers:
//! `--nproc_per_node`, `-np`, `-hostfile`. Knows the options of a command, and not what they mean.

use std::ffi::OsString;

use clap::Command;

/// The options with a long name that mpirun and mpiexec take after one dash.
const ONE_DASH: [&str; 16] = [
    "np",
    "host",
    "hosts",
    "hostfile",
    "machinefile",
    "timeout",
    "wdir",
    "bind-to",
    "tag-output",
    "timestamp-output",
    "oversubscribe",
    "prepend-rank",
    "map-by",
    "ppn",
    "genv",
    "mca",
];

/// `words` in the spelling of `command`, up to the program, whose arguments are its own.
pub(crate) fn normalised(words: &[OsString], command: &Command) -> Vec<OsString> {
    let mut normal = Vec::new();
    let mut words = words.iter().cloned();
    while let Some(word) = words.next() {
        let is_option = |text: &&str| text.starts_with('-') && text.len() > 1 && *text != "--";
        let Some(text) = word.to_str().filter(is_option) else {
            normal.push(word);
            break;
        };
        let text = respelled(text);
        let takes_next = has_value_in_next_word(&text, command);
        normal.push(text.into());
        normal.extend(takes_next.then(|| words.next()).flatten());
    }
    normal.extend(words);
    normal
}

fn respelled(word: &str) -> String {
    let (name, value) = word.split_at(word.find('=').unwrap_or(word.len()));
    if name.starts_with("--") {
        return name.replace('_', "-") + value;
    }
    let name = &name[1..];
    match ONE_DASH.contains(&name) {
        true => format!("--{name}{value}"),
        false => word.to_owned(),
    }
}

/// Whether the value of an option is the word after it.
fn has_value_in_next_word(word: &str, command: &Command) -> bool {
    if let Some(name) = word.strip_prefix("--") {
        let named = |option: &&clap::Arg| {
            let aliases = option.get_all_aliases().unwrap_or_default();
            option.get_long() == Some(name) || aliases.contains(&name)
        };
        return command.get_arguments().find(named).is_some_and(takes_value);
    }
    // Letters may stand together; the first that has a value has the rest of the word for it.
    let letters = &word[1..];
    for (at, letter) in letters.char_indices() {
        let option = command.get_arguments().find(|option| option.get_short() == Some(letter));
        if option.is_some_and(takes_value) {
            return at + letter.len_utf8() == letters.len();
        }
    }
    false
}

fn takes_value(option: &clap::Arg) -> bool {
    option.get_action().takes_values()
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    fn normal(line: &str) -> String {
        let command = Command::new("c")
            .arg(Arg::new("np").long("np"))
            .arg(Arg::new("count").short('n').long("nproc-per-node").alias("nproc"))
            .arg(Arg::new("module").short('m').long("no-python").action(ArgAction::SetTrue));
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let words = normalised(&words, &command);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn spellings_are_changed_up_to_the_program() {
        for (given, expected) in [
            ("-np 2 prog -np 3 --a_b", "--np 2 prog -np 3 --a_b"),
            ("-np=2 prog", "--np=2 prog"),
            ("--nproc_per_node 2 --no_python a_b", "--nproc-per-node 2 --no-python a_b"),
            ("--nproc_per_node=a_b prog", "--nproc-per-node=a_b prog"),
            ("-n -np -np 1 prog", "-n -np --np 1 prog"),
            ("-mn 2 --no_python prog --no_python", "-mn 2 --no-python prog --no_python"),
            ("-mn2 --no_python prog", "-mn2 --no-python prog"),
            ("--nproc 2 -- --no_python", "--nproc 2 -- --no_python"),
        ] {
            assert_eq!(normal(given), expected);
        }
    }
}
