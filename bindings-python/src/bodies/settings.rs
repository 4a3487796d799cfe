//! What groups are made with: options records and devices, out of a call's arguments.

use polyrank::calls::Settings;
use polyrank::{Device, Error};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::convert::{Call, raise};

/// The options record that parameter `index` was given.
pub(super) fn settings_of(py: Python<'_>, call: &Call<'_>, index: usize) -> PyResult<Settings> {
    let (name, value) = call.argument(index);
    Settings::of(call.name(), name, value).map_err(|error| raise(py, &error))
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
            let message = format!("'{text}' is not a device; known are cpu, cuda:0, cuda:1, …");
            Err(raise(py, &Error::InvalidArgument { message }))
        }
    }
}
