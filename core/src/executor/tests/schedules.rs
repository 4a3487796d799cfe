//! Schedules built by hand, so that these tests depend on no other module.

use std::sync::Arc;

use crate::schedule::{Action, Block, Buffer, Chunk, Operands, Rank, Schedule, Scratch, Step};

pub(super) fn part(buffer: Buffer, index: u32, part: u32, parts: u32) -> Chunk {
    Chunk { block: Block { buffer, index }, part, count: 1, parts }
}

fn step(action: Action, after: &[u32]) -> Step {
    Step { action, after: after.to_vec() }
}

/// An allreduce in place on output block 0: reduce-scatter and allgather around a ring.
pub(super) fn ring_allreduce(rank: Rank, size: u32) -> Arc<Schedule> {
    let mut steps = Vec::new();
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let chunk = |index: u32| part(Buffer::Output, 0, index % size, size);
    // The steps that touched each chunk last: what came is sent on, what was sent is overwritten.
    let mut last = vec![None; size as usize];
    let after = |last: &[Option<u32>], index: u32| -> Vec<u32> {
        last[(index % size) as usize].into_iter().collect()
    };
    for round in 0..2 * (size - 1) {
        let sent = rank + 2 * size - round;
        let received = sent - 1;
        let reducing = round < size - 1;
        let from = chunk(sent);
        steps.push(step(Action::Send { peer: next, from }, &after(&last, sent)));
        last[(sent % size) as usize] = Some(steps.len() as u32 - 1);
        let (peer, into) = (previous, chunk(received));
        let action = if reducing {
            Action::RecvReduce { peer, local: into, into, operands: Operands::LocalFirst }
        } else {
            Action::Recv { peer, into }
        };
        steps.push(step(action, &after(&last, received)));
        last[(received % size) as usize] = Some(steps.len() as u32 - 1);
    }
    Arc::new(Schedule { steps, scratch: Vec::new() })
}

/// A broadcast of output block 0 along the chain root, root + 1, …
pub(super) fn chain_broadcast(rank: Rank, size: u32, root: Rank) -> Arc<Schedule> {
    let place = (rank + size - root) % size;
    let chunk = part(Buffer::Output, 0, 0, 1);
    let mut steps = Vec::new();
    if place > 0 {
        let peer = (rank + size - 1) % size;
        steps.push(step(Action::Recv { peer, into: chunk }, &[]));
    }
    if place + 1 < size {
        let after = if place > 0 { &[0][..] } else { &[] };
        steps.push(step(Action::Send { peer: (rank + 1) % size, from: chunk }, after));
    }
    Arc::new(Schedule { steps, scratch: Vec::new() })
}

/// A reduction of input block 0 to output block 0 of rank 0: everybody sends to rank 0, which
/// receives each into scratch and adds it up.
pub(super) fn flat_reduce(rank: Rank, size: u32) -> Arc<Schedule> {
    let input = part(Buffer::Input, 0, 0, 1);
    if rank > 0 {
        return Arc::new(Schedule {
            steps: vec![step(Action::Send { peer: 0, from: input }, &[])],
            scratch: Vec::new(),
        });
    }
    let output = part(Buffer::Output, 0, 0, 1);
    let mut steps = vec![step(Action::Copy { from: input, into: output }, &[])];
    let mut scratch = Vec::new();
    for peer in 1..size {
        let from = part(Buffer::Scratch, peer - 1, 0, 1);
        scratch.push(Scratch { like: Block::input(0), times: 1 });
        let last = steps.len() as u32 - 1;
        steps.push(step(Action::Recv { peer, into: from }, &[]));
        let reduce = Action::Reduce { from, into: output, operands: Operands::LocalFirst };
        steps.push(step(reduce, &[last, last + 1]));
    }
    Arc::new(Schedule { steps, scratch })
}

/// Every rank's input block 0 into every rank's output block of that rank, directly.
pub(super) fn direct_allgather(rank: Rank, size: u32) -> Arc<Schedule> {
    let input = part(Buffer::Input, 0, 0, 1);
    let own = part(Buffer::Output, rank, 0, 1);
    let mut steps = vec![step(Action::Copy { from: input, into: own }, &[])];
    for peer in (0..size).filter(|&peer| peer != rank) {
        steps.push(step(Action::Send { peer, from: input }, &[]));
        let into = part(Buffer::Output, peer, 0, 1);
        steps.push(step(Action::Recv { peer, into }, &[]));
    }
    Arc::new(Schedule { steps, scratch: Vec::new() })
}

/// Nobody leaves before everybody came: dissemination with empty messages.
pub(super) fn barrier(rank: Rank, size: u32) -> Arc<Schedule> {
    let empty =
        Chunk { block: Block { buffer: Buffer::Output, index: 0 }, part: 0, count: 0, parts: 1 };
    let mut steps: Vec<Step> = Vec::new();
    let mut distance = 1;
    while distance < size {
        let after: Vec<u32> = (0..steps.len() as u32).collect();
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        steps.push(step(Action::Send { peer: to, from: empty }, &after));
        steps.push(step(Action::Recv { peer: from, into: empty }, &after));
        distance *= 2;
    }
    Arc::new(Schedule { steps, scratch: Vec::new() })
}
