//! Where ranks meet: by URL, and the user's own kinds of URL.

use std::sync::Arc;
use std::time::Duration;

use polyrank::Error;
use polyrank::rendezvous::{Rendezvous, RendezvousRequest};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::classes::Store;
use crate::convert::{Call, detached, give, raise};

type Answer<'py> = PyResult<Bound<'py, PyAny>>;

/// Meets the other ranks at a URL, once.
pub(crate) fn rendezvous<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    let url: String = call.take(0)?;
    let (rank, size): (i32, i32) = (call.take(1)?, call.take(2)?);
    let timeout: Option<Duration> = call.take(3)?;
    let timeout = timeout.unwrap_or(polyrank::DEFAULT_TIMEOUT);
    let (rank, size) = (u32::try_from(rank).ok(), u32::try_from(size).ok());
    let met = detached(py, || polyrank::rendezvous::rendezvous(&url, rank, size, timeout))?;
    let store = give(py, met.store)?;
    let triple = (store, met.rank, met.world_size).into_pyobject(py)?;
    Ok(PyList::new(py, [triple])?.try_iter()?.into_any())
}

/// Adds a URL scheme.
pub(crate) fn register_rendezvous_handler<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let scheme: String = call.take(0)?;
    let Some(handler) = call.object(1) else { return give(py, ()) };
    let handler = handler.clone().unbind();
    // An exception of the handler cannot go through the core as it is.
    let meet = move |request: RendezvousRequest<'_>| {
        Python::attach(|py| met(handler.bind(py), request)).map_err(|error| Error::Rendezvous {
            message: format!("the rendezvous handler raised {error}"),
        })
    };
    let registered = polyrank::rendezvous::register_rendezvous_handler(&scheme, Arc::new(meet));
    give(py, registered)
}

/// What the first triple that a handler yields says.
fn met(handler: &Bound<'_, PyAny>, request: RendezvousRequest<'_>) -> PyResult<Rendezvous> {
    let number = |given: Option<u32>| given.map_or(-1, i64::from);
    let (rank, world_size) = (number(request.rank), number(request.world_size));
    let triples = handler.call1((request.url, request.timeout, rank, world_size))?;
    let triple = triples.try_iter()?.next().ok_or_else(|| {
        let message = "the rendezvous handler yields nothing".to_owned();
        raise(handler.py(), &Error::Rendezvous { message })
    })??;
    let (store, rank, world_size): (Bound<'_, Store>, u32, u32) = triple.extract()?;
    let store = store.get().inner.clone();
    Rendezvous::new(store, rank, world_size).map_err(|error| raise(handler.py(), &error))
}
