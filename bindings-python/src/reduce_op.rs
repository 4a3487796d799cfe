//! `ReduceOp` and `DType` as Python classes. Knows nothing of operations.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrank::CustomReduction;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::convert::invalid_type;
use crate::custom_reduction::PythonFunction;

/// How elements of several ranks become one: `ReduceOp.SUM`, `ReduceOp.MAX`, …
///
/// `PREMUL_SUM` needs a factor: `premul_sum(0.5)`. `CUSTOM` needs a function:
/// `ReduceOp.custom(numpy.hypot)`.
#[pyclass(frozen, module = "polyrank")]
pub(crate) struct ReduceOp {
    reduce_op: polyrank::ReduceOp,
    /// Whether it is the bare `PREMUL_SUM` or `CUSTOM`, which cannot reduce.
    is_bare: bool,
    /// What has the function, as long as anybody has this.
    reduction: Option<CustomReduction>,
    /// Of another name for one with a function, that one.
    original: Option<Py<ReduceOp>>,
}

impl PartialEq for ReduceOp {
    fn eq(&self, other: &ReduceOp) -> bool {
        (self.reduce_op, self.is_bare) == (other.reduce_op, other.is_bare)
    }
}

impl From<polyrank::ReduceOp> for ReduceOp {
    fn from(reduce_op: polyrank::ReduceOp) -> ReduceOp {
        let reduction = match reduce_op {
            polyrank::ReduceOp::Custom(op) => op.reduction(),
            _ => None,
        };
        ReduceOp { reduction, ..ReduceOp::plain(reduce_op) }
    }
}

impl ReduceOp {
    /// An operator that can reduce.
    pub(crate) const fn plain(reduce_op: polyrank::ReduceOp) -> ReduceOp {
        ReduceOp { reduce_op, is_bare: false, reduction: None, original: None }
    }

    /// The name of an operator whose factor, or function, is not known yet.
    pub(crate) const fn bare(reduce_op: polyrank::ReduceOp) -> ReduceOp {
        ReduceOp { reduce_op, is_bare: true, reduction: None, original: None }
    }

    /// The core's operator.
    pub(crate) fn get(&self) -> PyResult<polyrank::ReduceOp> {
        if self.is_bare {
            let message = match self.reduce_op {
                polyrank::ReduceOp::Custom(_) => {
                    "ReduceOp.CUSTOM needs its function; use ReduceOp.custom(function)"
                }
                _ => "ReduceOp.PREMUL_SUM needs its factor; use premul_sum(factor)",
            };
            return Err(Python::attach(|py| invalid_type(py, message)));
        }
        Ok(self.reduce_op)
    }
}

impl ReduceOp {
    /// Whether it is a function of the program.
    pub(crate) fn is_function(&self) -> bool {
        self.python_function().is_some()
    }

    /// How many prepared operations have core's handle on the function, if it is one.
    pub(crate) fn parts(&self) -> Option<&AtomicUsize> {
        self.python_function().map(|function| &function.parts)
    }

    fn python_function(&self) -> Option<&PythonFunction> {
        match &self.original {
            Some(original) => original.get().python_function(),
            None => self.reduction.as_ref()?.kept(),
        }
    }
}

#[pymethods]
impl ReduceOp {
    /// Another name for an operator: of an operator or of its number.
    #[new]
    fn new(op: &Bound<'_, PyAny>) -> PyResult<ReduceOp> {
        if let Ok(same) = op.cast::<ReduceOp>() {
            let ReduceOp { reduce_op, is_bare, ref original, .. } = *same.get();
            let original = original.as_ref().unwrap_or(same.as_unbound()).clone_ref(op.py());
            let original = Some(original).filter(|it| it.get().is_function());
            return Ok(ReduceOp { reduce_op, is_bare, reduction: None, original });
        }
        let number = op.extract::<u8>().map_err(|_| {
            PyTypeError::new_err("ReduceOp(op): op must be a ReduceOp or its number")
        })?;
        ReduceOp::ALL.into_iter().find(|known| known.reduce_op.code() == number).ok_or_else(|| {
            PyValueError::new_err(format!("ReduceOp({number}): no operator has this number"))
        })
    }

    /// Each rank's elements times `factor`, then the sum.
    #[staticmethod]
    #[pyo3(name = "premul_sum")]
    fn with_factor(factor: &Bound<'_, PyAny>) -> PyResult<ReduceOp> {
        premul_sum(factor)
    }

