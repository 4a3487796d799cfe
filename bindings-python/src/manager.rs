//! `Manager` as Python has it: functions that give and take a replica's state, which Python's
//! collector sees. Knows no operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use polyrank::calls::replicas::{ReplicaManagerObject, ReplicaState};
use polyrank::calls::{Answer, Object};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::classes::{MadeByCore, unexpected};
use crate::convert::{CoreResult, end_call_with};
use crate::ending::attach;
use crate::object_codec;

/// One rank's part in training that goes on when replicas come and go: torchft's `Manager`.
///
/// Each step is `start_quorum`, `allreduce` of gradients, and `should_commit`; if that is true, the
/// program changes its parameters, and otherwise it begins the same step anew. No error of the
/// group or of the network gets into the training loop.
#[pyclass(frozen, weakref, module = "polyrank")]
pub(crate) struct Manager {
    /// None where it is being dropped.
    inner: Option<ReplicaManagerObject>,
    registered: Mutex<Vec<Arc<StateFunctions>>>,
}

impl Manager {
    /// Core's manager.
    pub(crate) fn get(&self) -> PyResult<&ReplicaManagerObject> {
        self.inner.as_ref().ok_or_else(|| PyTypeError::new_err("this Manager is gone"))
    }

    /// Has these functions give and take a part of the state.
    pub(crate) fn register(
        &self,
        py: Python<'_>,
        key: &str,
        (save, load): (Py<PyAny>, Py<PyAny>),
    ) -> PyResult<()> {
        let functions = Arc::new(StateFunctions(Mutex::new(Some((save, load)))));
        self.get()?.get().or_raise(py)?.register_state(key, functions.clone()).or_raise(py)?;
        self.registered().push(functions);
        Ok(())
    }

    fn registered(&self) -> MutexGuard<'_, Vec<Arc<StateFunctions>>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Manager {
    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("{:?}", self.get()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What another thread changes is in use.
        let Ok(registered) = self.registered.try_lock() else { return Ok(()) };
        registered.iter().try_for_each(|functions| functions.visit(&visit))
    }

    fn __clear__(&self) {
        let all = std::mem::take(&mut *self.registered());
        for functions in all {
            // Outside the lock: code of the program may run.
            let taken = functions.lock().take();
            drop(taken);
        }
    }
}

impl MadeByCore for Manager {
    fn made_of(_: Python<'_>, answer: Answer) -> PyResult<PyClassInitializer<Self>> {
        match answer {
            Answer::Object(Object::Manager(inner)) => {
                Ok(Manager { inner: Some(inner), registered: Mutex::default() }.into())
            }
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        // Its thread ends first, which may wait for the GIL to call what is registered.
        let mut inner = Some(inner);
        let _ = Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}

/// What gives a part of the state, and what takes it; none once the collector has cleared them.
struct StateFunctions(Mutex<Option<(Py<PyAny>, Py<PyAny>)>>);

impl StateFunctions {
    fn lock(&self) -> MutexGuard<'_, Option<(Py<PyAny>, Py<PyAny>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_lock() {
            Ok(functions) => functions.iter().try_for_each(|(save, load)| {
                visit.call(save)?;
                visit.call(load)
            }),
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Calls `f` with one of the functions.
    fn with<R>(
        &self,
        pick: impl FnOnce(&(Py<PyAny>, Py<PyAny>)) -> &Py<PyAny>,
        f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, String> {
        let called = attach(|py| {
            let function = self.lock().as_ref().map(|both| pick(both).clone_ref(py));
            let function = function.ok_or_else(|| "the manager is gone".to_owned())?;
            f(function.bind(py)).map_err(|error| {
                let text = format!("{error}");
                // What is no exception of the program's, as Ctrl-C, is not the manager's to keep.
                let error = match error.is_instance_of::<PyException>(py) {
                    true => Some(error),
                    false => end_call_with(error),
                };
                // Where it was raised; the manager goes on.
                error.into_iter().for_each(|error| error.display(py));
                text
            })
        });
        called.unwrap_or_else(|| Err("the interpreter ends".to_owned()))
    }
}

impl ReplicaState for StateFunctions {
    fn save(&self) -> Result<Vec<u8>, String> {
        self.with(|(save, _)| save, |save| object_codec::encode(&save.call0()?))
    }

    fn load(&self, bytes: &[u8]) -> Result<(), String> {
        self.with(
            |(_, load)| load,
            |load| load.call1((object_codec::decode(load.py(), bytes)?,)).map(drop),
        )
    }
}
