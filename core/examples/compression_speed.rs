//! What compression costs and saves: an allreduce of a group of processes, plain and in each
//! format, in turn, so that whatever else the machine does meets all alike.
//!
//! `compression_speed RANK SIZE HOST PORT BYTES ROUNDS`: rank 0 hosts the store there, and prints
//! the median milliseconds of each, and the greatest error. `POLYRANK_TRANSPORT=tcp` keeps ranks of
//! one host from shared memory.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::options::AllreduceOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{GroupOptions, ProcessGroup};

const FORMATS: [Option<&str>; 4] = [None, Some("bf16"), Some("f16"), Some("int8")];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, size, host, port, bytes, rounds] = &words[..] else {
        return Err("RANK SIZE HOST PORT BYTES ROUNDS".into());
    };
    let (rank, size): (u32, u32) = (rank.parse()?, size.parse()?);
    let (bytes, rounds): (usize, usize) = (bytes.parse()?, rounds.parse()?);
    let options = TcpStoreOptions::new(host.as_str(), port.parse()?)
        .is_master(rank == 0)
        .wait_for_workers(false)
        .timeout(Duration::from_secs(60));
    let store: Arc<dyn Store> = Arc::new(TcpStore::new(options)?);
    let group = ProcessGroup::new(store, rank, size, "speed", GroupOptions::default())?;

    let given: Vec<f32> = (0..bytes / 4).map(|at| (at as f32 * 0.61).sin()).collect();
    let mut tensor = given.clone();
    let mut seconds = FORMATS.map(|_| Vec::new());
    let mut errors = FORMATS.map(|_| 0.0_f64);
    // The first round touches memory for the first time.
    for round in 0..=rounds {
        // To and fro, so that none always follows the same other.
        for place in 0..FORMATS.len() {
            let index = if round % 2 == 0 { place } else { FORMATS.len() - 1 - place };
            let format = FORMATS[index];
            tensor.copy_from_slice(&given);
            let mut options = AllreduceOptions::default();
            options.compress = format.map(str::to_owned);
            group.barrier(())?;
            let start = Instant::now();
            group.allreduce(&mut tensor, &options)?;
            if round > 0 {
                seconds[index].push(start.elapsed().as_secs_f64());
            }
            let off = tensor.iter().zip(&given).map(|(sum, one)| sum - size as f32 * one);
            errors[index] = off.fold(errors[index], |most, off| most.max(off.abs().into()));
        }
    }
    if rank == 0 {
        for ((format, seconds), error) in FORMATS.into_iter().zip(&mut seconds).zip(errors) {
            seconds.sort_by(f64::total_cmp);
            let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default() * 1e3;
            println!("{:5} {median:8.2} ms, off by {error:.2e}", format.unwrap_or("plain"));
        }
    }
    group.shutdown()?;
    Ok(())
}
