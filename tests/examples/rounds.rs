//! A Rust rank that reduces a number again and again until somebody says stop.
//!
//! For tests of what goes wrong meanwhile: `tests/rounds/run.py` is the same in Python, `run.mjs`
//! in JavaScript. Rank 0 stops all when its standard input ends. Prints its process, every
//! hundredth round, and the first error with the time at which it came.

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{ProcessGroup, ReduceOp};

const SHOWN: u64 = 100;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = InitOptions::default().timeout(Duration::from_secs(30));
    let group = init_process_group(options)?;
    let rank = group.rank();
    println!("Rust rank {rank} is process {}", std::process::id());
    let wish = Arc::new(AtomicI32::new(0));
    if rank == 0 {
        let wish = wish.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            wish.store(1, Ordering::Relaxed);
        });
    }
    match run(&group, &wish) {
        Ok(rounds) => {
            destroy_process_group(None)?;
            println!("Rust rank {rank}: stopped after {rounds} rounds");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
            let (kind, culprit) = match &error {
                polyrank::Error::RankFailed { rank, .. } => ("RankFailed", rank.to_string()),
                _ => ("another error", "nobody".to_owned()),
            };
            println!("Rust rank {rank}: {kind} of {culprit} at {at}: {error}");
            Ok(ExitCode::from(3))
        }
    }
}

/// The number of rounds until the sum says stop.
fn run(group: &ProcessGroup, wish: &AtomicI32) -> polyrank::Result<u64> {
    let mut rounds = 0;
    loop {
        let mut stop = [wish.load(Ordering::Relaxed)];
        group.allreduce(&mut stop[..], ReduceOp::Max)?;
        rounds += 1;
        if rounds % SHOWN == 0 {
            println!("Rust rank {}: round {rounds}", group.rank());
        }
        if stop[0] != 0 {
            return Ok(rounds);
        }
    }
}
