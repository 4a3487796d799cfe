//! Where ranks meet: by URL, and the user's own kinds of URL.

use std::sync::Arc;

use polyrank::Error;
use polyrank::calls::Answer as Answered;
use polyrank::calls::parameters::distributed::*;
use polyrank::rendezvous::{Rendezvous, RendezvousRequest};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::Answer;
use crate::classes::Store;
use crate::convert::{Call, CoreResult, answer, nothing, raise, run, store_of, timedelta};
use crate::ending::attach;

/// Meets the other ranks at a URL, once: yields the store, the rank and the world size.
pub(crate) fn rendezvous<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    let met = run(py, call.invocation("DISTRIBUTED_RENDEZVOUS", None)?)?;
    let triple = match met {
        Answered::Record(members) => {
            let members = members.into_iter().map(|(_, member)| answer(py, member));
            PyTuple::new(py, members.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        other => answer(py, other)?,
    };
    Ok(PyList::new(py, [triple])?.try_iter()?.into_any())
}

/// Adds a URL scheme.
pub(crate) fn register_rendezvous_handler<'py>(
    py: Python<'py>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let scheme: String = call.take(register_rendezvous_handler::SCHEME)?;
    let Some(handler) = call.object(register_rendezvous_handler::HANDLER) else {
        return nothing(py);
    };
    let handler = handler.clone().unbind();
    // An exception of the handler cannot go through the core as it is.
    let meet = move |request: RendezvousRequest<'_>| {
        let failed = |message| Err(Error::Rendezvous { message });
        match attach(|py| met(handler.bind(py), request)) {
            Some(Ok(met)) => Ok(met),
            Some(Err(error)) => failed(format!("the rendezvous handler raised {error}")),
            None => failed("the interpreter ends".to_owned()),
        }
    };
    polyrank::rendezvous::register_rendezvous_handler(&scheme, Arc::new(meet)).or_raise(py)?;
    nothing(py)
}

/// What the first triple that a handler yields says.
fn met(handler: &Bound<'_, PyAny>, request: RendezvousRequest<'_>) -> PyResult<Rendezvous> {
    let number = |given: Option<u32>| given.map_or(-1, i64::from);
    let (rank, world_size) = (number(request.rank), number(request.world_size));
    let timeout = timedelta(handler.py(), request.timeout)?;
    let triples = handler.call1((request.url, timeout, rank, world_size))?;
    let triple = triples.try_iter()?.next().ok_or_else(|| {
        let message = "the rendezvous handler yields nothing".to_owned();
        raise(handler.py(), &Error::Rendezvous { message })
    })??;
    let (store, rank, world_size): (Bound<'_, Store>, u32, u32) = triple.extract()?;
    Rendezvous::new(store_of(&store)?.get().clone(), rank, world_size).or_raise(handler.py())
}
