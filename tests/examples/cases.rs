//! The pairwise conformance cases in Rust: one rank of a group that `polyrank run` starts, beside
//! ranks in other languages. Knows nothing of how a case is read; `polyrank_tests::cases` does.

use std::error::Error;
use std::process::ExitCode;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank_tests::cases;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let backend = std::env::var("POLYRANK_TEST_BACKEND").unwrap_or_else(|_| "tcp".to_owned());
    let group = init_process_group(InitOptions::default().backend(backend))?;
    let (rank, world) = (group.rank(), group.size());
    let rows = cases::pairwise(world);
    let mut failed = 0;
    for (name, case) in &rows {
        if let Err(difference) = cases::run(&group, case)? {
            failed += 1;
            println!("FAILED {name}: {difference}");
        }
    }
    println!("Rust rank {rank} of {world}: {} passed, {failed} failed", rows.len() - failed);
    destroy_process_group(None)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
