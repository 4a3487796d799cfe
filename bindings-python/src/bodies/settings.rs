//! What groups are made with: options records and devices, out of a call's arguments.

use std::time::Duration;

use polyrank::calls::{FromValue, Value};
use polyrank::{Device, Error};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::convert::{Call, raise};

/// A `BackendOptions`, as far as something of it was given.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) backend: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) group_name: Option<String>,
}

/// The options record that parameter `index` was given.
pub(super) fn settings_of(py: Python<'_>, call: &mut Call<'_>, index: usize) -> PyResult<Settings> {
    let Some(members) = call.members(index) else { return Ok(Settings::default()) };
    // In the order of the IDL.
    let Ok([backend, timeout, group_name, ranks]) = <[Value; 4]>::try_from(members) else {
        return Ok(Settings::default());
    };
    if matches!(&ranks, Value::List(items) if !items.is_empty()) {
        let operation = "BackendOptions.global_ranks_in_group".to_owned();
        let who = call.name().to_owned();
        return Err(raise(py, &Error::Unsupported { who, operation }));
    }
    let name: Option<String> = taken(py, group_name)?;
    Ok(Settings {
        backend: taken(py, backend)?,
        timeout: taken(py, timeout)?,
        group_name: name.filter(|name| !name.is_empty()),
    })
}

fn taken<T: FromValue>(py: Python<'_>, value: Value) -> PyResult<T> {
    T::from_value(value).map_err(|what| {
        let message = format!("a member of the options must be {what}");
        raise(py, &Error::InvalidArgument { message })
    })
}

/// The device that parameter `index` was given: `cpu`, `cuda:1`, a device of PyTorch, the number of
/// a CUDA device.
pub(super) fn device_of(py: Python<'_>, call: &Call<'_>, index: usize) -> PyResult<Option<Device>> {
    let Some(object) = call.object(index) else { return Ok(None) };
    let text = object.str()?.to_string();
    let (kind, number) = match object.is_instance_of::<PyInt>() {
        true => ("cuda", text.as_str()),
        false => text.split_once(':').unwrap_or((&text, "0")),
    };
    match (kind, number.parse()) {
        ("cpu", Ok(0)) => Ok(Some(Device::Cpu)),
        ("cuda", Ok(number)) => Ok(Some(Device::Cuda(number))),
        _ => {
            let message = format!("'{text}' is no device; known are cpu, cuda:0, cuda:1, …");
            Err(raise(py, &Error::InvalidArgument { message }))
        }
    }
}
