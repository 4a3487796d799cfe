//! A Rust rank of groups that stand alone: no rank has a default group. `joined/run.py` is the same
//! in Python, `joined/run.mjs` in JavaScript.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use polyrank::distributed::{
    InitOptions, destroy_process_group, get_pg_count, is_initialized, join_group,
};
use polyrank::{Error, ProcessGroup, Result};

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let (rank, size) = (number("RANK"), number("WORLD_SIZE"));
    let options = InitOptions::default().timeout(MINUTE);
    let weights = join_group("weights", options.clone().version("7"))?;
    let views = join_group("views", options.clone())?;
    assert!(!is_initialized());
    assert_eq!(weights.group_name(), "weights");
    for group in [&weights, &views] {
        check(group, rank, size)?;
    }
    let twice = join_group("weights", options.clone()).unwrap_err();
    assert!(matches!(twice, Error::DuplicateGroup { group_name } if group_name == "weights"));
    destroy_process_group(Some(&weights))?;
    // The name is free again, and so is who is which rank.
    let other = size - 1 - rank;
    let options = options.store(views.get_group_store()).rank(other).world_size(size);
    let options = options.version("8");
    check(&join_group("weights", options)?, other, size)?;
    if size > 1 {
        compare_versions(rank, size)?;
    }
    println!("Rust rank {rank} of {size}: joined");
    // Without a group's name, all of them are left.
    assert_eq!(get_pg_count(), 2);
    destroy_process_group(None)?;
    assert_eq!(get_pg_count(), 0);
    assert_eq!(destroy_process_group(None), Err(Error::NotInitialized));
    Ok(())
}

/// Reduces numbers of the ranks.
fn check(group: &ProcessGroup, rank: u32, size: u32) -> Result<()> {
    assert_eq!((group.rank(), group.size()), (rank, size));
    let mut tensor = vec![f64::from(rank); 70_001];
    group.allreduce(&mut tensor, ())?;
    let sum = f64::from(size * (size - 1) / 2);
    assert!(tensor.iter().all(|&value| value == sum), "{}, not {sum}", tensor[0]);
    Ok(())
}

/// The last rank comes with a version that nobody else has, until it is told so.
fn compare_versions(rank: u32, size: u32) -> Result<()> {
    let is_last = rank == size - 1;
    let mut refused = !is_last;
    while !refused {
        let options = InitOptions::default().timeout(Duration::from_secs(1)).version("2");
        match join_group("strict", options) {
            Ok(_) => panic!("it joined ranks of another version"),
            // Nobody else was there.
            Err(Error::RendezvousTimeout { .. }) => {}
            Err(error) => {
                assert!(matches!(error, Error::Rendezvous { .. }), "{error:#?}");
                let text = error.to_string();
                let parts = ["'strict'", "version '2'", "version '1'"];
                refused = parts.iter().all(|part| text.contains(part));
                assert!(refused, "{text}");
            }
        }
    }
    let options = || InitOptions::default().timeout(MINUTE).version("1");
    let group = loop {
        match join_group("strict", options()) {
            // The last rank was there first.
            Err(Error::Rendezvous { message }) if !is_last && message.contains("version '2'") => {}
            joined => break joined?,
        }
    };
    check(&group, rank, size)?;
    destroy_process_group(Some(&group))
}
