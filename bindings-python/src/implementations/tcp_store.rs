//! `TCPStore`: its constructor takes a socket that Python opened.

use polyrank::calls::parameters::tcp_store::new::MASTER_LISTEN_FD;
use polyrank::calls::{Answer, Value};
use pyo3::prelude::*;

use crate::convert::{Call, invalid, listener_from_fd, run};

/// Connects, and serves if asked to.
pub(crate) fn new(py: Python<'_>, call: Call<'_>) -> PyResult<Answer> {
    let mut call = call.invocation("TCP_STORE_NEW", None)?;
    if let Value::Int(fd) = *call.value(MASTER_LISTEN_FD) {
        // No descriptor has such a number, as none has a negative one.
        let number = i32::try_from(fd).unwrap_or(-1);
        let listener = listener_from_fd(number).map_err(|error| {
            invalid(py, format!("master_listen_fd {fd} cannot be used: {error}"))
        })?;
        call = call.with_listener(listener);
    }
    run(py, call)
}
