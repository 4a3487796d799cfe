//! Starts its ranks itself: as the page of the site on Rust has it.

use polyrank::ReduceOp;
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};

fn main() -> Result<(), polyrank::SpawnError> {
    polyrank::spawn(4, |rank| {
        let group = init_process_group(InitOptions::default())?;
        let mut gradient = vec![f64::from(rank); 1000];
        group.allreduce(&mut gradient, ReduceOp::Sum)?;
        destroy_process_group(None)
    })
}
