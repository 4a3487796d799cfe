//! How fast kernels are, beside copying memory: every reduction of every element type, in the
//! caches of a core and in no cache. Throughput counts the bytes of one operand.
//!
//! `cargo bench -p polyrank --bench kernels -- 'sum/f32'`
//!
//! A reduction in place reads two operands and writes one of them; `memcpy` causes as much traffic,
//! since processors read a line before they write to it.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use polyrank::kernels::{Order, Stores, copy, divide, reduce, reduce_into, scale};
use polyrank::kernels::{compress, decompress, recompress};
use polyrank::{Compression, DType, ReduceOp};

criterion_group! {
    name = benches;
    // There are some two hundred of them.
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    targets = copies, reductions, reductions_apart, scalings, compressions
}
criterion_main!(benches);

/// In the caches of a core, and in no cache. Bytes of one operand. Code that is not optimised is
/// not measured: it only shows that everything runs.
const SIZES: &[(&str, usize)] = match cfg!(debug_assertions) {
    true => &[("4 KiB", 4 << 10)],
    false => &[("1 MiB", 1 << 20), ("64 MiB", 64 << 20)],
};

/// What all others are held against.
fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    for (name, bytes) in SIZES.iter().copied() {
        let mut memory = Memory::new(DType::U8, bytes);
        measure(&mut group, "memcpy", name, bytes, || {
            memory.into.copy_from_slice(black_box(&memory.left));
        });
        measure(&mut group, "streaming", name, bytes, || {
            copy(&mut memory.into, black_box(&memory.left), Stores::Streaming);
        });
    }
}

/// Each operator into its first operand, for each element type that has it.
fn reductions(criterion: &mut Criterion) {
    for op in ReduceOp::WITHOUT_FACTOR.into_iter().filter(|op| *op != ReduceOp::Avg) {
        let mut group = criterion.benchmark_group(op.name());
        for dtype in DType::ALL.into_iter().filter(|dtype| op.supports(*dtype)) {
            for (name, bytes) in SIZES.iter().copied() {
                let mut memory = Memory::new(dtype, bytes);
                measure(&mut group, dtype.name(), name, bytes, || {
                    let (into, from) = (&mut memory.into, &memory.right);
                    reduce(op, dtype, into, black_box(from), Order::IntoFirst);
                });
            }
        }
    }
}

/// Sums into a third place, as the last step of an operation writes them.
fn reductions_apart(criterion: &mut Criterion) {
    for (stores, title) in [(Stores::Cached, "apart"), (Stores::Streaming, "apart, streaming")] {
        let mut group = criterion.benchmark_group(format!("sum {title}"));
        for dtype in DType::ALL.into_iter().filter(|dtype| ReduceOp::Sum.supports(*dtype)) {
            for (name, bytes) in SIZES.iter().copied() {
                let mut memory = Memory::new(dtype, bytes);
                measure(&mut group, dtype.name(), name, bytes, || {
                    let (into, left, right) = (&mut memory.into, &memory.left, &memory.right);
                    reduce_into(ReduceOp::Sum, dtype, into, black_box(left), right, stores);
                });
            }
        }
    }
}

/// What averages and sums with a factor do besides.
fn scalings(criterion: &mut Criterion) {
    for (title, op) in [("divide", ReduceOp::Avg), ("scale", ReduceOp::PremulSum(0.5))] {
        let mut group = criterion.benchmark_group(title);
        for dtype in DType::ALL.into_iter().filter(|dtype| op.supports(*dtype)) {
            for (name, bytes) in SIZES.iter().copied() {
                let mut memory = Memory::new(dtype, bytes);
                measure(&mut group, dtype.name(), name, bytes, || match op {
                    ReduceOp::Avg => divide(dtype, &mut memory.into, black_box(3)),
                    _ => scale(dtype, &mut memory.into, black_box(1.0)),
                });
            }
        }
    }
}

/// To fewer bits and back, and the sum of two that is compressed again. Throughput counts the bytes
/// of the numbers, which are no zeros: those have no scale to divide by.
fn compressions(criterion: &mut Criterion) {
    for format in Compression::ALL {
        let mut group = criterion.benchmark_group(format.name());
        for (name, bytes) in SIZES.iter().copied() {
            let mut memory = Memory::new(DType::F32, bytes);
            let mut compressed = vec![0; format.bytes(bytes / 4)];
            measure(&mut group, "compress", name, bytes, || {
                compress(format, DType::F32, black_box(&memory.left), &mut compressed);
            });
            measure(&mut group, "decompress", name, bytes, || {
                decompress(format, DType::F32, black_box(&compressed), &mut memory.into);
            });
            let mut sums = compressed.clone();
            measure(&mut group, "sum of two", name, bytes, || {
                recompress(format, black_box(&[&compressed, &compressed]), 1, &mut sums);
            });
        }
    }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    size: &str,
    bytes: usize,
    run: impl FnMut(),
) {
    let mut run = run;
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(BenchmarkId::new(name, size), |bencher| bencher.iter(&mut run));
}

/// Operands.
struct Memory {
    into: Vec<u8>,
    left: Vec<u8>,
    right: Vec<u8>,
}

impl Memory {
    /// Ones, and zeros to reduce them into: however often a kernel runs, no operator turns them
    /// into infinities or numbers so small that they take longer.
    fn new(dtype: DType, bytes: usize) -> Memory {
        let one: Vec<u8> = match dtype {
            DType::F16 => 0x3c00_u16.to_ne_bytes().to_vec(),
            DType::Bf16 => 0x3f80_u16.to_ne_bytes().to_vec(),
            DType::F32 | DType::Complex64 => 1f32.to_ne_bytes().to_vec(),
            DType::F64 | DType::Complex128 => 1f64.to_ne_bytes().to_vec(),
            _ => vec![1],
        };
        let ones = one.repeat(bytes / one.len());
        Memory { into: vec![0; bytes], left: ones.clone(), right: ones }
    }
}
