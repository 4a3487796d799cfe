//! Results of the core as Python objects, and calls of the core that may block.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polyrank::store::{Store, install_interrupt_check};
use polyrank::{Device, Error, ProcessGroup};
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::exception::raise;
use super::lease::releasing;
use crate::classes;

/// What a call of the core returns, as a Python object.
pub(crate) trait Give {
    /// The object. Bytes become `bytes`, lists `list`, durations `timedelta`, nothing `None`.
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

/// What a call of the core returned, as a Python object.
pub(crate) fn give<T: Give>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    value.give(py)
}

/// Calls the core without the GIL, so that it may block; Ctrl-C ends the waits of stores.
pub(crate) fn blocking<T: Give + Send>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send,
) -> PyResult<Bound<'_, PyAny>> {
    releasing(py, || {
        let value = interruptible(py, call);
        // A signal's exception is what ended the call, whatever error the core made of it.
        match SIGNALLED.take() {
            Some(error) => Err(error),
            None => value.give(py),
        }
    })
}

/// Calls the core without the GIL, for results that are no Python objects.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> polyrank::Result<T> + Send,
) -> PyResult<T> {
    releasing(py, || {
        let value = interruptible(py, call);
        match SIGNALLED.take() {
            Some(error) => Err(error),
            None => value.map_err(|error| raise(py, &error)),
        }
    })
}

thread_local! {
    /// The exception that a signal handler raised while this thread waited in the core.
    static SIGNALLED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

fn interruptible<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let _guard = install_interrupt_check(has_signal);
        call()
    })
}

/// Whether a signal's handler raised. Called now and then by waits of the core, detached.
fn has_signal() -> bool {
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            SIGNALLED.set(Some(error));
            true
        }
    })
    .unwrap_or(false)
}

macro_rules! give_plain {
    ($($rust:ty),* $(,)?) => {$(
        impl Give for $rust {
            fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                let object = self.into_pyobject(py).map_err(Into::<PyErr>::into)?;
                Ok(object.into_any().into_bound())
            }
        }
    )*};
}

give_plain!(
    bool,
    i32,
    u32,
    i64,
    u64,
    f64,
    u16,
    &str,
    String,
    Duration,
    Vec<u8>,
    Vec<Vec<u8>>,
    Vec<String>,
    Vec<u32>,
    &[u32],
    Option<String>,
    Option<u32>
);

impl Give for () {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(py.None().into_bound(py))
    }
}

impl Give for &Path {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(self.as_os_str().into_pyobject(py)?.into_any())
    }
}

impl Give for Option<Device> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            None => ().give(py),
            Some(Device::Cpu) => "cpu".give(py),
            Some(Device::Cuda(index)) => format!("cuda:{index}").give(py),
        }
    }
}

impl Give for Option<Error> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            None => ().give(py),
            Some(error) => super::exception::exception(py, &error),
        }
    }
}

impl Give for Arc<dyn Store> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, classes::Store { inner: self })?.into_any())
    }
}

impl Give for &Arc<dyn Store> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.clone().give(py)
    }
}

impl Give for ProcessGroup {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, classes::ProcessGroup { inner: self })?.into_any())
    }
}

impl Give for Option<ProcessGroup> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            None => ().give(py),
            Some(group) => group.give(py),
        }
    }
}

/// The group, or on a rank that is not in it, what stands for that.
pub(crate) struct Member(pub(crate) Option<ProcessGroup>);

impl Give for Member {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self.0 {
            None => non_group_member(py),
            Some(group) => group.give(py),
        }
    }
}

/// The one instance of `NonGroupMember`.
pub(crate) fn non_group_member(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static INSTANCE: PyOnceLock<Py<classes::NonGroupMember>> = PyOnceLock::new();
    let instance = INSTANCE.get_or_try_init(py, || Py::new(py, classes::NonGroupMember))?;
    Ok(instance.bind(py).clone().into_any())
}

impl<T: Give> Give for polyrank::Result<T> {
    fn give(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.map_err(|error| raise(py, &error))?.give(py)
    }
}
