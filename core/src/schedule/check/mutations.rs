//! Breaks schedules on purpose: the checker must find every mistake, and say where it is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{Flaw, Sizes, check_schedules};
use crate::generated::collective::Collective;
use crate::schedule::{Action, Block, Chunk, Operands, Schedule, Scratch, Step, Topology};

fn schedules(collective: Collective, algorithm: &str, size: u32) -> Vec<Schedule> {
    let found = collective.algorithms().iter().find(|known| known.name == algorithm);
    found.expect("an algorithm of that name").schedules(0, &Topology::one_host(size))
}

fn ring(size: u32) -> Vec<Schedule> {
    schedules(Collective::Allreduce, "ring", size)
}

fn flaw(collective: Collective, schedules: &[Schedule]) -> Flaw {
    check_schedules(collective.contract(), 0, schedules, Sizes::AnyAgreed).expect_err("a flaw")
}

fn message(collective: Collective, schedules: &[Schedule]) -> String {
    flaw(collective, schedules).to_string()
}

/// A schedule whose steps wait for those given.
fn steps(actions: impl IntoIterator<Item = (Action, Vec<u32>)>) -> Schedule {
    let steps = actions.into_iter().map(|(action, after)| Step { action, after }).collect();
    Schedule { steps, scratch: vec![] }
}

const WHOLE: Chunk = Block::output(0).whole();

fn send(peer: u32) -> Action {
    Action::Send { peer, from: WHOLE }
}

fn recv_reduce(peer: u32) -> Action {
    Action::RecvReduce { peer, local: WHOLE, into: WHOLE, operands: Operands::LocalFirst }
}

#[test]
fn every_dropped_dependency_is_found() {
    for (collective, algorithm) in [
        (Collective::Allreduce, "ring"),
        (Collective::Allreduce, "one_shot"),
        (Collective::Allreduce, "two_shot"),
        (Collective::Allreduce, "recursive_doubling"),
        (Collective::Allreduce, "halving_doubling"),
        (Collective::Broadcast, "scatter_allgather"),
        (Collective::Reduce, "binomial"),
        (Collective::ReduceScatter, "ring"),
        (Collective::Allgather, "bruck"),
        (Collective::Barrier, "dissemination"),
        (Collective::Scan, "doubling"),
        (Collective::Exscan, "doubling"),
        (Collective::Exscan, "chain"),
    ] {
        // A power of two, with which a barrier has no message that it could do without.
        let good = schedules(collective, algorithm, 8);
        let mut dropped = 0;
        for rank in 0..good.len() {
            for step in 0..good[rank].steps.len() {
                for place in 0..good[rank].steps[step].after.len() {
                    let mut broken = good.clone();
                    broken[rank].steps[step].after.remove(place);
                    let found =
                        check_schedules(collective.contract(), 0, &broken, Sizes::AnyAgreed);
                    assert!(found.is_err(), "{algorithm}, rank {rank} step {step}, {place}");
                    dropped += 1;
                }
            }
        }
        assert!(dropped > 0, "{algorithm} has no dependencies");
    }
}

#[test]
fn a_dropped_dependency_names_rank_step_and_chunks() {
    let mut broken = ring(3);
    // Step 2 of the ring sends the part that step 1 has summed.
    broken[1].steps[2].after.clear();
    assert_eq!(
        message(Collective::Allreduce, &broken),
        "rank 1 step 2 (send output[0] part 0 of 3 to rank 2): reads output[0] part 0 of 3 \
         without waiting for step 1 (receive and reduce output[0] part 0 of 3 = rank 0's + \
         output[0] part 0 of 3), which writes output[0] part 0 of 3"
    );
}

#[test]
fn writing_what_is_still_being_sent_is_found() {
    let pair = [
        steps([(send(1), vec![]), (recv_reduce(1), vec![])]),
        steps([(send(0), vec![]), (recv_reduce(0), vec![])]),
    ];
    assert_eq!(
        message(Collective::Allreduce, &pair),
        "rank 0 step 1 (receive and reduce output[0] = output[0] + rank 1's): writes output[0] \
         without waiting for step 0 (send output[0] to rank 1), which reads output[0]"
    );
}

#[test]
fn ranks_that_wait_for_one_another_are_found() {
    // Right only if the network buffers a message: neither receives before it has sent.
    let pair = [
        steps([(send(1), vec![]), (recv_reduce(1), vec![0])]),
        steps([(send(0), vec![]), (recv_reduce(0), vec![0])]),
    ];
    let found = message(Collective::Allreduce, &pair);
    assert!(found.contains("deadlock") && found.contains("rank 1"), "{found}");
}

