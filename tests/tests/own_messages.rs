//! Messages of a rank to itself, from Rust: what is sent is what comes. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank::{Error, Works};
use polyrank_tests::ranks;
