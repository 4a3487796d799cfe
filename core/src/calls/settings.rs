//! What groups are made with, out of the record that a call was given. Knows no group.

use std::time::Duration;

use super::answer::camel_case;
use super::from_value::Members;
use super::resolve::{is_name, takes, typed};
use super::value::Value;
use crate::backend::BackendOptions;
use crate::backend::options::{GivenOptions, ProgramOptions};
use crate::generated::backend_options::of_record;
use crate::generated::calls::BACKEND_OPTIONS;
use crate::generated::error::{Error, Result};
use crate::process_group::{GroupHints, ReconfigureOptions};
use crate::request::{RecordType, Type};

/// The members that `value` names, which is the argument `name` of the function `who`.
///
/// # Errors
/// [`Error::InvalidArgument`] for what is not a `ReconfigureOptions`.
pub fn reconfigure_options(who: &str, name: &str, value: &Value) -> Result<ReconfigureOptions> {
    let read = || {
        let mut members = Members::of("ReconfigureOptions", value.clone())?;
        let (uuid, handles): (i64, Vec<String>) = (members.take("uuid")?, members.take("handles")?);
        let mut options = ReconfigureOptions::new(uuid, handles).ordered(members.take("ordered")?);
        options.timeout = members.take("timeout")?;
        options.hints = match members.take("hints")? {
            Value::None => None,
            hints => Some(hints_of(hints)?),
        };
        Ok(options)
    };
    read().map_err(|what: String| Error::InvalidArgument {
        message: format!("{who}(): argument '{name}' must be {what}"),
    })
}

/// What `value` says, which is the argument `name` of the function `who`.
///
/// # Errors
/// [`Error::InvalidArgument`] for what they cannot be.
pub(crate) fn group_hints(who: &str, name: &str, value: &Value) -> Result<GroupHints> {
    hints_of(value.clone()).map_err(|what| Error::InvalidArgument {
        message: format!("{who}(): argument '{name}' must be {what}"),
    })
}

fn hints_of(value: Value) -> std::result::Result<GroupHints, String> {
    Ok(GroupHints { compress: Members::of("GroupHints", value)?.take("compress")? })
}

/// Whether `record` is the type of options of groups, which backends extend: in other languages
/// also a backend that the program registered.
pub(super) fn is_of_groups(record: &RecordType) -> bool {
    record.name == BACKEND_OPTIONS.name
}

/// Whether only a backend that the program registered can know what `options` are.
pub(super) fn is_foreign(options: &Value) -> bool {
    why_foreign(options).is_some()
}

/// How a message goes on, that options must be `BackendOptions`, if they are something else; none
/// for what no options can be.
fn why_foreign(options: &Value) -> Option<String> {
    match options {
        Value::Foreign(foreign) if foreign.interfaces.is_empty() => {
            Some(format!(", not {}", foreign.type_name))
        }
        Value::Members(members) => {
            let mut own = None;
            for (name, value) in members {
                match type_of(&BACKEND_OPTIONS, name) {
                    Some(ty) if !takes(&ty, value) => return None,
                    Some(_) => {}
                    None => {
                        let mut extensions = BACKEND_OPTIONS.extensions.iter();
                        if extensions.all(|record| type_of(record, name).is_none()) {
                            own = own.or(Some(name));
                        }
                    }
                }
            }
            own.map(|own| format!(", which has no '{}'", camel_case(own)))
        }
        _ => None,
    }
}

fn type_of(record: &RecordType, member: &str) -> Option<Type> {
    record.members.iter().find(|known| is_name(member, known.name)).map(|known| known.ty)
}

/// A `BackendOptions` or one that extends it, as far as something of it was given.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The backend's name.
    pub backend: Option<String>,
    /// Limit of the group's operations.
    pub timeout: Option<Duration>,
    /// The group's name, which is not empty.
    pub group_name: Option<String>,
    /// What was chosen about one backend.
    pub backend_options: Option<BackendOptions>,
}

impl Settings {
    /// What `value` says, which is the argument `name` of the function `who`, or none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number out of its range; [`Error::Unsupported`] for what is
    /// not built.
    pub fn of(who: &str, name: &str, value: &Value) -> Result<Settings> {
        if let Value::Options(given, options) = value {
            return Settings::of_given(who, name, given, options);
        }
        let Value::Record(record, _) = value else { return Ok(Settings::default()) };
        let ranks = || Members::of(record.name, value.clone())?.take("global_ranks_in_group");
        let invalid = |what: String| Error::InvalidArgument {
            message: format!("{who}(): argument '{name}' must be {what}"),
        };
        let ranks: Vec<Value> = ranks().map_err(invalid)?;
        if !ranks.is_empty() {
            let operation = "BackendOptions.global_ranks_in_group".to_owned();
            return Err(Error::Unsupported { who: who.to_owned(), operation });
        }
        Settings::read(record.name, value).map_err(invalid)
    }

    /// What `options` say, with what the language `given` them as.
    fn of_given(who: &str, name: &str, given: &GivenOptions, options: &Value) -> Result<Settings> {
        let why_foreign = why_foreign(options);
        // What else there is than those of all groups, is the backend's.
        let known = typed(&BACKEND_OPTIONS, options.clone());
        let mut settings = Settings::of(who, name, &known)?;
        let of_program = || ProgramOptions { why_foreign }.into();
        let chosen = settings.backend_options.unwrap_or_else(of_program);
        settings.backend_options = Some(chosen.with_given(Some(given.clone())));
        Ok(settings)
    }

    fn read(record: &str, value: &Value) -> std::result::Result<Settings, String> {
        let mut members = Members::of(record, value.clone())?;
        let group_name: String = members.take("group_name")?;
        Ok(Settings {
            backend: members.take("backend")?,
            timeout: members.take("timeout")?,
            group_name: Some(group_name).filter(|name| !name.is_empty()),
            backend_options: of_record(record, value)?,
        })
    }
}
