//! Checked access to the fields of untrusted JSON: every error has its place. Knows no layout.

use serde_json::{Map, Value};

use crate::error::TraceError;

/// Longer texts are cut: a report is for people.
const MAX_TEXT: usize = 2000;

/// A value, and where it stands.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    file: &'a str,
    place: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn root(file: &'a str, value: &'a Value) -> Field<'a> {
        Field { file, place: String::new(), value }
    }

    /// What is wrong with it.
    pub(crate) fn error(&self, why: impl Into<String>) -> TraceError {
        TraceError::Field { file: self.file.to_owned(), place: self.place.clone(), why: why.into() }
    }

    /// A field of this object; none if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Field<'a>>, TraceError> {
        let value = self.object()?.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| self.at(name, value)))
    }

    /// A field of this object that must be there.
    pub(crate) fn need(&self, name: &str) -> Result<Field<'a>, TraceError> {
        self.get(name)?.ok_or_else(|| self.error(format!("the field \"{name}\" is missing")))
    }

    /// The fields of this object, in the order of their names.
    pub(crate) fn fields(&self) -> Result<Vec<(&'a str, Field<'a>)>, TraceError> {
        let fields = self.object()?.iter();
        Ok(fields.map(|(name, value)| (name.as_str(), self.at(name, value))).collect())
    }

    /// The values of this array.
    pub(crate) fn items(&self) -> Result<Vec<Field<'a>>, TraceError> {
        let Value::Array(items) = self.value else { return Err(self.expected("an array")) };
        let item =
            |(at, value)| Field { file: self.file, place: format!("{}[{at}]", self.place), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(crate) fn is_text(&self) -> bool {
        self.value.is_string()
    }

    /// A text that is safe to show: no control characters, not endless.
    pub(crate) fn text(&self) -> Result<String, TraceError> {
        let Value::String(text) = self.value else { return Err(self.expected("a string")) };
        let shown = |letter: char| match letter {
            '\n' | '\r' | '\t' => ' ',
            // Those that turn the direction of writing hide what a line says.
            '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                '\u{fffd}'
            }
            letter if letter.is_control() => '\u{fffd}',
            letter => letter,
        };
        Ok(text.chars().take(MAX_TEXT).map(shown).collect())
    }

    /// The value that a text holds as JSON.
    pub(crate) fn parsed<T: serde::de::DeserializeOwned>(
        &self,
        what: &str,
    ) -> Result<T, TraceError> {
        let text = self.value.as_str().ok_or_else(|| self.expected("a string"))?;
        serde_json::from_str(text).map_err(|_| self.expected(what))
    }

    /// A yes or no.
    pub(crate) fn flag(&self) -> Result<bool, TraceError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// A number from 0.
    pub(crate) fn number(&self) -> Result<u64, TraceError> {
        self.value.as_u64().ok_or_else(|| self.expected("a number from 0"))
    }

    /// A number that may be negative.
    pub(crate) fn signed(&self) -> Result<i64, TraceError> {
        self.value.as_i64().ok_or_else(|| self.expected("a whole number of 64 bits"))
    }

    /// A rank, or a number of them.
    pub(crate) fn small(&self) -> Result<u32, TraceError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.expected("a number below 2^32"))
    }

    /// That another thing was expected here.
    pub(crate) fn expected(&self, what: &str) -> TraceError {
        let came = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => {
                format!("\"{}\"", text.chars().take(40).collect::<String>().escape_debug())
            }
            Value::Array(items) => format!("an array of {}", items.len()),
            Value::Object(_) => "an object".to_owned(),
        };
        self.error(format!("expected {what}, not {came}"))
    }

    fn object(&self) -> Result<&'a Map<String, Value>, TraceError> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    fn at(&self, name: &str, value: &'a Value) -> Field<'a> {
        let name: String = name.chars().take(60).flat_map(char::escape_debug).collect();
        let dot = if self.place.is_empty() { "" } else { "." };
        Field { file: self.file, place: format!("{}{dot}{name}", self.place), value }
    }
}
