//! `ProcessGroup`: messages, hooks, and the replacing of members.

use std::time::Duration;

use polyrank::backend::WaitIntent;
use polyrank::calls::parameters::process_group::*;
use polyrank::calls::{device_named, reconfigure_options};
use polyrank::{nan_check, nan_check_allowing_infinity};
use pyo3::prelude::*;

pub(crate) use self::{
    message as ppermute, message as recv, message as recv_anysource, message as send,
    message as sendrecv,
};
use super::Answer;
use super::point_to_point;
use crate::classes::{DeviceBackend, ProcessGroup, TensorObjects, Work};
use crate::convert::{Call, CoreResult, detached, nothing};
use crate::future;
use crate::hooks::{self, HookFunction, NanCheck};

macro_rules! register {
    ($($method:ident: $adapter:path),*) => {$(
        /// Registers a hook.
        pub(crate) fn $method<'py>(
            group: &Bound<'py, ProcessGroup>,
            mut call: Call<'py>,
        ) -> Answer<'py> {
            let id = call.take($method::HOOK_ID)?;
            let py = group.py();
            if let Some(hook) = call.object($method::HOOK) {
                let hook = HookFunction::new(group.get().inner.identity(), hook);
                let hook = $adapter(hook);
                group.get().inner.$method(id, hook).or_raise(py)?;
            }
            nothing(py)
        }
    )*};
}

register!(
    register_post_hook: hooks::post_hook,
    register_completion_hook: hooks::completion_hook,
    register_abort_hook: hooks::abort_hook
);

/// Registers a hook; the search for NaN and infinity needs nothing of Python.
pub(crate) fn register_pre_hook<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let id = call.take(register_pre_hook::HOOK_ID)?;
    let inner = &group.get().inner;
    if let Some(hook) = call.object(register_pre_hook::HOOK) {
        let registered = match hook.cast_exact::<NanCheck>() {
            Ok(check) if check.get().allow_infinity => {
                inner.register_pre_hook(id, nan_check_allowing_infinity())
            }
            Ok(_) => inner.register_pre_hook(id, nan_check()),
            Err(_) => {
                let hook = HookFunction::new(inner.identity(), hook);
                inner.register_pre_hook(id, hooks::pre_hook(hook))
            }
        };
        registered.or_raise(group.py())?;
    }
    nothing(group.py())
}

/// Replaces the members of the group.
pub(crate) fn reconfigure<'py>(group: &Bound<'py, ProcessGroup>, call: Call<'py>) -> Answer<'py> {
    let (py, inner) = (group.py(), &group.get().inner);
    let options = call.value(reconfigure::OPTS);
    let options = reconfigure_options(call.name(), "opts", options).or_raise(py)?;
    let timeout = options.timeout.unwrap_or_else(|| inner.timeout());
    let work = detached(py, || inner.reconfigure(options))?;
    let objects = TensorObjects { outputs: Vec::new(), read: None };
    Work::new(work, objects, timeout).into_object(py)
}

/// Goes on without some ranks.
pub(crate) fn shrink_group<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let (py, inner) = (group.py(), &group.get().inner);
    let excluded: Vec<u32> = call.take(shrink_group::RANKS_TO_EXCLUDE)?;
    let timeout: Option<Duration> = call.take(shrink_group::TIMEOUT)?;
    let work = detached(py, || inner.shrink_group(&excluded, timeout))?;
    let objects = TensorObjects { outputs: Vec::new(), read: None };
    Work::new(work, objects, timeout.unwrap_or_else(|| inner.timeout())).into_object(py)
}

/// The backend that serves a device.
pub(crate) fn get_backend<'py>(group: &Bound<'py, ProcessGroup>, call: Call<'py>) -> Answer<'py> {
    let py = group.py();
    let device = call.object(get_backend::DEVICE).map(|device| device.str()).transpose()?;
    let device = device.map(|text| text.to_string()).unwrap_or_default();
    let device = device_named(&device).or_raise(py)?;
    let inner = group.get().inner.get_backend(device).or_raise(py)?;
    Ok(Bound::new(py, DeviceBackend { inner })?.into_any())
}

/// How the group stands.
pub(crate) fn get_error<'py>(group: &Bound<'py, ProcessGroup>, _call: Call<'py>) -> Answer<'py> {
    future::work_result(group.py(), group.get().inner.get_error())
}

/// Sends a list's one tensor, or receives into it.
pub(crate) fn message<'py>(group: &Bound<'py, ProcessGroup>, call: Call<'py>) -> Answer<'py> {
    let work = point_to_point::issue(group.py(), &group.get().inner, call, WaitIntent::Later)?;
    work.into_object(group.py())
}
