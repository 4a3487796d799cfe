//! A line that is fitted to points by gradient descent, each replica with points of its own:
//!
//! ```console
//! $ polyrank lighthouse --min-replicas 1 &
//! $ export TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510
//! $ cargo run -p polyrank-replicas --example training -- a &
//! $ cargo run -p polyrank-replicas --example training -- b
//! ```
//!
//! Kill one, and start it again: it goes on where the other is. After its name, a replica takes the
//! number of steps, and how many milliseconds one takes.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyrank::ReduceOp;
use polyrank_replicas::{Manager, ManagerOptions, StartQuorum};

/// What the points lie on: `y = 3 x - 2`.
const LINE: [f64; 2] = [3.0, -2.0];
/// How far a step goes.
const RATE: f64 = 0.1;

fn main() -> ExitCode {
    // What a `main` returns would be shown as code, not as a sentence.
    train().map_or_else(
        |error| {
            eprintln!("training: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn train() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "replica".to_owned());
    let steps: i64 = words.next().map_or(Ok(200), |text| text.parse())?;
    let pause = Duration::from_millis(words.next().map_or(Ok(100), |text| text.parse())?);

    let options = ManagerOptions::new(1).replica_id(name.clone()).timeout(Duration::from_secs(10));
    let manager = Manager::new(options)?;
    let model = Arc::new(Mutex::new(vec![0.0, 0.0]));
    manager.register_model("line", model.clone())?;
    let mut chance = name.bytes().fold(1, |all: u64, byte| all * 31 + u64::from(byte));

    while manager.current_step() < steps {
        manager.start_quorum(StartQuorum::default())?;
        let line = model.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The slope of the error, and the error.
        let mut slope = [0.0; 3];
        for _ in 0..32 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let x = (chance >> 33) as f64 / f64::from(1_u32 << 31) * 2.0 - 1.0;
            let off = line[0] * x + line[1] - (LINE[0] * x + LINE[1]);
            slope[0] += off * x / 16.0;
            slope[1] += off / 16.0;
            slope[2] += off * off / 32.0;
        }
        std::thread::sleep(pause);
        manager.allreduce(&mut slope, ReduceOp::Avg)?;
        if manager.should_commit(None)? {
            let mut line = model.lock().unwrap_or_else(PoisonError::into_inner);
            line[0] -= RATE * slope[0];
            line[1] -= RATE * slope[1];
            println!(
                "step {}, {} participating: y = {:.4} x + {:.4}, loss {:.6}",
                manager.current_step(),
                manager.num_participants(),
                line[0],
                line[1],
                slope[2]
            );
        } else if let Some(why) = manager.errored() {
            println!("step {} is done again: {why}", manager.current_step() + 1);
        }
    }
    manager.shutdown()?;
    Ok(())
}
