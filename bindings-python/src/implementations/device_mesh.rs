//! `DeviceMesh`: what core makes meshes of is any object of Python until somebody looks into it.

use polyrank::calls::parameters::device_mesh::*;
use polyrank::calls::parameters::distributed::init_device_mesh as init;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::Answer;
use crate::classes::{DeviceMesh, MadeByCore};
use crate::convert::{Call, CoreResult, answer, run};
use crate::device_mesh::current;

/// Makes a mesh of an array of ranks.
pub(crate) fn new(py: Python<'_>, mut call: Call<'_>) -> PyResult<PyClassInitializer<DeviceMesh>> {
    call.look_into(new::MESH)?;
    look_into_override(&mut call, new::BACKEND_OVERRIDE)?;
    DeviceMesh::made_of(py, run(py, call.invocation("DEVICE_MESH_NEW", None)?)?)
}

/// Makes a mesh of groups that exist.
pub(crate) fn from_group<'py>(py: Python<'py>, call: Call<'py>) -> Answer<'py> {
    answer(py, run(py, call.invocation("DEVICE_MESH_FROM_GROUP", None)?)?)
}

/// Makes a mesh of a shape.
pub(crate) fn init_device_mesh<'py>(py: Python<'py>, mut call: Call<'py>) -> Answer<'py> {
    look_into_override(&mut call, init::BACKEND_OVERRIDE)?;
    answer(py, run(py, call.invocation("DISTRIBUTED_INIT_DEVICE_MESH", None)?)?)
}

/// The mesh of the innermost `with` block.
pub(crate) fn current_device_mesh<'py>(py: Python<'py>, _call: Call<'py>) -> Answer<'py> {
    match current(py)? {
        Some(mesh) => Ok(mesh),
        None => answer(py, no_mesh().or_raise(py)?),
    }
}

fn no_mesh() -> polyrank::Result<polyrank::calls::Answer> {
    let mesh = polyrank::device_mesh::current_device_mesh()?;
    Ok(polyrank::calls::Answer::Object(polyrank::calls::Object::Mesh(mesh)))
}

/// Gives core the pairs of the dict.
fn look_into_override<'py>(call: &mut Call<'py>, index: usize) -> PyResult<()> {
    let Some(given) = call.object(index).cloned() else { return Ok(()) };
    match given.cast::<PyDict>() {
        Ok(dict) => call.give(index, &PyList::new(dict.py(), dict.items())?.into_any()),
        Err(_) => call.look_into(index),
    }
}
