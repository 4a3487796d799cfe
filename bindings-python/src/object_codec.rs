//! Python objects as CBOR and back, without running anybody's code: what a rank in any language
//! reads. Lists, tuples, sets, dicts, complex numbers and NumPy arrays come back as what they were;
//! so do the types that `polyrank._objects` knows, which others see as plain values. Knows no
//! operations.

use std::collections::HashMap;

use ciborium::Value;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyTuple,
};

/// How deep objects may be nested: a list may contain itself, and readers have limits of their own.
const DEEPEST: usize = 100;

/// How many keys of a map, or items of a set, may have one hash.
const MAX_OF_ONE_HASH: usize = 64;

/// Tags of RFC 8949 and of the registry that it names.
mod tag {
    /// A multi-dimensional array: its shape, its elements row by row.
    pub(super) const ARRAY: u64 = 40;
    /// A set.
    pub(super) const SET: u64 = 258;
    /// A complex number: two parts.
    pub(super) const COMPLEX: u64 = 43000;
    /// A tuple of Python: not registered; the letters `pytu`.
    pub(super) const TUPLE: u64 = 0x7079_7475;
}

/// NumPy's element types and the tags of their arrays in RFC 8746, little-endian. Of 128 bits there
/// is none: what NumPy stores in them, differs between machines.
const ELEMENTS: [(&str, u64); 11] = [
    ("|u1", 64),
    ("<u2", 69),
    ("<u4", 70),
    ("<u8", 71),
    ("|i1", 72),
    ("<i2", 77),
    ("<i4", 78),
    ("<i8", 79),
    ("<f2", 84),
    ("<f4", 85),
    ("<f8", 86),
];

/// The encoding of `object`.
pub(crate) fn encode(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let value = value_of(object, 0)?;
    ciborium::into_writer(&value, &mut bytes)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(bytes)
}

/// The object that `bytes` encode.
pub(crate) fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let value: Value = ciborium::from_reader(bytes)
        .map_err(|error| PyValueError::new_err(format!("no CBOR came: {error}")))?;
    object_of(py, &value)
}

fn value_of(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEEPEST {
        let message = format!(
            "objects are nested deeper than {DEEPEST} levels, of which one of a registered type \
             takes two; send a list of its parts, that name each other by their places"
        );
        return Err(PyValueError::new_err(message));
    }
    // Exact types only: an instance of a subclass would come back as something else.
    if object.is_none() {
        Ok(Value::Null)
    } else if let Ok(truth) = object.cast_exact::<PyBool>() {
        Ok(Value::Bool(truth.is_true()))
    } else if let Ok(number) = object.cast_exact::<PyInt>() {
        integer(number)
    } else if let Ok(number) = object.cast_exact::<PyFloat>() {
        Ok(Value::Float(number.value()))
    } else if let Ok(text) = object.cast_exact::<PyString>() {
        Ok(Value::Text(text.to_str()?.to_owned()))
    } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Ok(Value::Bytes(bytes.as_bytes().to_vec()))
    } else if let Ok(list) = object.cast_exact::<PyList>() {
        array(list.iter(), depth)
    } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        Ok(tagged(tag::TUPLE, array(tuple.iter(), depth)?))
    } else if let Ok(set) = object.cast_exact::<PySet>() {
        Ok(tagged(tag::SET, array(set.iter(), depth)?))
    } else if let Ok(dict) = object.cast_exact::<PyDict>() {
        let pairs = dict.iter();
        let pairs = pairs
            .map(|(key, value)| Ok((value_of(&key, depth + 1)?, value_of(&value, depth + 1)?)));
        Ok(Value::Map(pairs.collect::<PyResult<_>>()?))
    } else if let Ok(number) = object.cast_exact::<PyComplex>() {
        let parts = vec![Value::Float(number.real()), Value::Float(number.imag())];
        Ok(tagged(tag::COMPLEX, Value::Array(parts)))
    } else {
        of_other_type(object, depth)
    }
}

fn array<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> PyResult<Value> {
    let values = items.map(|item| value_of(&item, depth + 1));
    Ok(Value::Array(values.collect::<PyResult<_>>()?))
}

fn tagged(tag: u64, value: Value) -> Value {
    Value::Tag(tag, Box::new(value))
}

/// An integer; beyond 64 bits as bytes, of which a negative one is -1 - n.
fn integer(number: &Bound<'_, PyInt>) -> PyResult<Value> {
    let wide = number.extract::<i128>().ok();
    if let Some(small) = wide.and_then(|it| ciborium::value::Integer::try_from(it).ok()) {
        return Ok(Value::Integer(small));
    }
    let py = number.py();
    let is_negative = number.lt(0)?;
    let rest = match is_negative {
        true => number.call_method0(intern!(py, "__invert__"))?,
        false => number.clone().into_any(),
    };
    let bits: usize = rest.call_method0(intern!(py, "bit_length"))?.extract()?;
    // The first bit stays free: ciborium reads negative numbers of up to 16 bytes as `i128`.
    let length = bits / 8 + 1;
    let bytes = rest.call_method1(intern!(py, "to_bytes"), (length, intern!(py, "big")))?;
    let tag = if is_negative { 3 } else { 2 };
    Ok(tagged(tag, Value::Bytes(bytes.extract()?)))
}

