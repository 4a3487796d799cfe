//! What an environment variable is, and what it is set to. This file alone asks the environment.
//! Knows no variable: those are in `table.rs` and `command_table.rs`.

use std::ffi::OsString;
use std::fmt;

#[cfg(not(target_family = "wasm"))]
use super::command_table::TOPICS_OF_THE_COMMAND;
pub use super::command_table::*;
#[cfg(not(target_family = "wasm"))]
use super::table::TOPICS_OF_RANKS;
pub use super::table::*;

/// All variables, by topic.
#[cfg(not(target_family = "wasm"))]
pub const TOPICS: &[Topic] = &{
    let mut all = [TOPICS_OF_RANKS[0]; TOPICS_OF_RANKS.len() + TOPICS_OF_THE_COMMAND.len()];
    let (ranks, command) = all.split_at_mut(TOPICS_OF_RANKS.len());
    ranks.copy_from_slice(TOPICS_OF_RANKS);
    command.copy_from_slice(TOPICS_OF_THE_COMMAND);
    all
};

/// A variable of the environment. There are those of this table only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable(pub(super) &'static str);

impl Variable {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// What a variable of the user's program is set to, by a name that the user gives.
    #[must_use]
    pub fn of_program(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// Whether it is set, even to nothing.
    #[must_use]
    pub fn is_set(self) -> bool {
        std::env::var_os(self.0).is_some()
    }

    /// What it is set to. An empty variable is what shells make of an unset one: `None`.
    #[must_use]
    pub fn value(self) -> Option<OsString> {
        std::env::var_os(self.0).filter(|value| !value.is_empty())
    }

    /// As [`Variable::value`]; what is not text in it is replaced.
    #[must_use]
    pub fn text(self) -> Option<String> {
        self.value().map(|value| value.to_string_lossy().into_owned())
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// The variables of one purpose.
#[cfg(not(target_family = "wasm"))]
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The heading.
    pub title: &'static str,
    /// Its variables.
    pub rows: &'static [Row],
}

/// One row of the table.
#[cfg(not(target_family = "wasm"))]
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The variable.
    pub variable: Variable,
    /// What it means, in Markdown.
    pub meaning: &'static str,
    /// What it may be set to.
    pub values: &'static str,
    /// What holds where it is not set.
    pub unset: &'static str,
    /// The part of the library that reads it.
    pub reader: &'static str,
}

/// Makes a constant of each row, and the table of this name where there is an environment.
macro_rules! variables {
    ($topics:ident $($title:literal {$(
        $(#[doc = $meaning:literal])+
        $name:ident { values: $values:literal, unset: $unset:literal, reader: $reader:literal }
    )+})+) => {
        $($(
            $(#[doc = $meaning])+
            // A name is its owner's, in the letters that the owner gave it.
            #[allow(non_upper_case_globals)]
            pub const $name: Variable = Variable(stringify!($name));
        )+)+

        #[cfg(not(target_family = "wasm"))]
        pub(super) const $topics: &[Topic] = &[$(Topic {
            title: $title,
            rows: &[$(Row {
                variable: $name,
                meaning: concat!($($meaning),+),
                values: $values,
                unset: $unset,
                reader: $reader,
            }),+],
        }),+];
    };
}
pub(super) use variables;
