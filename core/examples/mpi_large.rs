//! More than 2³¹ bytes and elements at a time over MPI, whose counts are 32 bits wide: a message,
//! a broadcast, an allreduce, an allgather, a reduce-scatter and an alltoall. Needs 16 GiB of
//! memory for two ranks:
//!
//! ```text
//! mpirun -n 2 target/release/examples/mpi_large
//! ```

use std::error::Error;
use std::time::Instant;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{ProcessGroup, ReduceOp};

/// Elements of a byte: what no 32-bit count can say, and no number of whole pages.
const MANY: usize = (1 << 31) + (100 << 20) + 7;

type Outcome = Result<(), Box<dyn Error>>;

/// One operation, and whether its result is right.
type Step = fn(&ProcessGroup) -> Outcome;

fn main() -> Outcome {
    let group = init_process_group(InitOptions::default().backend("mpi"))?;
    let steps: [(&str, Step); 6] = [
        ("send and recv", message),
        ("broadcast", broadcast),
        ("allreduce", allreduce),
        ("allgather", allgather),
        ("reduce_scatter", reduce_scatter),
        ("alltoall", alltoall),
    ];
    for (name, step) in steps {
        let start = Instant::now();
        step(&group).map_err(|error| format!("rank {}: {name}: {error}", group.rank()))?;
        if group.rank() == 0 {
            println!("{name}: {MANY} elements, {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    destroy_process_group(None)?;
    Ok(())
}

/// Bytes that differ from block to block and from rank to rank, and do not repeat with the size of
/// anything that MPI cuts into pieces.
fn pattern(rank: u32, elements: usize) -> Vec<u8> {
    const PERIOD: usize = 8191;
    let period: Vec<u8> = (0..PERIOD).map(|at| (at % 251) as u8 ^ (rank as u8 * 85)).collect();
    let mut all = period.repeat(elements.div_ceil(PERIOD));
    all.truncate(elements);
    all
}

fn same(got: &[u8], expected: &[u8]) -> Outcome {
    if got == expected {
        return Ok(());
    }
    let at = got.iter().zip(expected).position(|(got, expected)| got != expected);
    Err(format!("wrong from element {at:?} on").into())
}

fn message(group: &ProcessGroup) -> Outcome {
    if group.rank() == 0 {
        group.send(&pattern(0, MANY)[..], 1, 1)?;
        return Ok(());
    }
    let mut data = vec![0_u8; MANY];
    group.recv(&mut data, 0, 1)?;
    same(&data, &pattern(0, MANY))
}

fn broadcast(group: &ProcessGroup) -> Outcome {
    let mut data = if group.rank() == 1 { pattern(1, MANY) } else { vec![0_u8; MANY] };
    group.broadcast(&mut data, 1)?;
    same(&data, &pattern(1, MANY))
}

fn allreduce(group: &ProcessGroup) -> Outcome {
    let mut data = pattern(group.rank(), MANY);
    group.allreduce(&mut data, ReduceOp::Bor)?;
    let mut expected = pattern(0, MANY);
    let other = pattern(1, MANY);
    expected.iter_mut().zip(&other).for_each(|(one, other)| *one |= other);
    same(&data, &expected)
}

fn allgather(group: &ProcessGroup) -> Outcome {
    let part = MANY / 2 + group.rank() as usize;
    let mut outputs = [vec![0_u8; MANY / 2], vec![0_u8; MANY / 2 + 1]];
    group.allgather(&mut outputs, &pattern(group.rank(), part), ())?;
    (0..2).try_for_each(|rank| {
        same(&outputs[rank as usize], &pattern(rank, MANY / 2 + rank as usize))
    })
}

fn reduce_scatter(group: &ProcessGroup) -> Outcome {
    let part = |rank: u32| MANY / 2 + rank as usize;
    let inputs = [pattern(group.rank(), part(0)), pattern(group.rank(), part(1))];
    let mut output = vec![0_u8; part(group.rank())];
    group.reduce_scatter(&mut output, &inputs, ReduceOp::Bxor)?;
    drop(inputs);
    let mut expected = pattern(0, part(group.rank()));
    let other = pattern(1, part(group.rank()));
    expected.iter_mut().zip(&other).for_each(|(one, other)| *one ^= other);
    same(&output, &expected)
}

fn alltoall(group: &ProcessGroup) -> Outcome {
    let inputs = [pattern(group.rank(), MANY / 2), pattern(group.rank() + 2, MANY / 2)];
    let mut outputs = [vec![0_u8; MANY / 2], vec![0_u8; MANY / 2]];
    group.alltoall(&mut outputs, &inputs, ())?;
    drop(inputs);
    // Rank 1 gets what each rank has for it.
    (0..2).try_for_each(|from| {
        same(&outputs[from as usize], &pattern(from + 2 * group.rank(), MANY / 2))
    })
}
