//! polyrank for Python: the compiled part of the package. Methods are made from the IDL
//! (`generated`); what is written by hand is the conversion of values (`convert`), and what only
//! Python has (`awaiting`, `future`, `record`, `implementations`).

mod awaiting;
mod classes;
mod coalescing;
mod collector;
mod comm_name;
mod context_variable;
mod convert;
mod current;
mod custom_backend;
mod custom_reduction;
mod device_mesh;
mod ending;
mod future;
mod generated;
mod held_ranks;
mod hooks;
mod implementations;
mod log;
mod manager;
mod object_codec;
mod python_store;
mod record;
mod reduce_op;
mod waiting;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The compiled part of polyrank.
#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::reduce_op::{DType, ReduceOp, premul_sum};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Set, not added: what is added is part of `__all__`.
        module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("default_pg_timeout", polyrank::DEFAULT_TIMEOUT)?;
        module.setattr("_NON_GROUP_MEMBER", convert::non_group_member(module.py())?)?;
        module.setattr("_Memory", module.py().get_type::<convert::Memory>())?;
        let devices = wrap_pyfunction!(custom_backend::backend_devices, module)?;
        module.setattr("_backend_devices", devices)?;
        module.setattr("_command", wrap_pyfunction!(command, module)?)?;
        let check_hashes = wrap_pyfunction!(object_codec::check_hashes_of_list, module)?;
        module.setattr("_check_hashes", check_hashes)?;
        module.setattr("_begin_coalescing", wrap_pyfunction!(coalescing::begin, module)?)?;
        module.setattr("_end_coalescing", wrap_pyfunction!(coalescing::end, module)?)?;
        module.setattr("_is_log_set", wrap_pyfunction!(log::is_set, module)?)?;
        module.setattr("_flush_log", wrap_pyfunction!(log::flush, module)?)?;
        module.setattr("_set_log_reader", wrap_pyfunction!(log::set_reader, module)?)?;
        module.setattr("_set_call_site_sources", wrap_pyfunction!(log::set_call_sites, module)?)?;
        module.setattr("_stall_report_s", wrap_pyfunction!(log::stall_report_s, module)?)?;
        module.setattr("_hold", wrap_pyfunction!(held_ranks::hold, module)?)?;
        log::begin();
        polyrank_replicas::calls::install();
        ending::watch(module.py())?;
        collector::watch(module.py())?;
        generated::add(module)
    }
}

/// The `polyrank` command: runs the command line `arguments`, the name of the program first.
/// `itself` are the words that start it again.
#[pyfunction(name = "_command")]
fn command(py: Python<'_>, arguments: Vec<OsString>, itself: Vec<OsString>) -> i32 {
    py.detach(|| polyrank_cli::main(arguments, itself))
}
