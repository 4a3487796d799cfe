//! How long a group takes from the last call of `reconfigure` to the end of the first allreduce of
//! all its new members:
//!
//! ```text
//! cargo build --release --all-features -p polyrank-tests --example reconfigure_time
//! polyrank run -n 4 target/release/examples/reconfigure_time 20
//! ```
//!
//! The argument is the number of rounds, of which the first is not counted. Rank 0 prints the
//! median and the longest, in ms, also of the part that `reconfigure` itself takes.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polyrank::ReduceOp;
use polyrank::distributed::{
    InitOptions, NewGroupOptions, barrier, destroy_process_group, init_process_group, new_group,
};
use polyrank::process_group::ReconfigureOptions;

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: i64 = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    let world = init_process_group(InitOptions::default().timeout(LIMIT))?;
    let (rank, size) = (world.rank() as usize, world.size());
    let store = world.get_group_store();
    let group = new_group(NewGroupOptions::default().enable_reconfigure(true))?;
    let group = group.ok_or("everybody gets a group without members")?;
    let (mut joined, mut reduced) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let keys: Vec<String> = (0..size).map(|rank| format!("{round}/{rank}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        store.set(keys[rank], group.get_reconfigure_handle()?.as_bytes())?;
        let handles = store.multi_get(&keys)?;
        let handles = handles.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>()?;
        barrier(())?;
        let called = now();
        group.reconfigure(ReconfigureOptions::new(round, handles).timeout(LIMIT))?.wait(None)?;
        let met = now();
        let mut tensor = [1.0f32; 4];
        group.allreduce(&mut tensor, ReduceOp::Sum)?;
        let ended = now();
        assert_eq!(tensor, [size as f32; 4]);
        let mut times = [called, met, ended];
        world.allreduce(&mut times, ReduceOp::Max)?;
        let [called, met, ended] = times;
        if round > 0 {
            joined.push(met - called);
            reduced.push(ended - called);
        }
    }
    if rank == 0 {
        for (what, times) in [("reconfigure", &mut joined), ("first allreduce", &mut reduced)] {
            times.sort_by(f64::total_cmp);
            let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
            println!("{what} of {size} ranks: median {middle:.2} ms, longest {last:.2} ms");
        }
    }
    destroy_process_group(None)?;
    Ok(())
}

/// Milliseconds by the clock that all processes of a host share.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Whole days are of no interest, and would take the digits.
    (since.as_micros() % 86_400_000_000) as f64 / 1000.0
}
