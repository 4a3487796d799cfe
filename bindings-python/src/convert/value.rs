//! Python values -> the resolver's neutral values. Knows nothing of methods and overloads.

use std::time::Duration;

use polyrank::Tensor;
use polyrank::calls::{Foreign, Value};
use pyo3::exceptions::{PyException, PyOverflowError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyRange, PyString, PyTuple};

use super::answer::timedelta;
use super::exception::{invalid, invalid_type};
use super::kind::{Kind, kind_of};
use super::tensor::tensor_of_kind;
use crate::record::Record;
use crate::reduce_op::{DType, ReduceOp};

/// Lists inside lists inside lists: as deep as a mesh may be that is given so. A list may contain
/// itself, several times.
const DEEPEST_LIST: usize = 8;
/// More ranks than any group has; a longer range is not a list of ranks.
const MAX_RANGE: usize = 1 << 24;

/// What stands after the values of one call and only Python knows: tensors' objects, so that they
/// can be handed back, and values that the resolver only passes through.
#[derive(Default)]
pub(crate) struct OpaqueObjects<'py> {
    objects: Vec<Bound<'py, PyAny>>,
    tensors: Vec<(Tensor, Bound<'py, PyAny>)>,
}

impl<'py> OpaqueObjects<'py> {
    /// The object of [`Value::Foreign`].
    pub(crate) fn object(&self, slot: usize) -> Option<&Bound<'py, PyAny>> {
        self.objects.get(slot)
    }

    /// All objects, by slot.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Bound<'py, PyAny>> {
        self.objects.iter()
    }

    /// The object whose memory `tensor` is. Two objects that are the same elements of the same
    /// memory are as good as each other.
    pub(crate) fn object_of(&self, tensor: &Tensor) -> Option<&Bound<'py, PyAny>> {
        let is_it = |other: &Tensor| {
            other.region().same_memory(tensor.region())
                && other.shape() == tensor.shape()
                && other.dtype() == tensor.dtype()
        };
        self.tensors.iter().find(|(other, _)| is_it(other)).map(|(_, object)| object)
    }

    /// All tensors, with their objects.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&Tensor, &Bound<'py, PyAny>)> {
        self.tensors.iter().map(|(tensor, object)| (tensor, object))
    }

    fn keep(
        &mut self,
        object: &Bound<'py, PyAny>,
        interfaces: &'static [&'static str],
    ) -> PyResult<Value> {
        let type_name = object.get_type().name()?.to_str()?.to_owned();
        let slot = self.objects.len();
        self.objects.push(object.clone());
        Ok(Value::Foreign(Foreign { type_name, interfaces, callable: object.is_callable(), slot }))
    }
}

/// The neutral value of `object`.
pub(super) fn value<'py>(
    object: &Bound<'py, PyAny>,
    opaque_objects: &mut OpaqueObjects<'py>,
) -> PyResult<Value> {
    value_at_depth(object, opaque_objects, 0)
}

/// `object` as it is: only Python knows what it is.
pub(super) fn opaque<'py>(
    object: &Bound<'py, PyAny>,
    opaque_objects: &mut OpaqueObjects<'py>,
) -> PyResult<Value> {
    if object.is_none() { Ok(Value::None) } else { opaque_objects.keep(object, &[]) }
}

fn value_at_depth<'py>(
    object: &Bound<'py, PyAny>,
    opaque_objects: &mut OpaqueObjects<'py>,
    depth: usize,
) -> PyResult<Value> {
    if let Some(plain) = plain_value(object)? {
        return Ok(plain);
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list_value(object.py(), list.iter(), opaque_objects, depth).map(Value::List);
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return list_value(object.py(), tuple.iter(), opaque_objects, depth).map(Value::Tuple);
    }
    let kind = kind_of(object);
    Ok(match kind {
        Kind::Buffer | Kind::Exchange(_) | Kind::Dlpack | Kind::BufferOrDlpack => {
            match tensor_of_kind(object, kind)? {
                Some(tensor) => {
                    opaque_objects.tensors.push((tensor.clone(), object.clone()));
                    Value::Tensor(tensor)
                }
                None => opaque_objects.keep(object, &[])?,
            }
        }
        Kind::Timedelta => Value::Duration(duration(object)?),
        Kind::Scalar => {
            let item = object.call_method0(intern!(object.py(), "item"))?;
            match plain_value(&item)? {
                Some(plain) => plain,
                None => opaque_objects.keep(object, &[])?,
            }
        }
        Kind::Index => integer(&object.call_method0(intern!(object.py(), "__index__"))?)?,
        Kind::Int => match exact_integer(object)? {
            Some(number) => Value::Int(number),
            None => opaque_objects.keep(object, &[])?,
        },
        Kind::Range => range_value(object, opaque_objects)?,
        Kind::ReduceOp => Value::ReduceOp(object.cast::<ReduceOp>()?.get().get()?),
        Kind::DType => Value::DType(object.cast::<DType>()?.get().0),
        Kind::Record => record_value(object, opaque_objects, depth)?,
        Kind::Foreign(interfaces) => opaque_objects.keep(object, interfaces)?,
    })
}

