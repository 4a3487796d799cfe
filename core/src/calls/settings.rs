//! What groups are made with, out of the record that a call was given. Knows no group.

use std::time::Duration;

use super::from_value::Members;
use super::value::Value;
use crate::backend::BackendOptions;
use crate::generated::backend_options::of_record;
use crate::generated::error::{Error, Result};
use crate::process_group::{GroupHints, ReconfigureOptions};

/// The members that `value` names, which is the argument `name` of the function `who`.
///
/// # Errors
/// [`Error::InvalidArgument`] for what is no `ReconfigureOptions`.
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
