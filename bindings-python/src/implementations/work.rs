//! `Work`.

use std::time::Duration;

use polyrank::calls::Answer as Lost;
use polyrank::calls::parameters::work::*;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::Answer;
use crate::classes::Work;
use crate::convert::{
    Call, answer, exception as exception_of, give, invalid, nothing, releasing, timedelta,
};
use crate::future::{self, Source};

/// Waits until the operation is complete; true.
pub(crate) fn wait<'py>(work: &Bound<'py, Work>, mut call: Call<'py>) -> Answer<'py> {
    let timeout: Option<Duration> = call.take(wait::TIMEOUT)?;
    if work.get().inner.is_success() {
        return give(work.py(), true);
    }
    releasing(work.py(), || work.get().wait(work.py(), timeout))?;
    give(work.py(), true)
}

/// Whether the operation is complete, well or not. Moves it on.
pub(crate) fn is_completed<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    let inner = &work.get().inner;
    let completed = releasing(work.py(), || work.py().detach(|| inner.is_completed()));
    give(work.py(), completed)
}

/// Whether the operation is complete, and did not fail.
pub(crate) fn is_success<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    let inner = &work.get().inner;
    let succeeded = releasing(work.py(), || work.py().detach(|| inner.is_success()));
    give(work.py(), succeeded)
}

/// What the operation failed with, if it did.
pub(crate) fn exception<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    match work.get().inner.error() {
        Some(error) => exception_of(work.py(), &error),
        None => nothing(work.py()),
    }
}

/// A future of the output tensors.
pub(crate) fn get_future<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    let source = Source::Outputs(work.clone().unbind());
    future::object(work.py(), source)
}

/// A future of how the operation ended.
pub(crate) fn get_future_result<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    let source = Source::Status(work.clone().unbind());
    future::object(work.py(), source)
}

/// The output tensors, in one flat list.
pub(crate) fn result<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    Ok(work.get().outputs(work.py())?.into_any())
}

/// The rank, in the group, that sent what was received.
pub(crate) fn source_rank<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    match work.get().inner.source_rank() {
        Some(rank) => give(work.py(), rank),
        None => Err(invalid(
            work.py(),
            "sourceRank() may only be called on work objects that correspond to a recv or \
             recv-from-any call that is complete.",
        )),
    }
}

/// Orders the device's current stream after the operation: without a device, waits.
pub(crate) fn synchronize<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    releasing(work.py(), || work.get().wait(work.py(), None))?;
    nothing(work.py())
}

/// This handle.
pub(crate) fn boxed<'py>(work: &Bound<'py, Work>, _call: Call<'py>) -> Answer<'py> {
    Ok(work.clone().into_any())
}

/// The handle that `boxed` gave.
pub(crate) fn unbox<'py>(_py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let work = call.instance::<Work>(unbox::BOXED)?;
    let work = work.ok_or_else(|| PyTypeError::new_err("unbox() takes a Work"))?;
    Ok(work.into_any())
}

/// The number of the operation in its group.
pub(crate) fn sequence<'py>(work: &Bound<'py, Work>) -> Answer<'py> {
    give(work.py(), work.get().inner.sequence())
}

/// How long the operation took, or has taken so far.
pub(crate) fn duration<'py>(work: &Bound<'py, Work>) -> Answer<'py> {
    give(work.py(), work.get().inner.duration())
}

/// What compression lost.
pub(crate) fn compression_error<'py>(work: &Bound<'py, Work>) -> Answer<'py> {
    answer(work.py(), Lost::of_compression(work.get().inner.compression_error()))
}

/// The limit of the operation.
pub(crate) fn timeout<'py>(work: &Bound<'py, Work>) -> Answer<'py> {
    timedelta(work.py(), work.get().timeout)
}
