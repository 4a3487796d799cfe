//! A Rust rank that reduces with functions of its own among ranks of any language.
//!
//! `reductions/run.py` is the same in Python, `reductions/run.mjs` in JavaScript; expected values
//! come from the same fold on every rank.

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{CustomReduction, Result};

const COUNTS: [usize; 4] = [0, 1, 67, 40_003];

fn main() -> Result<()> {
    let world = init_process_group(InitOptions::default())?;
    let (rank, size) = (world.rank(), world.size());
    let op = CustomReduction::new(combine);
    for count in COUNTS {
        let mut tensor = values(rank as usize, count);
        world.allreduce(&mut tensor, op.op())?;
        let mut expected = values(0, count);
        for other in 1..size as usize {
            let mut upper = values(other, count);
            combine(&expected, &mut upper);
            expected = upper;
        }
        assert_eq!(tensor, expected, "{count} elements");
    }
    destroy_process_group(None)?;
    println!("Rust rank {rank} of {size}: {} reductions", COUNTS.len());
    Ok(())
}

/// `2 a + b`: neither commutes nor is it associative.
fn combine(lower: &[f64], upper: &mut [f64]) {
    upper.iter_mut().zip(lower).for_each(|(upper, lower)| *upper += 2.0 * lower);
}

fn values(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|index| (rank * 1000 + index) as f64).collect()
}
