//! The pairwise conformance cases in Rust: one rank of a group that `polyrank run` starts, beside
//! ranks in other languages. Knows nothing of how a case is read; `polyrank_tests::cases` does.

use std::error::Error;
use std::process::ExitCode;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank_tests::{cases, lists, nccl};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let backend = std::env::var("POLYRANK_TEST_BACKEND").unwrap_or_else(|_| "tcp".to_owned());
    let group = init_process_group(InitOptions::default().backend(backend))?;
    let (rank, world) = (group.rank(), group.size());
    let is_on_device =
        std::env::var("POLYRANK_TEST_DEVICE").is_ok_and(|device| device.starts_with("cuda"));
    let mut rows = cases::pairwise(world);
    rows.retain(|(_, case)| !is_on_device || nccl::is_same_in_all_languages(case, world));
    let mut failed = 0;
    for (name, case) in &rows {
        let outcome = match is_on_device {
            true => nccl::check(&group, case),
            false => cases::run(&group, case)?,
        };
        if let Err(difference) = outcome {
            failed += 1;
            println!("FAILED {name}: {difference}");
        }
    }
    let passed = rows.len() - failed;
    if !is_on_device {
        for difference in lists::lists(&group)? {
            failed += 1;
            println!("FAILED {difference} (rank {rank})");
        }
    }
    println!("Rust rank {rank} of {world}: {passed} passed, {failed} failed");
    destroy_process_group(None)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
