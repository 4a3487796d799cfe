//! Who trains together, while replicas come and go: the lighthouse of
//! [torchft](https://github.com/meta-pytorch/torchft)'s protocol, its rules, its managers, and its
//! clients, without PyTorch.
//!
//! | Module         | What it has                                                          |
//! |----------------|----------------------------------------------------------------------|
//! | [`proto`]      | the messages of torchft 0.2.0, and its services                      |
//! | [`rules`]      | when there is a quorum, who is in it, and why there is none yet      |
//! | [`lighthouse`] | the server: gRPC, a status page, JSON and OpenMetrics on one port    |
//! | [`client`]     | asks a lighthouse, torchft's or this one                             |
//! | [`manager`]    | asks for all ranks of a replica group, and decides what they commit  |
//! | [`assignment`] | what a quorum is to one rank: its number, and who heals whom         |
//! | [`access`]     | the token that a lighthouse beyond this host must have               |
//! | [`host`]       | hosts as people and URLs write them                                  |
//!
//! Nothing here knows a process group or a tensor.

pub mod access;
pub mod assignment;
pub mod client;
mod deadline;
mod generated {
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    pub(crate) mod torchft;
}
pub mod host;
mod kill;
pub mod lighthouse;
pub mod manager;
mod member;
pub mod proto;
pub mod rules;
mod serve;
mod server_thread;
mod words;

pub use access::Token;
pub use client::{ClientOptions, LighthouseClient, ManagerClient, QuorumError};
pub use lighthouse::{Lighthouse, LighthouseOptions};
pub use manager::{ManagerError, ManagerOptions, ManagerServer};
pub use rules::QuorumOptions;
pub use serve::ConnectionLimits;
pub use server_thread::{StartError, Stop};
