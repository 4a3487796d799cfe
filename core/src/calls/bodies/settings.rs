//! What groups are made with: options records and devices, out of a call's arguments.

use std::time::Duration;

use crate::calls::invocation::Invocation;
use crate::calls::{FromValue, Value};
use crate::{Device, Error, Result};

/// A `BackendOptions`, as far as something of it was given.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) backend: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) group_name: Option<String>,
}

/// The options record that parameter `position` was given.
pub(super) fn settings_of(call: &Invocation, position: usize) -> Result<Settings> {
    let Value::Record(_, members) = call.value(position) else { return Ok(Settings::default()) };
    // In the order of the IDL.
    let Ok([backend, timeout, group_name, ranks]) = <[Value; 4]>::try_from(members.clone()) else {
        return Ok(Settings::default());
    };
    if matches!(&ranks, Value::List(items) if !items.is_empty()) {
        let operation = "BackendOptions.global_ranks_in_group".to_owned();
        return Err(Error::Unsupported { who: call.name().to_owned(), operation });
    }
    let name: Option<String> = taken(group_name)?;
    Ok(Settings {
        backend: taken(backend)?,
        timeout: taken(timeout)?,
        group_name: name.filter(|name| !name.is_empty()),
    })
}

fn taken<T: FromValue>(value: Value) -> Result<T> {
    T::from_value(value).map_err(|what| {
        let message = format!("a member of the options must be {what}");
        Error::InvalidArgument { message }
    })
}

/// The device that parameter `position` was given: `cpu`, `cuda:1`, the number of a CUDA device.
pub(super) fn device_of(call: &Invocation, position: usize) -> Result<Option<Device>> {
    let (kind, number) = match call.value(position) {
        Value::None => return Ok(None),
        Value::Int(number) => ("cuda", number.to_string()),
        Value::Str(text) => {
            let (kind, number) = text.split_once(':').unwrap_or((text, "0"));
            (kind, number.to_owned())
        }
        other => ("", other.to_string()),
    };
    match (kind, number.parse()) {
        ("cpu", Ok(0)) => Ok(Some(Device::Cpu)),
        ("cuda", Ok(number)) => Ok(Some(Device::Cuda(number))),
        _ => {
            let text = if kind.is_empty() { number } else { format!("{kind}:{number}") };
            let message = format!("'{text}' is no device; known are cpu, cuda:0, cuda:1, …");
            Err(Error::InvalidArgument { message })
        }
    }
}
