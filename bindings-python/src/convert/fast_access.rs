//! Puts and gets of the usual shape: a contiguous NumPy array, a rank and an offset that are
//! numbers, in a window whose memory is mapped. They are over when the call returns. What they mean
//! is what the resolver finds; whatever is unusual goes there.

use polyrank::calls::Method;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};

use super::array::Array;
use super::detached::detached;
use super::exception::CoreResult;
use super::fast_call::{readable, writable};
use crate::classes::{TensorObjects, Window, Work};

/// Copies of more bytes let other threads of Python run meanwhile.
const MAX_HELD_BYTES: usize = 64 << 10;

/// The answer of `put` or `get`, which `method` is, if the call is of the usual shape. None if
/// nothing was done.
pub(crate) fn fast_access<'py>(
    window: &Bound<'py, Window>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Option<PyResult<Bound<'py, PyAny>>> {
    if keywords.is_some_and(|it| !it.is_empty()) || positional.len() != 3 {
        return None;
    }
    let (py, inner) = (window.py(), &window.get().inner);
    let object = positional.get_borrowed_item(0).ok()?;
    let array = Array::of(&object)?;
    let number = |place| positional.get_borrowed_item(place).ok()?.cast_exact::<PyInt>().ok();
    let peer = number(1)?.extract().ok()?;
    let offset = number(2)?.extract().ok()?;
    let mut objects = TensorObjects::default();
    let done = if method.name == "get" {
        let into = writable(&array)?;
        objects.outputs.push(Bound::clone(&object).unbind());
        within(py, array.bytes, || inner.get_at_once((array.dtype, into), peer, offset))?
    } else {
        let from = readable(&array);
        within(py, array.bytes, || inner.put_at_once((array.dtype, from), peer, offset))?
    };
    let work = done.or_raise(py).map(|work| Work::new(work, objects, inner.group().timeout()));
    Some(work.and_then(|work| work.into_object(py)))
}

/// Makes a copy of so many bytes, if it is one.
fn within<T: Send>(
    py: Python<'_>,
    bytes: usize,
    copy: impl FnOnce() -> Option<polyrank::Result<T>> + Send,
) -> Option<polyrank::Result<T>> {
    match bytes <= MAX_HELD_BYTES {
        true => copy(),
        false => detached(py, || Ok(copy())).ok()?,
    }
}
