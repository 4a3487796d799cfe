//! Options records: what the classes of the IDL's dictionaries have in common.

use std::sync::{Mutex, MutexGuard, PoisonError};

use polyrank::calls::RecordType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::convert::{CoreResult, OpaqueObjects, arguments, object_of_value};

/// Named values with defaults. The base class of all options.
#[pyclass(subclass, frozen, name = "Options", module = "polyrank")]
pub(crate) struct Record {
    record_type: &'static RecordType,
    /// One for each member, in order.
    values: Mutex<Vec<Py<PyAny>>>,
}

impl Record {
    /// A record with the members that were given, the others at their defaults.
    pub(crate) fn new(
        record_type: &'static RecordType,
        positional: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Record> {
        let py = positional.py();
        check(record_type, positional, keywords)?;
        let defaults = record_type.defaults();
        let values = defaults.iter().map(|value| Ok(object_of_value(py, value)?.unbind()));
        let mut values = values.collect::<PyResult<Vec<_>>>()?;
        for (position, value) in positional.iter().enumerate() {
            values[position] = value.unbind();
        }
        for (name, value) in keywords.into_iter().flatten() {
            let name = name.cast::<PyString>()?;
            if let Some(position) = record_type.position_of(name.to_str().unwrap_or("")) {
                values[position] = value.unbind();
            }
        }
        Ok(Record { record_type, values: Mutex::new(values) })
    }

    /// What the IDL says of it.
    pub(crate) fn record_type(&self) -> &'static RecordType {
        self.record_type
    }

    /// The values of all members, in order.
    pub(crate) fn members<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        self.lock().iter().map(|value| value.bind(py).clone()).collect()
    }

    /// The value of the member at `position` of `record`, which is a record.
    pub(crate) fn get(record: &Bound<'_, PyAny>, position: usize) -> PyResult<Py<PyAny>> {
        let this = record.cast::<Record>()?.get();
        Ok(this
            .lock()
            .get(position)
            .map_or_else(|| record.py().None(), |value| value.clone_ref(record.py())))
    }

    /// Sets the member at `position` of `record`, which is a record.
    pub(crate) fn set(
        record: &Bound<'_, PyAny>,
        position: usize,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let this = record.cast::<Record>()?.get();
        let Some(member) = this.record_type.members.get(position) else { return Ok(()) };
        let keywords = PyDict::new(record.py());
        keywords.set_item(member.name, value)?;
        check(this.record_type, &PyTuple::empty(record.py()), Some(&keywords))?;
        // The old value is dropped after the lock, as dropping may run any code.
        let old = this
            .lock()
            .get_mut(position)
            .map(|slot| std::mem::replace(slot, value.clone().unbind()));
        drop(old);
        Ok(())
    }

    /// The values. Nobody runs Python code while holding them.
    fn lock(&self) -> MutexGuard<'_, Vec<Py<PyAny>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Record {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What cannot be looked at now is looked at the next time.
        let Ok(values) = self.values.try_lock() else { return Ok(()) };
        values.iter().try_for_each(|value| visit.call(value))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let values = this.members(slf.py());
        let names = this.record_type.members.iter().map(|member| member.name);
        let members: Vec<_> = names.zip(values.iter().map(Bound::as_unbound)).collect();
        described(slf.py(), this.record_type.name, &members)
    }
}

/// `Name(member=value, ...)`.
pub(crate) fn described(
    py: Python<'_>,
    name: &str,
    members: &[(&str, &Py<PyAny>)],
) -> PyResult<String> {
    let mut parts = Vec::new();
    for (member, value) in members {
        parts.push(format!("{member}={}", value.bind(py).repr()?));
    }
    Ok(format!("{name}({})", parts.join(", ")))
}

/// Refuses values that the members do not take.
fn check(
    record_type: &'static RecordType,
    positional: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let method = Some(record_type.constructor());
    let arguments = arguments(method, positional, keywords, &mut OpaqueObjects::default())?;
    record_type.check(arguments).or_raise(positional.py())
}
