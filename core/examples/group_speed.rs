//! How fast a group of processes is on this host, in Rust: to compare other languages with.
//!
//! `group_speed RANK SIZE PORT CALLS BYTES ROUNDS`: rank 0 hosts the store at the port; each rank
//! times `CALLS` allreduces of 4 bytes, after as many that do not count, then `ROUNDS` of `BYTES`,
//! and prints one line with the microseconds of each call of the first kind, sorted, and the
//! seconds of each round.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{GroupOptions, ProcessGroup};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<u64> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [rank, size, port, calls, bytes, rounds] = words[..] else {
        return Err("RANK SIZE PORT CALLS BYTES ROUNDS".into());
    };
    let options = TcpStoreOptions::new("127.0.0.1", port as u16)
        .is_master(rank == 0)
        .wait_for_workers(false)
        .timeout(Duration::from_secs(60));
    let store: Arc<dyn Store> = Arc::new(TcpStore::new(options)?);
    let group =
        ProcessGroup::new(store, rank as u32, size as u32, "speed", GroupOptions::default())?;

    let mut small = [1f32];
    for _ in 0..calls {
        group.allreduce(&mut small, ())?;
    }
    let mut micros = Vec::new();
    for _ in 0..calls {
        let start = Instant::now();
        group.allreduce(&mut small, ())?;
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);

    let mut large = vec![1f32; bytes as usize / 4];
    group.allreduce(&mut large, ())?;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        group.allreduce(&mut large, ())?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    println!("{{\"micros\":{micros:?},\"seconds\":{seconds:?}}}");
    group.shutdown();
    Ok(())
}
