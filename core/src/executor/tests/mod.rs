//! The executor over a network in memory whose frames move in a seeded order. Expected values are
//! computed from what the ranks put in, never by the executor.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(all(feature = "tcp", target_os = "linux"))]
mod board_alltoall;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod board_frames;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod board_loans;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod boards;
mod collectives;
mod contracts;
mod deferral;
#[cfg(feature = "tcp")]
mod drivers;
mod failures;
#[cfg(feature = "tcp")]
mod handover;
mod in_turn;
mod messages;
mod network;
mod own_messages;
mod schedules;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod short_messages;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod short_threads;
#[cfg(all(feature = "tcp", target_os = "linux"))]
mod sleeping;
mod windows;
mod world;

use world::{Call, World};

/// World sizes that every collective is tried at.
const SIZES: [u32; 5] = [1, 2, 3, 5, 8];

/// Runs `test` under several seeds; a failure shows the seed.
fn with_seeds(test: impl Fn(u64)) {
    for seed in 0..6 {
        struct Slot(u64);
        impl Drop for Slot {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("seed {}", self.0);
                }
            }
        }
        let shown = Slot(seed);
        test(seed);
        drop(shown);
    }
}
