//! A replica that learns the digits together with others that come and go: the Rust replicas of
//! `cargo xtask churn`.
//!
//! `tests/demo/learner.py` is the same program in Python, `learner.mjs` in JavaScript. Its
//! arguments are the lighthouse, its name, its number, how many milliseconds a step takes at least,
//! and after how many steps it ends. It prints a line of JSON for each step. Its input has lines as
//! well:
//! `slow 100` adds so many milliseconds to its steps, and after `stop` all end together.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyrank::ReduceOp;
use polyrank_replicas::{Manager, ManagerError, ManagerOptions, StartQuorum, StateError};
use polyrank_tests::digits::{CLASSES, INPUTS, Image, fingerprint, gradient, load};
use serde_json::json;

const BATCH: usize = 64;
const LEARNING_RATE: f32 = 0.1;
/// Replicas whose images differ.
const NUMBERS: usize = 6;
/// How long an operation is waited for.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a quorum is waited for.
const QUORUM_TIMEOUT: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    // What a `main` returns would be shown as code, not as a sentence.
    train().map_or_else(
        |error| {
            eprintln!("learner: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// What is read from the input.
#[derive(Default)]
struct Orders {
    is_over: AtomicBool,
    slow_ms: AtomicU64,
}

impl Orders {
    fn read(&self) {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("slow ") {
                self.slow_ms.store(number.trim().parse().unwrap_or(0), Ordering::Relaxed);
            }
            self.is_over.fetch_or(line.trim() == "stop", Ordering::Relaxed);
        }
    }
}

type Weights = Arc<Mutex<Vec<f32>>>;

fn train() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [lighthouse, name, number, pace_ms, steps] = &words[..] else {
        return Err("expected: LIGHTHOUSE NAME NUMBER PACE_MS STEPS".into());
    };
    let (number, pace_ms): (usize, u64) = (number.parse()?, pace_ms.parse()?);
    let steps: i64 = steps.parse()?;
    let (images, _) = load()?;
    let orders = Arc::new(Orders::default());
    let reader = orders.clone();
    std::thread::spawn(move || reader.read());

    let options = ManagerOptions::new(1).lighthouse(lighthouse).replica_id(name);
    let options = options.group_rank(0).group_world_size(1);
    let manager = Manager::new(options.timeout(TIMEOUT).quorum_timeout(QUORUM_TIMEOUT))?;
    let weights: Weights = Arc::new(Mutex::new(vec![0.0; INPUTS * CLASSES]));
    let (saved, loaded) = (weights.clone(), weights.clone());
    let save = move || Ok(locked(&saved).iter().flat_map(|weight| weight.to_le_bytes()).collect());
    manager.register_state("weights", save, move |bytes| load_weights(&loaded, bytes))?;
    println!("{}", json!({ "started": manager.replica_id() }));

    loop {
        let pause = Duration::from_millis(pace_ms + orders.slow_ms.load(Ordering::Relaxed));
        let is_last = manager.current_step() + 1 >= steps;
        let wants_end = orders.is_over.load(Ordering::Relaxed) || is_last;
        let first = (manager.current_step() as usize * NUMBERS + number) * BATCH;
        let mine = (first..first + BATCH).map(|at| &images[at % images.len()]);
        match step(&manager, &weights, mine, pause, wants_end) {
            Ok(StepOutcome::Last) => break,
            Ok(_) => {}
            Err(error) if error.is_retryable() => {
                println!("{}", json!({ "lost": manager.current_step(), "why": error.to_string() }));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let total = gradient(&locked(&weights), images.iter());
    let loss = f64::from(total[INPUTS * CLASSES]) / images.len() as f64;
    println!("{}", json!({ "end": manager.current_step(), "loss": loss }));
    manager.shutdown()?;
    Ok(())
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepOutcome {
    Lost,
    Committed,
    /// Committed, and all end after it.
    Last,
}

/// One step, over `mine`.
fn step<'a>(
    manager: &Manager,
    weights: &Weights,
    mine: impl Iterator<Item = &'a Image>,
    pause: Duration,
    wants_end: bool,
) -> Result<StepOutcome, ManagerError> {
    let began = manager.current_step();
    manager.start_quorum(StartQuorum::default())?;
    let mut slope = gradient(&locked(weights), mine);
    slope.truncate(INPUTS * CLASSES);
    slope.iter_mut().for_each(|sum| *sum /= BATCH as f32);
    std::thread::sleep(pause);
    let mut over = [i32::from(wants_end)];
    manager.allreduce(&mut slope, ReduceOp::Avg)?;
    manager.allreduce(&mut over, ReduceOp::Max)?;
    // How many of those that participate have given something: some may take a state.
    let mut share = [1.0_f64];
    manager.allreduce(&mut share, ReduceOp::Avg)?;
    if !manager.should_commit(None)? {
        let why = manager.errored().map(|error| error.to_string());
        println!("{}", json!({ "lost": manager.current_step(), "why": why }));
        return Ok(StepOutcome::Lost);
    }
    let mut weights = locked(weights);
    // Single operations of IEEE 754 on binary32, each rounded: every language has the same.
    for (weight, slope) in weights.iter_mut().zip(&slope) {
        *weight -= LEARNING_RATE * slope;
    }
    let hash = format!("{:016x}", fingerprint(&weights));
    let participants = manager.num_participants();
    let (step, batches) = (manager.current_step(), manager.batches_committed());
    let gave = (share[0] * f64::from(participants) * 1e6).round() / 1e6;
    let line = json!({
        "step": step, "since": began, "members": manager.replicas().len(), "of": participants,
        "gives": manager.is_participating(), "gave": gave, "batches": batches, "hash": hash,
    });
    println!("{line}");
    Ok(if over[0] == 1 { StepOutcome::Last } else { StepOutcome::Committed })
}

fn load_weights(weights: &Weights, bytes: &[u8]) -> Result<(), StateError> {
    let (all, rest) = bytes.as_chunks();
    if all.len() != INPUTS * CLASSES || !rest.is_empty() {
        return Err(StateError::new(format!("{} bytes are not the weights", bytes.len())));
    }
    *locked(weights) = all.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Ok(())
}

fn locked(weights: &Mutex<Vec<f32>>) -> std::sync::MutexGuard<'_, Vec<f32>> {
    weights.lock().unwrap_or_else(PoisonError::into_inner)
}
