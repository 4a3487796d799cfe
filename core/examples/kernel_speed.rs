//! How fast the kernels are on this machine, beside copying memory: a Markdown table.
//!
//! `kernel_speed [ROUNDS [THREADS [DTYPE...]]]`: for each element type and operator, the bytes of
//! one operand that all threads together reduce in a second, and the ratio to `memcpy` of as many
//! bytes in the same rounds; each is the best round, so that other load matters little. A reduction
//! in place reads two operands and writes one of them; `memcpy` causes as much traffic, since
//! processors read a line before they write to it.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use polyrank::kernels::{Order, Stores, copy, divide, reduce, reduce_into, scale};
use polyrank::{DType, ReduceOp};

/// In the caches of a core, and in no cache. Bytes of one operand.
const SIZES_BYTES: [usize; 2] = [1 << 20, 64 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let rounds: usize = words.next().map_or(Ok(7), |word| word.parse())?;
    let threads: usize = words.next().map_or(Ok(1), |word| word.parse())?;
    let names: Vec<String> = words.collect();
    let wanted = |dtype: &DType| names.is_empty() || names.iter().any(|n| n == dtype.name());

    let mut memories: Vec<Memory> = (0..threads).map(|_| Memory::new(SIZES_BYTES[1])).collect();
    println!("| dtype | what | 1 MiB GB/s | of memcpy | 64 MiB GB/s | of memcpy |");
    println!("|---|---|---|---|---|---|");
    for dtype in DType::ALL.into_iter().filter(wanted) {
        memories.iter_mut().for_each(|memory| memory.fill(dtype));
        for kernel in Kernel::all(dtype) {
            let cells = SIZES_BYTES.map(|bytes| {
                let (speed, copy_speed) = measure(&mut memories, dtype, kernel, bytes, rounds);
                format!("{speed:.1} | {:.2}", speed / copy_speed)
            });
            println!("| {} | {} | {} | {} |", dtype.name(), kernel.name(), cells[0], cells[1]);
        }
    }
    Ok(())
}

/// What is timed.
#[derive(Clone, Copy)]
enum Kernel {
    InPlace(ReduceOp),
    Apart(ReduceOp, Stores),
    Copy,
    Divide,
    Scale,
}

impl Kernel {
    fn all(dtype: DType) -> Vec<Kernel> {
        let ops = ReduceOp::WITHOUT_FACTOR.into_iter();
        let ops = ops.filter(|op| *op != ReduceOp::Avg && op.supports(dtype));
        let mut kernels: Vec<Kernel> = ops.map(Kernel::InPlace).collect();
        kernels.push(Kernel::Apart(ReduceOp::Sum, Stores::Cached));
        kernels.push(Kernel::Apart(ReduceOp::Sum, Stores::Streaming));
        if ReduceOp::Avg.supports(dtype) {
            kernels.push(Kernel::Divide);
        }
        if ReduceOp::PremulSum(0.5).supports(dtype) {
            kernels.push(Kernel::Scale);
        }
        if dtype == DType::U8 {
            kernels.push(Kernel::Copy);
        }
        kernels
    }

    fn name(self) -> String {
        match self {
            Kernel::InPlace(op) => format!("{} in place", op.name()),
            Kernel::Apart(op, Stores::Cached) => format!("{} into a third", op.name()),
            Kernel::Apart(op, Stores::Streaming) => {
                format!("{} into a third, streaming", op.name())
            }
            Kernel::Copy => "copy, streaming".to_owned(),
            Kernel::Divide => "divide".to_owned(),
            Kernel::Scale => "scale".to_owned(),
        }
    }
}

struct Memory {
    into: Vec<u8>,
    left: Vec<u8>,
    right: Vec<u8>,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory { into: vec![0; bytes], left: vec![0; bytes], right: vec![0; bytes] }
    }

    /// Numbers that no operator turns into infinities or very small ones.
    fn fill(&mut self, dtype: DType) {
        let one: Vec<u8> = match dtype {
            DType::F16 => 0x3c00_u16.to_ne_bytes().to_vec(),
            DType::Bf16 => 0x3f80_u16.to_ne_bytes().to_vec(),
            DType::F32 | DType::Complex64 => 1f32.to_ne_bytes().to_vec(),
            DType::F64 | DType::Complex128 => 1f64.to_ne_bytes().to_vec(),
            _ => vec![1],
        };
        for memory in [&mut self.into, &mut self.left, &mut self.right] {
            for element in memory.chunks_exact_mut(one.len()) {
                element.copy_from_slice(&one);
            }
        }
    }

    /// Bytes per nanosecond of the kernel, and of `memcpy`; all threads begin each at once.
    fn measure(
        &mut self,
        dtype: DType,
        kernel: Kernel,
        bytes: usize,
        rounds: usize,
        begin: &Barrier,
    ) -> (f64, f64) {
        let repeat = ((16 << 20) / bytes).max(1);
        let (mut best, mut best_copy) = (f64::MAX, f64::MAX);
        let ones = self.right[..bytes].to_vec();
        let (into, left, right) =
            (&mut self.into[..bytes], &self.left[..bytes], &self.right[..bytes]);
        for _ in 0..rounds {
            begin.wait();
            best_copy = best_copy.min(seconds(repeat, || into.copy_from_slice(black_box(left))));
            into.copy_from_slice(&ones);
            begin.wait();
            best = best.min(seconds(repeat, || match kernel {
                Kernel::InPlace(op) => reduce(op, dtype, into, black_box(right), Order::IntoFirst),
                Kernel::Apart(op, stores) => {
                    reduce_into(op, dtype, into, black_box(left), right, stores);
                }
                Kernel::Copy => copy(into, black_box(left), Stores::Streaming),
                Kernel::Divide => divide(dtype, into, black_box(3)),
                Kernel::Scale => scale(dtype, into, black_box(1.0)),
            }));
        }
        let bytes = (bytes * repeat) as f64;
        (bytes / best / 1e9, bytes / best_copy / 1e9)
    }
}

/// The sums over all threads.
fn measure(
    memories: &mut [Memory],
    dtype: DType,
    kernel: Kernel,
    bytes: usize,
    rounds: usize,
) -> (f64, f64) {
    let begin = &Barrier::new(memories.len());
    let speeds = std::thread::scope(|scope| {
        let measured = memories
            .iter_mut()
            .map(|memory| scope.spawn(move || memory.measure(dtype, kernel, bytes, rounds, begin)));
        let threads: Vec<_> = measured.collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or((0.0, 0.0))).collect::<Vec<_>>()
    });
    speeds.iter().fold((0.0, 0.0), |sum, speed| (sum.0 + speed.0, sum.1 + speed.1))
}

fn seconds(repeat: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..repeat {
        run();
    }
    start.elapsed().as_secs_f64()
}