/// The value of an object of a built-in type that is not a collection.
fn plain_value(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    Ok(Some(if object.is_none() {
        Value::None
    } else if let Ok(truth) = object.cast::<PyBool>() {
        Value::Bool(truth.is_true())
    } else if object.is_instance_of::<PyInt>() {
        integer(object)?
    } else if object.is_instance_of::<PyFloat>() {
        Value::Float(object.extract()?)
    } else if let Ok(text) = object.cast::<PyString>() {
        Value::Str(text.to_str()?.to_owned())
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        Value::Bytes(bytes.as_bytes().to_vec())
    } else {
        return Ok(None);
    }))
}

fn integer(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    object.extract().map(Value::Int).map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            invalid(object.py(), format!("{object} does not fit in 64 bits"))
        } else {
            error
        }
    })
}

/// The integer that `object` is by `__int__`: exactly that, if it may have another value as well.
fn exact_integer(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = object.py();
    let found = || -> PyResult<Option<i64>> {
        let number = py.get_type::<PyInt>().call1((object,))?;
        let is_number = object.get_type().hasattr(intern!(py, "__float__"))?;
        let is_exact = !is_number || number.eq(object)?;
        Ok(if is_exact { number.extract().ok() } else { None })
    };
    match found() {
        // It is not an integer then. What ends a program, as Ctrl-C does, is not an answer.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        found => found,
    }
}

fn list_value<'py>(
    py: Python<'py>,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    opaque_objects: &mut OpaqueObjects<'py>,
    depth: usize,
) -> PyResult<Vec<Value>> {
    if depth >= DEEPEST_LIST {
        let message = format!("lists are nested deeper than {DEEPEST_LIST} levels");
        return Err(invalid_type(py, message));
    }
    items.map(|item| value_at_depth(&item, opaque_objects, depth + 1)).collect()
}

/// The members of an options record.
fn record_value<'py>(
    object: &Bound<'py, PyAny>,
    opaque_objects: &mut OpaqueObjects<'py>,
    depth: usize,
) -> PyResult<Value> {
    let record = object.cast::<Record>()?.get();
    let members = record.members(object.py());
    let values = members.iter().map(|member| value_at_depth(member, opaque_objects, depth + 1));
    Ok(Value::Record(record.record_type(), values.collect::<PyResult<_>>()?))
}

fn range_value<'py>(
    object: &Bound<'py, PyAny>,
    opaque_objects: &mut OpaqueObjects<'py>,
) -> PyResult<Value> {
    let range = object.cast::<PyRange>()?;
    if range.len()? > MAX_RANGE {
        return opaque_objects.keep(object, &[]);
    }
    let values = object.try_iter()?.map(|item| integer(&item?));
    Ok(Value::List(values.collect::<PyResult<_>>()?))
}

fn duration(object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    object.extract().map_err(|_| {
        let seconds = object.call_method0("total_seconds").map(|seconds| seconds.to_string());
        let given = seconds.unwrap_or_else(|_| object.to_string());
        let message = format!("a timeout must not be negative, not {given} s");
        invalid(object.py(), message)
    })
}

/// The object of a default value of the IDL: no tensors, no objects of the language.
pub(crate) fn object_of_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Str(text) => text.into_pyobject(py)?.into_any(),
        Value::Duration(duration) => timedelta(py, *duration)?,
        Value::ReduceOp(reduce_op) => Bound::new(py, ReduceOp::from(*reduce_op))?.into_any(),
        Value::DType(dtype) => Bound::new(py, DType(*dtype))?.into_any(),
        Value::List(items) => {
            let items = items.iter().map(|item| object_of_value(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        // A class of this module, with all members at their defaults.
        Value::Record(record, _) => {
            py.import(intern!(py, "polyrank._core"))?.getattr(record.name)?.call0()?
        }
        _ => py.None().into_bound(py),
    })
}
