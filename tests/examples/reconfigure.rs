//! A Rust rank of a group whose members change, step by step. What the steps are is written in
//! `tests/reconfigure/run.py`.

use std::error::Error;
use std::time::Duration;

use polyrank::distributed::{
    InitOptions, NewGroupOptions, barrier, destroy_process_group, init_process_group, new_group,
};
use polyrank::process_group::{ConfigureOptions, ReconfigureOptions};
use polyrank::{ProcessGroup, ReduceOp};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let world = init_process_group(InitOptions::default().timeout(LIMIT))?;
    let (rank, size) = (world.rank(), world.size());
    let store = world.get_group_store();
    let group = new_group(NewGroupOptions::default().enable_reconfigure(true))?;
    let group = group.ok_or("everybody gets a group without members")?;
    assert!(group.supports_reconfigure());
    let refused = group.allreduce(&mut [1.0f64][..], ReduceOp::Sum);
    assert!(matches!(refused, Err(polyrank::Error::NoMembers { .. })), "{refused:?}");
    let mut done = 0;
    for (uuid, sides) in steps(size).into_iter().enumerate() {
        let handle = group.get_reconfigure_handle()?;
        store.set(&format!("handle/{uuid}/{rank}"), handle.as_bytes())?;
        for members in sides.into_iter().filter(|members| members.contains(&rank)) {
            let mut handles = Vec::new();
            for one in &members {
                let handle = store.get(&format!("handle/{uuid}/{one}"))?;
                handles.push(String::from_utf8(handle)?);
            }
            let options = ReconfigureOptions::new(uuid as i64, handles).timeout(LIMIT);
            group.reconfigure(options)?.wait(None)?;
            check(&group, &members, rank)?;
            done += 1;
        }
    }
    let address = format!("{}:{}", std::env::var("MASTER_ADDR")?, std::env::var("MASTER_PORT")?);
    for (quorum, sides) in steps(size).into_iter().enumerate() {
        for (side, members) in sides.into_iter().enumerate() {
            let Some(place) = members.iter().position(|&one| one == rank) else { continue };
            let prefix = format!("{address}/quorum/{quorum}/{side}");
            let mut options = ConfigureOptions::new(prefix, place as u32, members.len() as u32);
            if quorum % 2 == 0 {
                options = options.replica_id(format!("replica {rank}")).quorum_id(quorum as i64);
                options = options.global_ranks(members.clone());
            }
            group.configure(options.timeout(LIMIT))?;
            check(&group, &members, rank)?;
            done += 1;
        }
    }
    println!("Rust rank {rank} of {size}: {done} steps");
    barrier(())?;
    destroy_process_group(None)?;
    Ok(())
}

/// The members of each step, as sets that do not meet: most steps have one.
fn steps(size: u32) -> Vec<Vec<Vec<u32>>> {
    let everyone: Vec<u32> = (0..size).collect();
    let every = |remainder| everyone.iter().copied().filter(|it| it % 2 == remainder).collect();
    let is_alone = size == 1;
    let mut turned = everyone.clone();
    turned.rotate_left(1);
    vec![
        vec![everyone.clone()],
        vec![if is_alone { everyone.clone() } else { everyone[1..].to_vec() }],
        vec![everyone.iter().rev().copied().collect()],
        if is_alone { vec![everyone.clone()] } else { vec![every(0), every(1)] },
        vec![turned],
    ]
}

/// Reduces numbers of the ranks, short and long.
fn check(group: &ProcessGroup, members: &[u32], rank: u32) -> polyrank::Result<()> {
    let place = members.iter().position(|&one| one == rank);
    assert_eq!((Some(group.rank() as usize), group.size() as usize), (place, members.len()));
    let sum = f64::from(members.iter().sum::<u32>());
    for elements in [1, 50_000] {
        let mut tensor = vec![f64::from(rank); elements];
        group.allreduce(&mut tensor, ReduceOp::Sum)?;
        assert!(tensor.iter().all(|&value| value == sum), "{} instead of {sum}", tensor[0]);
    }
    Ok(())
}
