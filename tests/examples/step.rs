//! A Rust rank that is told nothing but by what started it, and says what all ranks add up to.
//!
//! `tests/step/run.py` is the same in Python. With three words (a folder, a name, another job's
//! name) it goes on when a job of that other name has come as far, so that both have their groups
//! at once.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let group = init_process_group(InitOptions::default())?;
    let (rank, size) = (group.rank(), group.size());
    if let [folder, own, other] = words.as_slice()
        && rank == 0
    {
        std::fs::write(Path::new(folder).join(own), "")?;
        let began = Instant::now();
        while !Path::new(folder).join(other).exists() {
            assert!(began.elapsed() < PATIENCE, "{other} did not come");
            std::thread::yield_now();
        }
    }
    group.barrier(())?;
    let mut total = [i64::from(rank) + 1];
    group.allreduce(&mut total[..], ())?;
    println!("Rust rank {rank} of {size}: {}", total[0]);
    destroy_process_group(None)?;
    Ok(())
}
