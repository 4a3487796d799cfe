//! What polyrank adds to MPI: the time of an allreduce through a group, beside that of MPI's own
//! calls, in turns. Run it on two ranks of an MPI job:
//!
//! ```text
//! cargo build --release --example mpi_speed
//! mpirun -n 2 target/release/examples/mpi_speed
//! ```

use std::error::Error;
use std::time::Instant;

use polyrank::Region;
use polyrank::backend::mpi::{RawCall, library, raw_allreduce};
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{Collective, DType, Request, Tensor};

/// Turns, of which the median counts.
const TURNS: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let group = init_process_group(InitOptions::default().backend("mpi"))?;
    if group.rank() == 0 {
        println!("{}, {} ranks; median of {TURNS} turns, us per call", library()?, group.size());
    }
    for (bytes, repeats) in [(4, 5000), (4 << 10, 2000), (64 << 10, 500), (1 << 20, 60)] {
        let mut data = vec![0_f32; bytes / 4];
        let region = Region::zeroed(bytes);
        let tensor = Tensor::contiguous(region, DType::F32, vec![bytes / 4]);
        let mut times: [Vec<f64>; 4] = Default::default();
        let each = |seconds: f64| seconds * 1e6 / f64::from(repeats);
        for _ in 0..TURNS {
            let blocking = raw_allreduce(RawCall::Blocking, &mut data, repeats)?;
            times[0].push(each(blocking.as_secs_f64()));
            let testing = raw_allreduce(RawCall::Testing, &mut data, repeats)?;
            times[1].push(each(testing.as_secs_f64()));
            let start = Instant::now();
            for _ in 0..repeats {
                let mut request = Request::new(Collective::Allreduce);
                request.outputs = vec![vec![tensor.clone()]];
                group.run(request)?;
            }
            times[2].push(each(start.elapsed().as_secs_f64()));
            let start = Instant::now();
            for _ in 0..repeats {
                group.allreduce(&mut data, ())?;
            }
            times[3].push(each(start.elapsed().as_secs_f64()));
        }
        let [blocking, testing, owned, lent] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 2]
        });
        if group.rank() == 0 {
            println!(
                "{bytes:>8} B: MPI_Allreduce {blocking:.2}, MPI_Iallreduce and MPI_Test \
                 {testing:.2}, polyrank {owned:.2} (owned), {lent:.2} (lent)"
            );
        }
    }
    destroy_process_group(None)?;
    Ok(())
}
