//! polyrank for Python.
