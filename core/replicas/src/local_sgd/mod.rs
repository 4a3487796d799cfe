//! LocalSGD and DiLoCo: replicas that train by themselves, and average once in many *inner* steps.
//!
//! [`LocalSgd`] averages parameters (Stich, arXiv 1805.09767). [`Diloco`] averages what has changed
//! in them, and an [`OuterOptimizer`] steps by that (arXiv 2311.08105), a part of them at a time
//! (arXiv 2501.18512). Both are given the parameters in each call, and change them in place.
//!
//! ```
//! use polyrank_quorum::{Lighthouse, LighthouseOptions};
//! use polyrank_replicas::local_sgd::{Diloco, DilocoOptions, OuterSgd, SyncOutcome};
//! use polyrank_replicas::{Manager, ManagerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = LighthouseOptions {
//! #     address: "127.0.0.1:0".parse()?,
//! #     ..LighthouseOptions::default()
//! # };
//! let lighthouse = Lighthouse::start(options)?; // or: polyrank lighthouse
//! let options = ManagerOptions::new(1).lighthouse(lighthouse.url());
//! let manager = Manager::new(options.group_rank(0).group_world_size(1))?;
//!
//! let mut weights = vec![0.0_f32; 1000];
//! let options = DilocoOptions::new(10).should_quantize(true);
//! let mut diloco = Diloco::new(&manager, &weights, OuterSgd::default(), options)?;
//! diloco.join(&mut weights)?; // waits for the others, and begins with what they share
//! while manager.current_step() < 3 {
//!     weights.iter_mut().for_each(|weight| *weight -= 0.1); // an inner step
//!     if diloco.step(&mut weights)? == SyncOutcome::Lost {
//!         println!("outer step {} is lost", manager.current_step());
//!     }
//! }
//! assert!((weights[0] + 3.227).abs() < 0.1);
//! manager.shutdown()?;
//! # Ok(()) }
//! ```
//!
//! # What holds
//!
//! - **Who joins** waits until the others average, and takes what all share; what it had before is
//!   in no average, and does not count in the number by which they are divided. Joining is a step
//!   of the manager: one that the others make anyway, if they are there already.
//! - **What is shared is the same on all replicas, to the last bit**, after each step of the
//!   manager that was committed.
//! - **An average that is lost**, for a replica died in it, costs no more than that. [`Diloco`]
//!   puts the parameters back to what was shared last, so that no replica goes ever farther from
//!   the others; with [`LocalSgd`] all keep what they have, and the next average holds it.
//! - A quorum that does not come in time is such a loss. It is an error only of `join`.
//! - The timeouts of the manager, and `join_timeout` of the lighthouse, are longer than replicas
//!   may be apart after that many inner steps.

mod average;
mod diloco;
mod local;
mod outer;
mod real;
mod rounds;

pub use diloco::{Diloco, DilocoOptions};
pub use local::LocalSgd;
pub use outer::{OuterOptimizer, OuterSgd};
pub use real::Real;

/// What came of an inner step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// It was not time to average.
    NotDue,
    /// Replicas have averaged, and the result was committed.
    Committed,
    /// Replicas were to average, and that was lost: [`Manager::errored`](crate::Manager::errored)
    /// says why.
    Lost,
}
