//! Training that goes on when replicas come and go: the manager of
//! [torchft](https://github.com/meta-pytorch/torchft)'s protocol, over a process group of
//! [polyrank], without PyTorch.
//!
//! A *replica* is what fails as a whole: a process, or a group of ranks that share a model. Each of
//! its ranks has a [`Manager`], and the ranks of the same number in all replicas have a process
//! group, in which they average gradients. A lighthouse, `polyrank lighthouse` or torchft's, says
//! at each step which replicas there are.
//!
//! ```no_run
//! use std::sync::{Arc, Mutex};
//!
//! use polyrank::ReduceOp;
//! use polyrank_replicas::{Manager, ManagerOptions, StartQuorum};
//!
//! # fn gradient(_: &[f32]) -> Vec<f32> { Vec::new() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::new(ManagerOptions::new(1).lighthouse("http://127.0.0.1:29510"))?;
//! let model = Arc::new(Mutex::new(vec![0.0_f32; 1000]));
//! manager.register_model("model", model.clone())?;
//! while manager.current_step() < 100 {
//!     manager.start_quorum(StartQuorum::default())?;
//!     let mut gradient = gradient(&model.lock().unwrap());
//!     manager.allreduce(&mut gradient, ReduceOp::Avg)?;
//!     if manager.should_commit(None)? {
//!         let mut model = model.lock().unwrap();
//!         model.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= 0.1 * slope);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # One step
//!
//! | Call                       | What it does                                                   |
//! |----------------------------|----------------------------------------------------------------|
//! | [`Manager::start_quorum`]  | asks who is there, makes the group of them, moves states       |
//! | [`Manager::allreduce`]     | waits for that, and reduces; a failure is kept for the vote    |
//! | [`Manager::should_commit`] | whether all its ranks, of enough replicas, are through         |
//!
//! The quorum comes, and a state travels, while the program computes. **Between `start_quorum` and
//! `should_commit` a program changes nothing of what it has registered**; it changes it after
//! `should_commit` has said yes.
//!
//! In the first step all replicas take the state of one (`init_sync`). If the quorum comes while
//! they compute, only that one contributes, and averages are divided by the number of all, as in
//! torchft.
//!
//! A replica that fails costs the others at most the step in which it does. When it is started
//! anew, it takes the state of those that are not behind.
//!
//! # How a state travels
//!
//! Over the group, in pieces of 4 MiB, from up to eight replicas that are not behind at once; in
//! the first step from the one whose state all take. One of them counts: it says what the digest
//! (BLAKE3) of each piece is, and a piece that has another one, for it was damaged or its replica
//! has another state, is taken from another source. A warning names the replica.
//!
//! A replica that dies meanwhile costs the step, since it breaks the group. The pieces that have
//! come stay, and in the next step only the others are taken, from those that are there. All of it
//! may last [`ManagerOptions::state_timeout`]; messages of `tracing` say how far it is. In memory
//! are the state and some pieces besides the model, where it is taken and where it is given.
//!
//! # Seldom averages
//!
//! [`local_sgd`] has layers for replicas that train by themselves for many steps, and average once
//! in so many: LocalSGD and DiLoCo.
//!
//! # What is torchft's, and what differs
//!
//! Rules, names and messages are torchft's, so that its managers may be in one quorum with these,
//! though not in one group: their process groups are PyTorch's. Different are:
//!
//! - A failed call of the lighthouse ends nothing: [`Manager::start_quorum`] or
//!   [`Manager::wait_quorum`] say so, and a loop goes on.
//! - The first error of a step is told to the other replicas at once, rather than left for them to
//!   time out.
//! - A rank that does not participate contributes what changes nothing, for each operator, where
//!   torchft has zeros for all.
//! - States are bytes that the program makes, and reads. Nothing is executed that comes from
//!   another.

mod average;
#[doc(hidden)]
pub mod calls;
mod error;
pub mod local_sgd;
mod managed_group;
mod manager;
mod operations;
mod options;
mod pieces;
mod quorum;
mod rpc;
mod setup;
mod shared;
mod state;
mod transport;

pub use error::{HealingError, ManagerError};
pub use manager::{Manager, StartQuorum};
pub use operations::ManagedWork;
pub use options::{ManagerOptions, WorldSizeMode};
pub use pieces::GroupTransport;
pub use polyrank_quorum::{QuorumError, Token};
pub use shared::ManagerState;
pub use state::{Model, StateError};
pub use transport::{StatePeer, StateTransport, TransportError};
