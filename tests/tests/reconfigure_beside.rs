//! Operations of one thread while another replaces the members of their group.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyrank::process_group::ReconfigureOptions;
use polyrank::{Error, ProcessGroup, ReduceOp, Tensor};
use polyrank_tests::members::{Member, call, handles, world};

/// What the calls of a second thread of each member raise, beside those that replace the members.
fn beside(act: fn(&ProcessGroup) -> Result<(), Error>) -> Vec<Error> {
    let members = world(3);
    let all: Vec<&Member> = members.iter().collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let second = |member: &Member| {
        let (group, is_over) = (member.ask(ProcessGroup::clone).recv().unwrap(), is_over.clone());
        std::thread::spawn(move || {
            let mut errors = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                errors.extend(act(&group).err());
            }
            // The others may wait for this one.
            group.abort();
            errors
        })
    };
    let threads: Vec<_> = all.iter().map(|member| second(member)).collect();
    for uuid in 1..=60 {
        let options = ReconfigureOptions::new(uuid, handles(&all));
        call(&options, &all).into_iter().for_each(Result::unwrap);
    }
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn operations_beside_a_call_raise_what_it_is_and_nothing_else() {
    let allreduce = |group: &ProcessGroup| group.allreduce(&mut [1f32], ReduceOp::Sum);
    let new_window = |group: &ProcessGroup| {
        let window = group.new_window()?;
        window.tensor_register(Tensor::from(vec![0f32; 3]))?;
        window.tensor_deregister()
    };
    for act in [allreduce, new_window] {
        for error in beside(act) {
            let is_told = matches!(
                error,
                Error::Reconfigured { .. }
                    | Error::NoMembers { .. }
                    | Error::Aborted { .. }
                    | Error::RankFailed { .. }
            );
            assert!(is_told, "{error:?}");
        }
    }
}
