//! What a call costs between ranks that are threads of one process: the whole way from the call to
//! the executor and back, without a network.
//!
//! `cargo bench -p polyrank --bench executor`

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use polyrank::store::{HashStore, Store};
use polyrank::{GroupOptions, ProcessGroup, ReduceOp};

criterion_group!(benches, alone, together);
criterion_main!(benches);

/// A group of one rank: the price of a call.
fn alone(criterion: &mut Criterion) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let Ok(group) = ProcessGroup::new(store, 0, 1, "alone", GroupOptions::default()) else {
        return;
    };
    let mut tensor = [1f32];
    criterion.bench_function("call/1 rank", |bencher| {
        bencher.iter(|| group.allreduce(&mut tensor, ReduceOp::Sum));
    });
    drop(group.shutdown());
}

/// Groups of several ranks, each a thread.
fn together(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allreduce");
    // Every sample makes a group anew.
    group.sample_size(20);
    for ranks in [2, 4] {
        for bytes in [4usize, 64 << 10, 4 << 20] {
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new(format!("{ranks} ranks"), bytes), |bencher| {
                bencher.iter_custom(|iterations| threads(ranks, bytes, iterations));
            });
        }
    }
}

/// The time in which every rank makes so many calls; the slowest rank's.
fn threads(ranks: u32, bytes: usize, iterations: u64) -> Duration {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let start = Arc::new(Barrier::new(ranks as usize));
    let one = |rank: u32| {
        let (store, start) = (store.clone(), start.clone());
        std::thread::spawn(move || -> polyrank::Result<Duration> {
            let group = ProcessGroup::new(store, rank, ranks, "bench", GroupOptions::default())?;
            let mut tensor = vec![0f32; bytes / 4];
            // Connections and schedules are made by the first call.
            group.allreduce(&mut tensor, ReduceOp::Sum)?;
            start.wait();
            let begin = Instant::now();
            for _ in 0..iterations {
                group.allreduce(&mut tensor, ReduceOp::Sum)?;
            }
            let took = begin.elapsed();
            group.shutdown()?;
            Ok(took)
        })
    };
    let threads: Vec<_> = (0..ranks).map(one).collect();
    let times = threads.into_iter().map(|thread| match thread.join() {
        Ok(Ok(took)) => took,
        Ok(Err(error)) => panic!("a rank failed: {error}"),
        Err(_) => panic!("a rank panicked"),
    });
    times.max().unwrap_or_default()
}