/// Arrays of NumPy, and what is registered; an error for all else.
fn of_other_type(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let class = object.get_type();
    if class.module()?.to_str()? == "numpy"
        && class.name()?.to_str()? == "ndarray"
        && let Some(array) = array_of_numpy(object, depth)?
    {
        return Ok(array);
    }
    static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let plain = PLAIN.import(object.py(), "polyrank._objects", "plain_value")?;
    let (tag, value): (u64, Bound<'_, PyAny>) = plain.call1((object,))?.extract()?;
    Ok(tagged(tag, value_of(&value, depth + 1)?))
}

/// An array of elements that other languages have; none of others.
fn array_of_numpy(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Value>> {
    let py = object.py();
    let shape: Vec<u64> = object.getattr(intern!(py, "shape"))?.extract()?;
    let element: String =
        object.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "str"))?.extract()?;
    let elements = match ELEMENTS.iter().find(|(name, _)| *name == element) {
        Some((_, tag)) => {
            let bytes = object.call_method0(intern!(py, "tobytes"))?;
            tagged(*tag, Value::Bytes(bytes.extract()?))
        }
        None if element == "|b1" => {
            let list = object.call_method0(intern!(py, "ravel"))?;
            value_of(&list.call_method0(intern!(py, "tolist"))?, depth + 1)?
        }
        None => return Ok(None),
    };
    let shape = Value::Array(shape.into_iter().map(Value::from).collect());
    Ok(Some(tagged(tag::ARRAY, Value::Array(vec![shape, elements]))))
}

fn object_of<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Integer(number) => i128::from(*number).into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Array(items) => PyList::new(py, objects_of(py, items)?)?.into_any(),
        Value::Map(pairs) => {
            let keys = pairs.iter().map(|(key, _)| object_of(py, key));
            let keys = keys.collect::<PyResult<Vec<_>>>()?;
            check_hashes(&keys)?;
            let dict = PyDict::new(py);
            for (key, (_, value)) in keys.iter().zip(pairs) {
                dict.set_item(key, object_of(py, value)?)?;
            }
            dict.into_any()
        }
        Value::Tag(tag, inner) => of_tagged(py, *tag, inner)?,
        // Nothing, and what later versions of CBOR's crate may know.
        _ => py.None().into_bound(py),
    })
}

/// Refuses keys, or items of a set, of which so many have one hash that finding one takes as long
/// as comparing it with all: the hashes of numbers are known, so that a peer could choose such.
fn check_hashes(keys: &[Bound<'_, PyAny>]) -> PyResult<()> {
    if keys.len() <= MAX_OF_ONE_HASH {
        return Ok(());
    }
    let mut counts: HashMap<isize, usize> = HashMap::with_capacity(keys.len());
    for key in keys {
        let hash = key.hash()?;
        let count = counts.entry(hash).or_default();
        *count += 1;
        if *count > MAX_OF_ONE_HASH {
            let message = format!(
                "more than {MAX_OF_ONE_HASH} keys of a map, or items of a set, came that have one \
                 hash; send a list of pairs, or of items"
            );
            return Err(PyValueError::new_err(message));
        }
    }
    Ok(())
}

/// As [`check_hashes`], for sets that Python makes.
#[pyfunction(name = "_check_hashes")]
pub(crate) fn check_hashes_of_list(items: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    check_hashes(&items)
}

fn objects_of<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    values.iter().map(|value| object_of(py, value)).collect()
}

fn of_tagged<'py>(py: Python<'py>, tag: u64, inner: &Value) -> PyResult<Bound<'py, PyAny>> {
    match (tag, inner) {
        (tag::TUPLE, Value::Array(items)) => {
            Ok(PyTuple::new(py, objects_of(py, items)?)?.into_any())
        }
        (tag::SET, Value::Array(items)) => {
            let items = objects_of(py, items)?;
            check_hashes(&items)?;
            Ok(PySet::new(py, items)?.into_any())
        }
        (tag::COMPLEX, Value::Array(parts)) => match parts.as_slice() {
            [Value::Float(real), Value::Float(imaginary)] => {
                Ok(PyComplex::from_doubles(py, *real, *imaginary).into_any())
            }
            _ => Err(PyValueError::new_err("a complex number must have two parts")),
        },
        (2 | 3, Value::Bytes(bytes)) => big_integer(py, tag == 3, bytes),
        (tag::ARRAY, Value::Array(parts)) => match parts.as_slice() {
            [shape, elements] => numpy_array(py, shape, elements),
            _ => Err(PyValueError::new_err("an array must have a shape and elements")),
        },
        // Of a tag that nobody here knows, the value says more than an error.
        (_, inner) => {
            static RESTORED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let restored = RESTORED.import(py, "polyrank._objects", "restored")?;
            restored.call1((tag, object_of(py, inner)?))
        }
    }
}

fn big_integer<'py>(py: Python<'py>, negative: bool, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let class = py.get_type::<PyInt>();
    let number = class.call_method1(intern!(py, "from_bytes"), (PyBytes::new(py, bytes), "big"))?;
    // -1 - n is the complement of n.
    if negative { number.call_method0(intern!(py, "__invert__")) } else { Ok(number) }
}

fn numpy_array<'py>(
    py: Python<'py>,
    shape: &Value,
    elements: &Value,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import(intern!(py, "numpy"))?;
    let flat = match elements {
        Value::Tag(tag, bytes) => {
            let element = ELEMENTS.iter().find(|(_, known)| known == tag);
            let (Some((element, _)), Value::Bytes(bytes)) = (element, &**bytes) else {
                return Err(PyValueError::new_err("an array of unknown elements came"));
            };
            let bytes = PyBytes::new(py, bytes);
            let view = numpy.call_method1(intern!(py, "frombuffer"), (bytes, *element))?;
            view.call_method0(intern!(py, "copy"))?
        }
        other => numpy.call_method1(intern!(py, "array"), (object_of(py, other)?, "|b1"))?,
    };
    flat.call_method1(intern!(py, "reshape"), (object_of(py, shape)?,))
}
