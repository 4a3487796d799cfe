//! How fast a group of processes is on this host, in Rust: to compare other languages with.
//!
//! `group_speed RANK SIZE PORT CALLS BYTES ROUNDS [own]`: rank 0 hosts the store at the port; each
//! rank times `CALLS` allreduces of 4 bytes, after as many that do not count, then `ROUNDS` of
//! `BYTES`, and prints one line with the microseconds of each call of the first kind, sorted, and
//! the seconds of each round. With `own` the bytes lie in memory that polyrank allocated.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Collective, DType, GroupOptions, ProcessGroup, Region, Request, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let own = words.pop_if(|word| word == "own").is_some();
    let words: Vec<u64> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [rank, size, port, calls, bytes, rounds] = words[..] else {
        return Err("RANK SIZE PORT CALLS BYTES ROUNDS [own]".into());
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

    let mut seconds = Vec::new();
    let mut large = vec![1f32; bytes as usize / 4];
    let tensor = own.then(|| allocated(bytes as usize)).transpose()?;
    for _ in 0..=rounds {
        let start = Instant::now();
        match &tensor {
            Some(tensor) => {
                let mut request = Request::new(Collective::Allreduce);
                request.outputs = vec![vec![tensor.clone()]];
                group.run(request)?;
            }
            None => group.allreduce(&mut large, ())?,
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    // The first one touches memory for the first time.
    seconds.remove(0);
    println!("{{\"micros\":{micros:?},\"seconds\":{seconds:?}}}");
    group.shutdown()?;
    Ok(())
}

/// A tensor in memory that polyrank allocated.
fn allocated(bytes: usize) -> Result<Tensor, Box<dyn Error>> {
    let region = Region::for_elements(bytes).ok_or("no memory")?;
    Ok(Tensor::contiguous(region, DType::F32, vec![bytes / 4]))
}
