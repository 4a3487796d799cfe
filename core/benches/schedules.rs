//! What schedules cost before anything is sent: building one rank's, and proving all ranks'.
//!
//! `cargo bench -p polyrank --bench schedules`

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use polyrank::Collective;
use polyrank::schedule::check::check;
use polyrank::schedule::{Place, Topology};

criterion_group!(benches, build, prove);
criterion_main!(benches);

/// One rank's schedule of every algorithm, as the first call of its kind builds it.
fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build");
    for collective in Collective::ALL {
        for algorithm in collective.algorithms() {
            for size in [8, 64] {
                let name = format!("{}/{}", collective.facts().name, algorithm.name);
                let place = Place { rank: size / 2, size, root: 0 };
                let on = Topology::blocks(size / 4, 4);
                group.bench_function(BenchmarkId::new(name, size), |bencher| {
                    bencher.iter(|| algorithm.schedule(std::hint::black_box(place), &on));
                });
            }
        }
    }
}

/// The proof of all ranks' schedules of an allreduce.
fn prove(criterion: &mut Criterion) {
    let collective = Collective::Allreduce;
    let contract = collective.contract();
    let mut group = criterion.benchmark_group("prove");
    let on = Topology::blocks(4, 4);
    for algorithm in collective.algorithms() {
        group.bench_function(BenchmarkId::new(algorithm.name, 16), |bencher| {
            bencher.iter(|| check(contract, algorithm, 0, &on).is_ok());
        });
    }
}
