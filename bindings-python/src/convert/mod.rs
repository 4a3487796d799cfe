//! Between Python and the core: arguments in, results and errors out.
//!
//! `unsafe` stands here only (`buffer`, `dlpack`, `layout`, `lease`): the other rooms of this crate
//! get tensors that are sound to use from any thread, whatever Python does meanwhile.

mod buffer;
mod dlpack;
mod kind;
mod layout;
mod lease;
mod tensor;
mod value;

pub(crate) use lease::releasing;
pub(crate) use value::Foreigns;

use pyo3::prelude::*;
pub(crate) fn probe(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    releasing(py, || {
        let mut f = Foreigns::default();
        let v = value::value(object, &mut f)?;
        Ok(format!("{v:?}"))
    })
}
