//! What methods of a store that is written in Python return, checked. Knows nothing of why they
//! are called.

use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyString};

/// What an answer is not, as the end of "`T.get` …".
pub(super) type Wrong = String;

/// The value of an answer.
pub(super) type Reading<T> = Result<T, Wrong>;

/// That an answer is no such thing.
fn expected<T>(what: &str, answer: &Bound<'_, PyAny>) -> Reading<T> {
    let came = answer.get_type().name().map_or_else(|_| "another".to_owned(), |it| it.to_string());
    Err(format!("must return {what}, not {came}"))
}

/// That a coroutine came, or whatever else is to be awaited; nothing for any other answer.
pub(super) fn unless_awaitable(answer: &Bound<'_, PyAny>) -> Reading<()> {
    let py = answer.py();
    // What is asked most has no such method: a look at the class is enough for it.
    if answer.is_none() || !answer.get_type().hasattr(intern!(py, "__await__")).unwrap_or(false) {
        return Ok(());
    }
    let came = answer.get_type().name().map_or_else(|_| "one".to_owned(), |it| it.to_string());
    if came != "coroutine" {
        return Err(format!("returns an awaitable, {came}; a store's methods return their value"));
    }
    // Nobody awaits it: closed, it does not complain of that as well.
    answer.call_method0(intern!(py, "close")).ok();
    Err("is `async def`; a store's methods return their value".to_owned())
}

/// Whatever came.
#[allow(clippy::unnecessary_wraps, reason = "it is one of several readings")]
pub(super) fn nothing(_: &Bound<'_, PyAny>) -> Reading<()> {
    Ok(())
}

/// A value of the store.
pub(super) fn bytes(answer: &Bound<'_, PyAny>) -> Reading<Vec<u8>> {
    contents(answer).map_or_else(|| expected("bytes or str", answer), Ok)
}

/// Values of the store, one for each of `count` keys.
pub(super) fn values(count: usize, answer: &Bound<'_, PyAny>) -> Reading<Vec<Vec<u8>>> {
    const WHAT: &str = "a list of bytes or str";
    if contents(answer).is_some() {
        return expected(WHAT, answer);
    }
    let Ok(items) = answer.try_iter().and_then(Iterator::collect::<PyResult<Vec<_>>>) else {
        return expected(WHAT, answer);
    };
    if items.len() != count {
        let came = items.len();
        let values = if count == 1 { "value" } else { "values" };
        return Err(format!("must return {count} {values}, one for each key, not {came}"));
    }
    let value =
        |item| contents(item).map_or_else(|| expected("bytes or str in its list", item), Ok);
    items.iter().map(value).collect()
}

/// A list of keys.
pub(super) fn keys(answer: &Bound<'_, PyAny>) -> Reading<Vec<String>> {
    answer.extract().or_else(|_| expected("a list of str", answer))
}

/// A truth value, of Python or NumPy: that of anything else would be true too often.
pub(super) fn truth(answer: &Bound<'_, PyAny>) -> Reading<bool> {
    answer.extract().or_else(|_| expected("bool", answer))
}

/// An integer.
pub(super) fn integer(answer: &Bound<'_, PyAny>) -> Reading<i64> {
    if answer.is_instance_of::<PyBool>() {
        return expected("int", answer);
    }
    answer.extract().or_else(|error: PyErr| match answer.str() {
        Ok(number) if error.is_instance_of::<PyOverflowError>(answer.py()) => {
            Err(format!("must return an integer of 64 bits, not {number}"))
        }
        _ => expected("int", answer),
    })
}

/// The bytes of text or of a buffer of bytes.
fn contents(answer: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = answer.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    if let Ok(text) = answer.cast::<PyString>() {
        return text.to_str().ok().map(|text| text.as_bytes().to_vec());
    }
    if let Ok(bytes) = answer.cast::<PyByteArray>() {
        return Some(bytes.to_vec());
    }
    let py = answer.py();
    let view = py.import(intern!(py, "builtins")).ok()?.getattr(intern!(py, "memoryview")).ok()?;
    let view = view.call1((answer,)).ok()?;
    let format: String = view.getattr(intern!(py, "format")).ok()?.extract().ok()?;
    // Elements of more than a byte are numbers, and have no one way to be bytes.
    if !matches!(&*format, "B" | "b" | "c") {
        return None;
    }
    let bytes = view.call_method0(intern!(py, "tobytes")).ok()?;
    bytes.cast::<PyBytes>().ok().map(|bytes| bytes.as_bytes().to_vec())
}