    /// `function(a, b)` of whole arrays, which returns their combination.
    #[staticmethod]
    #[pyo3(signature = (function, *, commute = false))]
    fn custom(function: &Bound<'_, PyAny>, commute: bool) -> PyResult<ReduceOp> {
        if !function.is_callable() {
            let given = function.get_type().name()?;
            let message =
                format!("ReduceOp.custom(): argument 'function' must be callable, not {given}");
            return Err(invalid_type(function.py(), message));
        }
        let function = PythonFunction::new(function, commute);
        let reduction = function.into_reduction();
        let reduce_op = reduction.op();
        let reduction = Some(reduction);
        Ok(ReduceOp { reduce_op, is_bare: false, reduction, original: None })
    }

    /// The function of `custom(function)`, else None.
    #[getter]
    fn function(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.python_function().map(|it| it.function.clone_ref(py))
    }

    /// What `custom` was told, else None.
    #[getter]
    fn commute<'py>(&self, py: Python<'py>) -> Option<Borrowed<'py, 'py, PyBool>> {
        self.python_function().map(|it| PyBool::new(py, it.commute))
    }

    /// `SUM`, `AVG`, …
    #[getter]
    fn name(&self) -> &'static str {
        self.reduce_op.name()
    }

    /// The number, which is c10d's.
    #[getter]
    fn value(&self) -> u8 {
        self.reduce_op.code()
    }

    /// The operator itself; there for c10d's callers.
    #[getter]
    fn op(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.original)?;
        let (Some(reduction), Some(known)) = (&self.reduction, self.python_function()) else {
            return Ok(());
        };
        // An operation in flight calls the function.
        let parts = || 1 + known.parts.load(Ordering::Relaxed);
        let is_alone = known.is_alone.get(|| reduction.clones() == parts());
        if is_alone { visit.call(&known.function) } else { Ok(()) }
    }

    /// The factor of `premul_sum(factor)`, else None.
    #[getter]
    fn factor(&self) -> Option<f64> {
        match self.reduce_op {
            polyrank::ReduceOp::PremulSum(factor) if !self.is_bare => Some(factor),
            _ => None,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let function = self.function(py).map(|it| it.bind(py).repr());
        match (self.factor(), function) {
            (Some(factor), _) => format!("premul_sum({factor})"),
            (_, Some(Ok(function))) => format!("ReduceOp.custom({function})"),
            _ => format!("<ReduceOp.{}: {}>", self.name(), self.value()),
        }
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<ReduceOp>().is_ok_and(|other| other.get() == self)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let number = match self.reduce_op {
            polyrank::ReduceOp::Custom(op) => op.number(),
            _ => 0,
        };
        (self.value(), self.factor().map(f64::to_bits), number).hash(&mut hasher);
        hasher.finish()
    }

    fn __int__(&self) -> u8 {
        self.value()
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let py = slf.py();
        if slf.get().is_function() {
            return Err(invalid_type(py, "a custom operator cannot be pickled"));
        }
        Ok(match slf.get().factor() {
            Some(factor) => {
                let maker = slf.py().import("polyrank")?.getattr("premul_sum")?;
                (maker.unbind(), (factor,).into_pyobject(py)?.into_any().unbind())
            }
            None => {
                let class = slf.get_type().into_any().unbind();
                (class, (slf.get().value(),).into_pyobject(py)?.into_any().unbind())
            }
        })
    }
}

/// Each rank's elements times `factor`, then the sum.
#[pyfunction]
pub(crate) fn premul_sum(factor: &Bound<'_, PyAny>) -> PyResult<ReduceOp> {
    let Ok(number) = factor.extract::<f64>() else {
        let given = factor.get_type().name()?;
        let message = format!("premul_sum(): argument 'factor' must be float, not {given}");
        return Err(invalid_type(factor.py(), message));
    };
    Ok(ReduceOp::from(polyrank::ReduceOp::PremulSum(number)))
}

/// The type of a tensor's elements: `DType("f32")`.
#[pyclass(frozen, eq, hash, module = "polyrank", from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DType(pub(crate) polyrank::DType);

#[pymethods]
impl DType {
    /// The dtype of a name: `f32`, `complex64`, …
    #[new]
    fn new(name: &Bound<'_, PyString>) -> PyResult<DType> {
        let name = name.to_str()?;
        polyrank::DType::ALL.into_iter().find(|dtype| dtype.name() == name).map(DType).ok_or_else(
            || {
                let known = polyrank::DType::ALL.map(polyrank::DType::name).join(", ");
                PyValueError::new_err(format!(
                    "no dtype is called '{name}'; expected one of {known}"
                ))
            },
        )
    }

    /// The name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size_bytes()
    }

    fn __repr__(&self) -> String {
        format!("DType({:?})", self.0.name())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, (&'static str,)) {
        (slf.get_type().into_any().unbind(), (slf.get().0.name(),))
    }
}
