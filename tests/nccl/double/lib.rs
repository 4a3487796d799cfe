//! A test double of NCCL and of the CUDA driver: a library with the functions of both that polyrank
//! calls, over host memory and the processes of this machine. It has no device and says nothing
//! about a real one; what it keeps to is what they promise:
//!
//! - what is issued on a stream runs later, on another thread, in the order of that stream alone,
//!   so that a missing event shows;
//! - communicators do not block, and have to be asked whether they are ready;
//! - calls that do not match, and peers that are gone, hang what is on the stream until the
//!   communicator is aborted;
//! - memory that was freed is overwritten.
//!
//! With `NCCL_DOUBLE_LOG` in the environment, each call of NCCL adds a line to that file.

#![allow(unsafe_code, missing_docs, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod communicator;
mod config;
mod driver;
mod memory;
mod mesh;
mod nccl;
mod operation;
mod reduce;
mod stream;