#[test]
fn a_wrong_peer_is_found() {
    let mut broken = ring(4);
    if let Action::Send { peer, .. } = &mut broken[2].steps[0].action {
        *peer = 0;
    }
    let found = message(Collective::Allreduce, &broken);
    assert!(found.contains("has no partner") || found.contains("another size"), "{found}");

    for wrong in [2, 4, 99] {
        let mut broken = ring(4);
        if let Action::Send { peer, .. } = &mut broken[2].steps[0].action {
            *peer = wrong;
        }
        let found = message(Collective::Allreduce, &broken);
        assert!(found.starts_with("rank 2 step 0"), "{found}");
        assert!(found.contains(&format!("rank {wrong} is not a peer of it")), "{found}");
    }
}

#[test]
fn a_missing_step_is_found() {
    let mut broken = ring(4);
    let last = broken[3].steps.pop();
    assert!(matches!(last, Some(Step { action: Action::Recv { .. }, .. })));
    assert_eq!(
        message(Collective::Allreduce, &broken),
        "rank 2 step 10 (send output[0] part 1 of 4 to rank 3): has no partner: the other rank has \
         fewer messages of this pair"
    );
}

#[test]
fn swapped_chunks_are_found() {
    // Every rank sends two parts of equal numerators the other way round: sizes differ by rounding.
    let mut broken = ring(4);
    let (first, second) = (broken[0].steps[0].action, broken[0].steps[2].action);
    broken[0].steps[0].action = second;
    broken[0].steps[2].action = first;
    broken[0].steps[2].after.clear();
    let found = message(Collective::Allreduce, &broken);
    assert!(found.contains("which has another size"), "{found}");
}

#[test]
fn data_of_the_wrong_rank_is_found() {
    // Blocks of an alltoall are kept apart by their symbolic sizes already, those of an allgather
    // too; a broadcast that copies the wrong way has equal sizes everywhere.
    let mut broken = schedules(Collective::Reduce, "linear", 3);
    let wrong = Action::RecvReduce {
        peer: 2,
        local: Block::input(0).whole(),
        into: WHOLE,
        operands: Operands::LocalFirst,
    };
    broken[0].steps[1].action = wrong;
    assert_eq!(
        message(Collective::Reduce, &broken),
        "rank 0: at the end, output[0] holds block 0 of rank 0, 0 of rank 2, \
         not block 0 of rank 0, 0 of rank 1, 0 of rank 2"
    );
}

#[test]
fn an_operand_counted_twice_is_found() {
    let mut broken = schedules(Collective::Reduce, "linear", 2);
    let twice = Action::Reduce {
        from: Block::input(0).whole(),
        into: WHOLE,
        operands: Operands::LocalFirst,
    };
    broken[0].steps.push(Step { action: twice, after: vec![0] });
    let found = message(Collective::Reduce, &broken);
    assert!(found.contains("holds block 0 of rank 0, 0 of rank 0, 0 of rank 1"), "{found}");
}

#[test]
fn a_prefix_out_of_order_is_found() {
    let mut broken = schedules(Collective::Scan, "doubling", 3);
    let last = broken[2].steps.iter_mut().rev().map(|step| &mut step.action);
    if let Some(Action::RecvReduce { operands, .. }) = { last }.next() {
        *operands = Operands::LocalFirst;
    }
    assert_eq!(
        message(Collective::Scan, &broken),
        "rank 2: at the end, output[0] holds block 0 of rank 1, 0 of rank 2, 0 of rank 0, \
         not block 0 of rank 0, 0 of rank 1, 0 of rank 2"
    );
}

#[test]
fn another_order_of_operands_is_found() {
    let mut broken = schedules(Collective::Allreduce, "recursive_doubling", 4);
    let step = broken[3].steps.iter_mut().rev();
    let last = step.map(|step| &mut step.action).find(|action| action.sender().is_some());
    if let Some(Action::RecvReduce { operands, .. }) = last {
        *operands = Operands::LocalFirst;
    }
    assert_eq!(
        message(Collective::Allreduce, &broken),
        "rank 3: at the end, output[0] part 0 of 1 is reduced in another order than on rank 0"
            .replace(" part 0 of 1", "")
    );
}

