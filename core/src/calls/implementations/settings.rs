//! What groups are made with: options records and devices, out of a call's arguments.

use crate::calls::invocation::Invocation;
use crate::calls::{Settings, Value};
use crate::generated::error::{Error, Result};
use crate::tensor::Device;

/// The options record that parameter `position` was given.
pub(super) fn settings_of(call: &Invocation, position: usize) -> Result<Settings> {
    Settings::of(call.name(), call.parameter(position), call.value(position))
}

/// What was read, else its default, with why it could not be in `possible`: where other ranks would
/// wait for this one, they learn that first.
pub(super) fn or_noted<T: Default>(read: Result<T>, possible: &mut Result<()>) -> T {
    read.unwrap_or_else(|why| {
        if possible.is_ok() {
            *possible = Err(why);
        }
        T::default()
    })
}

/// The device that parameter `position` was given: `cpu`, `cuda:1`, the number of a CUDA device.
pub(super) fn device_of(call: &Invocation, position: usize) -> Result<Option<Device>> {
    let text = match call.value(position) {
        Value::None => return Ok(None),
        Value::Int(number) => number.to_string(),
        Value::Str(text) => text.clone(),
        other => call.language().sort(other).into_owned(),
    };
    device_named(&text).map(Some)
}

/// The device of this name: `cpu`, `cuda`, `cuda:1`, the number of a CUDA device.
///
/// # Errors
/// [`Error::InvalidArgument`] for another name.
pub fn device_named(given: &str) -> Result<Device> {
    let (kind, number) = match given.parse::<u32>() {
        Ok(_) => ("cuda", given),
        Err(_) => given.split_once(':').unwrap_or((given, "0")),
    };
    match (kind, number.parse()) {
        ("cpu", Ok(0)) => Ok(Device::Cpu),
        ("cuda", Ok(number)) => Ok(Device::Cuda(number)),
        _ => {
            let message =
                format!("'{given}' is not a device; expected one of cpu, cuda:0, cuda:1, …");
            Err(Error::InvalidArgument { message })
        }
    }
}
