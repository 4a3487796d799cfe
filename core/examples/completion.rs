//! A rank of `tests/bench/completion.py` in Rust: when it issues operations, and when it hears of
//! their end, by a callback or by a future, without a thread that waits for them.
//!
//! `completion RANK SIZE PORT`: rank 0 hosts the store at the port. Each line that it reads, as
//! `callback CALLS MICROSECONDS RANK`, says how, how often, how late, and which rank is late, -1
//! for each in its turn; it answers with its CPU time and the time, in seconds, and with the
//! nanoseconds of each issue and of each end on the host's monotonic clock.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{DType, GroupOptions, ProcessGroup, Region, Tensor};
use rustix::time::{ClockId, clock_gettime};

/// What a line asks for.
struct Loop {
    calls: u64,
    late: Duration,
    /// The rank that is late; each in its turn if there is none with this number.
    which: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<u32> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [rank, size, port] = words[..] else { return Err("RANK SIZE PORT".into()) };
    let options = TcpStoreOptions::new("127.0.0.1", port as u16)
        .is_master(rank == 0)
        .wait_for_workers(false)
        .timeout(Duration::from_secs(60));
    let store: Arc<dyn Store> = Arc::new(TcpStore::new(options)?);
    let group = ProcessGroup::new(store, rank, size, "completion", GroupOptions::default())?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [way, calls, late, which] = words[..] else { return Err(line.into()) };
        let asked = Loop {
            calls: calls.parse()?,
            late: Duration::from_micros(late.parse()?),
            which: which.parse()?,
        };
        group.barrier(())?;
        let (cpu, start) = (nanos(ClockId::ProcessCPUTime), nanos(ClockId::Monotonic));
        let times = match way {
            "idle" => {
                thread::sleep(Duration::from_secs(1));
                Vec::new()
            }
            "callback" => run(&group, &asked, hear_by_callback)?,
            "future" => run(&group, &asked, hear_by_future)?,
            other => {
                return Err(format!("'{other}' is not a way; expected callback, future").into());
            }
        };
        let cpu = nanos(ClockId::ProcessCPUTime) - cpu;
        let wall = nanos(ClockId::Monotonic) - start;
        group.barrier(())?;
        print!("{} {}", cpu as f64 / 1e9, wall as f64 / 1e9);
        times.iter().for_each(|time| print!(" {time}"));
        println!();
    }
    group.shutdown()?;
    Ok(())
}

/// When each operation is issued, and when `hear` says that it is over.
fn run(
    group: &ProcessGroup,
    asked: &Loop,
    hear: fn(polyrank::Work) -> u64,
) -> Result<Vec<u64>, Box<dyn Error>> {
    let size = u64::from(group.size());
    let mut times = Vec::new();
    for call in 0..asked.calls {
        let late = u64::try_from(asked.which).unwrap_or(call % size);
        if late == u64::from(group.rank()) && !asked.late.is_zero() {
            thread::sleep(asked.late);
        }
        let region = Region::from_vec(1_f32.to_ne_bytes().to_vec());
        let tensor = Tensor::contiguous(region, DType::F32, vec![1]);
        times.push(nanos(ClockId::Monotonic));
        times.push(hear(group.allreduce_async(tensor, ())?));
    }
    Ok(times)
}

fn hear_by_callback(work: polyrank::Work) -> u64 {
    let (tell, told) = mpsc::sync_channel(1);
    work.on_done(move |_| {
        let _ = tell.send(nanos(ClockId::Monotonic));
    });
    told.recv().unwrap_or_default()
}

fn hear_by_future(work: polyrank::Work) -> u64 {
    let waker = Arc::new(Unparker(thread::current())).into();
    let mut work = pin!(work);
    while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
    nanos(ClockId::Monotonic)
}

/// Wakes the thread that runs a future.
struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a clock of the system says.
fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