#[test]
fn reading_what_nobody_wrote_is_found() {
    let broken = [
        steps([(Action::Send { peer: 1, from: WHOLE }, vec![])]),
        steps([(Action::Recv { peer: 0, into: WHOLE }, vec![])]),
    ];
    let contract = Collective::Broadcast.contract();
    let found =
        check_schedules(contract, 1, &broken, Sizes::AnyAgreed).expect_err("a flaw").to_string();
    let expected = "rank 0 step 0 (send output[0] to rank 1): reads output[0], where nothing has \
                    been written yet";
    assert_eq!(found, expected);
}

#[test]
fn a_barrier_that_can_be_left_early_is_found() {
    let mut broken = schedules(Collective::Barrier, "dissemination", 4);
    for schedule in &mut broken {
        schedule.steps.truncate(2);
    }
    assert_eq!(
        message(Collective::Barrier, &broken),
        "rank 0: can leave the barrier before rank 1 has come"
    );
}

#[test]
fn mistakes_within_one_step_are_found() {
    let chunks = [
        (Block::output(1).whole(), "output[1]: there is no such block"),
        (Block::output(0).part(3, 3), "output[0] part 3 of 3: there are no such parts"),
        (Block::output(0).part(0, 0), "output[0] part 0 of 0: cannot be cut so"),
        (Block::output(0).span(u32::MAX, 2, 4), "there are no such parts"),
    ];
    for (chunk, expected) in chunks {
        let broken = [
            steps([(Action::Send { peer: 1, from: chunk }, vec![])]),
            steps([(Action::Recv { peer: 0, into: chunk }, vec![])]),
        ];
        let found = message(Collective::Broadcast, &broken);
        assert!(found.contains(expected), "{found}");
    }
    let broken = [steps([(send(1), vec![0])]), steps([(recv_reduce(0), vec![])])];
    let found = message(Collective::Broadcast, &broken);
    assert!(found.contains("waits for step 0, which does not come before it"), "{found}");
}

#[test]
fn writing_an_input_is_found() {
    let own = Block::input(0).whole();
    let broken = [
        steps([(
            Action::RecvReduce { peer: 1, local: own, into: own, operands: Operands::LocalFirst },
            vec![],
        )]),
        steps([(Action::Send { peer: 0, from: own }, vec![])]),
    ];
    let found = message(Collective::Reduce, &broken);
    assert!(found.contains("writes input[0], which belongs to the caller"), "{found}");
}

#[test]
fn blocks_of_different_sizes_cannot_be_exchanged() {
    // Rank 0 sends its own block where rank 1's belongs.
    let mut broken = schedules(Collective::Allgather, "direct", 3);
    let last = broken[2].steps.len() - 1;
    broken[2].steps[last].action = Action::Recv { peer: 0, into: Block::output(1).whole() };
    let found = message(Collective::Allgather, &broken);
    assert!(found.contains("another size") || found.contains("no partner"), "{found}");
}

#[test]
fn segments_do_not_order_chunks_that_only_overlap() {
    // Step 1 hands on, segment by segment, what step 0 receives; step 2 waits for its own segments
    // of step 1 only, but writes what later segments of step 0 still need.
    let scratch = Block { buffer: crate::schedule::Buffer::Scratch, index: 0 };
    let other = Block { index: 1, ..scratch };
    let like_output = Scratch { like: Block::output(0), times: 1 };
    let halves = |block: Block, part| block.part(part, 2);
    let copy = |from, into| Action::Copy { from, into };
    let (low, high) = (Block::output(0).part(0, 2), Block::output(0).part(1, 4));
    let one = Schedule {
        steps: vec![
            Step { action: copy(low, halves(scratch, 0)), after: vec![] },
            Step { action: copy(halves(scratch, 0), halves(other, 0)), after: vec![0] },
            Step { action: copy(other.part(1, 4), high), after: vec![1] },
        ],
        scratch: vec![like_output, like_output],
    };
    // Whole steps are in order here, since the last copy reads another cut.
    assert_eq!(
        check_schedules(Collective::Broadcast.contract(), 0, &[one], Sizes::AnyAgreed),
        Ok(())
    );
    let same = Schedule {
        steps: vec![
            Step { action: copy(low, halves(scratch, 0)), after: vec![] },
            Step { action: copy(halves(scratch, 0), Block::output(0).part(1, 2)), after: vec![0] },
            Step {
                action: copy(halves(scratch, 0), Block::output(0).span(1, 2, 4)),
                after: vec![1],
            },
        ],
        scratch: vec![like_output],
    };
    let found = message(Collective::Broadcast, &[same]);
    assert!(found.contains("different sizes") || found.contains("without waiting"), "{found}");
}
