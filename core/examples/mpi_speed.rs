//! What polyrank adds to MPI: the time of an allreduce through a group, beside that of MPI's own
//! calls, in turns. Run it on two ranks of an MPI job:
//!
//! ```text
//! cargo build --release --example mpi_speed
//! mpirun -n 2 target/release/examples/mpi_speed
//! ```
//!
//! Each way of polyrank's is set beside MPI's calls on the very same memory, as two buffers of one
//! size can differ by more than what is looked for; how much they do, "noise" says. The ways come
//! in another order in every turn, as each leaves caches and ranks in a state of its own, and
//! ratios are those within a turn.

use std::error::Error;
use std::time::{Duration, Instant};

use polyrank::backend::mpi::{RawCall, library_version, raw_allreduce, raw_allreduce_of};
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{Collective, DType, ProcessGroup, Region, Request, Tensor};

/// Turns, of which the median counts.
const TURNS: usize = 75;
/// What is measured in a turn.
const WAYS: [Variant; 5] =
    [Variant::Blocking, Variant::OnLent, Variant::OnOwned, Variant::Lent, Variant::Owned];

/// One way to an allreduce, in the order of [`WAYS`].
#[derive(Clone, Copy)]
enum Variant {
    /// `MPI_Allreduce`.
    Blocking,
    /// `MPI_Iallreduce` and `MPI_Test`, on the memory that [`Variant::Lent`] has.
    OnLent,
    /// The same on the memory that [`Variant::Owned`] has.
    OnOwned,
    /// polyrank, with memory that is lent for the call.
    Lent,
    /// polyrank, with a tensor that owns its memory.
    Owned,
}

/// What is summed.
struct Memory {
    lent: Vec<f32>,
    owned: Region,
    tensor: Tensor,
}

fn main() -> Result<(), Box<dyn Error>> {
    let group = init_process_group(InitOptions::default().backend("mpi"))?;
    let is_first = group.rank() == 0;
    if is_first {
        println!(
            "{}, {} ranks; median of {TURNS} turns, us per call",
            library_version()?,
            group.size()
        );
    }
    for (bytes, repeats) in [(4, 2000), (4 << 10, 1000), (64 << 10, 200), (1 << 20, 40)] {
        let owned = Region::zeroed(bytes);
        let tensor = Tensor::contiguous(owned.clone(), DType::F32, vec![bytes / 4]);
        let mut memory = Memory { lent: vec![0_f32; bytes / 4], owned, tensor };
        let mut times: [Vec<f64>; WAYS.len()] = Default::default();
        // The first turn warms up.
        for turn in 0..=TURNS {
            for way in order(turn) {
                // What the way before left behind is not its affair.
                measure(&group, WAYS[way], &mut memory, 2)?;
                let took = measure(&group, WAYS[way], &mut memory, repeats)?;
                if turn > 0 {
                    times[way].push(took.as_secs_f64() * 1e6 / f64::from(repeats));
                }
            }
        }
        if is_first {
            show(bytes, &times);
        }
    }
    destroy_process_group(None)?;
    Ok(())
}

/// The places of the ways in a turn, all ranks alike.
fn order(turn: usize) -> [usize; WAYS.len()] {
    let mut order = std::array::from_fn(|place| place);
    let mut seed = turn as u64;
    for place in (1..order.len()).rev() {
        // Knuth's multiplier for MMIX; the upper bits are the good ones.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(place, (seed >> 33) as usize % (place + 1));
    }
    order
}

fn measure(
    group: &ProcessGroup,
    way: Variant,
    memory: &mut Memory,
    repeats: u32,
) -> polyrank::Result<Duration> {
    let start = Instant::now();
    match way {
        Variant::Blocking => return raw_allreduce(RawCall::Blocking, &mut memory.lent, repeats),
        Variant::OnLent => return raw_allreduce(RawCall::Testing, &mut memory.lent, repeats),
        Variant::OnOwned => return raw_allreduce_of(RawCall::Testing, &memory.owned, repeats),
        Variant::Lent => {
            for _ in 0..repeats {
                group.allreduce(&mut memory.lent, ())?;
            }
        }
        Variant::Owned => {
            for _ in 0..repeats {
                let mut request = Request::new(Collective::Allreduce);
                request.outputs = vec![vec![memory.tensor.clone()]];
                group.run(request)?;
            }
        }
    }
    Ok(start.elapsed())
}

fn show(bytes: usize, times: &[Vec<f64>; WAYS.len()]) {
    let [blocking, on_lent, on_owned, lent, owned] = times.each_ref().map(|it| median(it.clone()));
    let more = |way: Variant, than: Variant| {
        let pairs = times[way as usize].iter().zip(&times[than as usize]);
        (median(pairs.map(|(one, other)| one / other).collect()) - 1.0) * 100.0
    };
    println!(
        "{bytes:>8} B: MPI_Allreduce {blocking:.2}; MPI_Iallreduce and MPI_Test {on_lent:.2} and \
         {on_owned:.2} (noise {:+.1} %); polyrank {lent:.2} (lent, {:+.2} us, {:+.1} %), \
         {owned:.2} (owned, {:+.2} us, {:+.1} %)",
        more(Variant::OnOwned, Variant::OnLent),
        lent - on_lent,
        more(Variant::Lent, Variant::OnLent),
        owned - on_owned,
        more(Variant::Owned, Variant::OnOwned),
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
