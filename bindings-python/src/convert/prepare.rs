//! Calls that prepare an operation, to be started often. Knows no collective.

use polyrank::calls::Method;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::call::resolve;
use super::exception::CoreResult;
use super::lease::releasing;
use crate::classes::{PreparedOperation, ProcessGroup};
use crate::reduce_op::ReduceOp;

/// A method of `group` that prepares an operation.
pub(crate) fn prepare<'py>(
    group: &Bound<'py, ProcessGroup>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = group.py();
    releasing(py, || {
        let call = resolve(py, method, positional, keywords)?;
        let tensors = call.tensor_objects();
        let (resolved, objects) = call.into_operation();
        let inner = resolved.prepare(&group.get().inner).or_raise(py)?;
        let operator = positional.iter().chain(keywords.iter().flat_map(|it| it.values()));
        let operator = operator.filter_map(|given| given.cast_into::<ReduceOp>().ok());
        let operator = operator.into_iter().find(|operator| operator.get().is_function());
        let made = PreparedOperation::new(group, inner, tensors, objects, operator.as_ref());
        Ok(Bound::new(py, made)?.into_any())
    })
}
