"""Every operation, in its forms, as a function of a `Turn`: arguments, call, and what must come.

Knows nothing of sequences.
"""

from functools import partial

import numpy as np

import polyrank
import polyrank.distributed as dist
from oracles import same
from turns import TAGS, total


def all_reduce(turn):
    # Ranks cut the tensor, so that its parts have the lengths that matter, or itself.
    count = turn.count(turn.size) * turn.shared.choice([1, turn.size])
    tensor = turn.changed(turn.data(turn.rank, count), partial(turn.total, count))
    if turn.free:
        return dist.all_reduce(tensor, turn.operator, async_op=turn.later)
    return turn.group.allreduce(tensor, turn.operator)


def all_reduce_of_a_list(turn):
    """Reduces over the ranks and over the list."""
    if turn.op not in ("MIN", "MAX"):
        turn.op = "SUM"
    count, parts = turn.count(3), range(3)

    def expected():
        return total(turn.op, [turn.data(r, count, p) for r in range(turn.size) for p in parts])

    several = [turn.changed(turn.data(turn.rank, count, part), expected) for part in parts]
    return turn.group.allreduce(several, turn.operator)


def all_reduce_coalesced(turn):
    several = [
        turn.changed(turn.data(turn.rank, count, part), partial(turn.total, count, part))
        for part, count in enumerate(turn.counts(3))
    ]
    if turn.free:
        return dist.all_reduce_coalesced(several, turn.operator, async_op=turn.later)
    options = polyrank.AllreduceCoalescedOptions()
    options.reduce_op = turn.operator
    return turn.group.allreduce_coalesced(several, options)


def prepared(turn):
    """Each rank prepares it, or takes part by ordinary calls."""
    count, rounds = turn.count(), 3
    tensor = turn.place(turn.data(turn.rank, count))
    operation = None
    if turn.dice.random() < 0.5:
        operation = turn.group.prepare_allreduce(tensor, turn.operator)
    for part in range(rounds):
        tensor[...] = turn.data(turn.rank, count, part)
        if operation and not turn.later and turn.dice.random() < 0.3:
            work = operation.run()
            same(tensor, turn.total(count, part), (turn, part))
            continue
        work = operation.start() if operation else dist.all_reduce(tensor, turn.operator)
        if part == rounds - 1 and turn.later:
            break
        if operation and turn.dice.random() < 0.5:
            operation.wait()
        elif work:
            work.wait()
        same(tensor, turn.total(count, part), (turn, part))
    turn.expect(tensor, partial(turn.total, count, rounds - 1))
    return work


def broadcast(turn):
    count = turn.count()
    expected = partial(turn.data, turn.root, count)
    tensor = turn.changed(turn.data(turn.rank, count), expected)
    form = turn.dice.randrange(4)
    if form == 0:
        return dist.broadcast(tensor, turn.root, async_op=turn.later)
    if form == 1:
        return dist.broadcast(tensor, group_src=turn.root, async_op=turn.later)
    if form == 2:
        return turn.group.broadcast_one(tensor, turn.root)
    return turn.group.broadcast(tensor, turn.root)


def reduce(turn):
    count = turn.count()
    own = turn.data(turn.rank, count)
    is_root = turn.rank == turn.root
    tensor = turn.changed(own, partial(turn.total, count) if is_root else lambda: own)
    if turn.free:
        return dist.reduce(tensor, turn.root, turn.operator, async_op=turn.later)
    return turn.group.reduce(tensor, turn.root, turn.operator)


def rooms(turn, counts, part=0):
    """One output for each rank's tensor."""
    return [
        turn.room(count, partial(turn.data, rank, count, part))
        for rank, count in enumerate(counts)
    ]


def all_gather(turn):
    counts = turn.counts(turn.size)
    outputs = rooms(turn, counts)
    given = turn.given(turn.data(turn.rank, counts[turn.rank]))
    if turn.free:
        return dist.all_gather(outputs, given, async_op=turn.later)
    return turn.group.allgather(outputs, given)


def all_gather_coalesced(turn):
    several = [turn.counts(2 * turn.size)[: turn.size] for _ in range(2)]
    by_input = [rooms(turn, counts, part) for part, counts in enumerate(several)]
    outputs = [list(of_rank) for of_rank in zip(*by_input)]
    inputs = [
        turn.given(turn.data(turn.rank, counts[turn.rank], part))
        for part, counts in enumerate(several)
    ]
    if turn.free:
        return dist.all_gather_coalesced(outputs, inputs, async_op=turn.later)
    return turn.group.allgather_coalesced(outputs, inputs)


def all_gather_single(turn):
    count = turn.count(turn.size)
    output = turn.room(count * turn.size, partial(turn.joined, count))
    given = turn.given(turn.data(turn.rank, count))
    if turn.free:
        return dist.all_gather_into_tensor(output, given, async_op=turn.later)
    return turn.group.all_gather_single(output, given)


def all_gather_single_coalesced(turn):
    counts = [turn.count(3 * turn.size) for _ in range(3)]
    outputs = [
        turn.room(count * turn.size, partial(turn.joined, count, part))
        for part, count in enumerate(counts)
    ]
    inputs = [
        turn.given(turn.data(turn.rank, count, part)) for part, count in enumerate(counts)
    ]
    return turn.group.all_gather_single_coalesced(outputs, inputs)


def gather(turn):
    counts = turn.counts(turn.size)
    is_root = turn.rank == turn.root
    outputs = rooms(turn, counts) if is_root else []
    given = turn.given(turn.data(turn.rank, counts[turn.rank]))
    if turn.free:
        return dist.gather(given, outputs if is_root else None, turn.root, async_op=turn.later)
    return turn.group.gather(outputs, given, turn.root)


def gather_single(turn):
    count = turn.count(turn.size)
    output = None
    if turn.rank == turn.root:
        output = turn.room(count * turn.size, partial(turn.joined, count))
    options = polyrank.GatherOptions()
    options.root_rank = turn.root
    return turn.group.gather_single(output, turn.given(turn.data(turn.rank, count)), options)


def scatter(turn):
    counts = turn.counts(turn.size)
    inputs = []
    if turn.rank == turn.root:
        inputs = [turn.given(turn.data(r, count)) for r, count in enumerate(counts)]
    own = counts[turn.rank]
    output = turn.room(own, partial(turn.data, turn.rank, own))
    if turn.free:
        return dist.scatter(output, inputs or None, turn.root, async_op=turn.later)
    return turn.group.scatter(output, inputs, turn.root)


def reduce_scatter(turn):
    counts = turn.counts(turn.size)
    inputs = [turn.given(turn.data(turn.rank, n, part)) for part, n in enumerate(counts)]
    own = counts[turn.rank]
    output = turn.room(own, partial(turn.total, own, turn.rank))
    if turn.free:
        return dist.reduce_scatter(output, inputs, turn.operator, async_op=turn.later)
    return turn.group.reduce_scatter(output, inputs, turn.operator)


def reduce_scatter_single(turn):
    count = turn.count(turn.size)
    given = turn.given(turn.data(turn.rank, count * turn.size))
    output = turn.room(count, partial(turn.slice, count))
    if turn.free:
        return dist.reduce_scatter_tensor(output, given, turn.operator, async_op=turn.later)
    return turn.group.reduce_scatter_single(output, given, turn.operator)


def reduce_scatter_single_coalesced(turn):
    counts = [turn.count(3 * turn.size) for _ in range(3)]
    inputs = [
        turn.given(turn.data(turn.rank, count * turn.size, part))
        for part, count in enumerate(counts)
    ]
    outputs = [
        turn.room(count, partial(turn.slice, count, part)) for part, count in enumerate(counts)
    ]
    options = polyrank.ReduceScatterOptions()
    options.reduce_op = turn.operator
    return turn.group.reduce_scatter_single_coalesced(outputs, inputs, options)


def all_to_all(turn):
    blocks, ranks = turn.blocks(), range(turn.size)
    inputs = [turn.given(turn.data(turn.rank, blocks[turn.rank][r], r)) for r in ranks]
    outputs = []
    for sender in ranks:
        count = blocks[sender][turn.rank]
        outputs.append(turn.room(count, partial(turn.data, sender, count, turn.rank)))
    if turn.free:
        return dist.all_to_all(outputs, inputs, async_op=turn.later)
    return turn.group.alltoall(outputs, inputs)


def all_to_all_single(turn):
    if turn.shared.random() < 0.5:
        blocks = [[turn.count(turn.size)] * turn.size] * turn.size
        splits = []
    else:
        blocks = turn.blocks()
        splits = [[row[turn.rank] for row in blocks], blocks[turn.rank]]

    def sent(sender, receiver):
        return turn.data(sender, blocks[sender][receiver], receiver)

    ranks = range(turn.size)
    given = turn.given(np.concatenate([sent(turn.rank, r) for r in ranks]))
    count = sum(row[turn.rank] for row in blocks)
    output = turn.room(count, lambda: np.concatenate([sent(r, turn.rank) for r in ranks]))
    if turn.free:
        return dist.all_to_all_single(output, given, *splits, async_op=turn.later)
    return turn.group.all_to_all_single(output, given, *splits)


def barrier(turn):
    if turn.shared.random() < 0.2:
        return turn.group.monitored_barrier()
    return dist.barrier(async_op=turn.later) if turn.free else turn.group.barrier()


def objects(turn):
    """Objects of all ranks, by one of the functions for them."""
    lengths = [turn.shared.choice([0, 1, 100, 70_000]) for _ in range(turn.size)]
    everyone = [[rank, "x" * length, {"n": None}] for rank, length in enumerate(lengths)]
    own, is_root = everyone[turn.rank], turn.rank == turn.root
    got = [None] * turn.size
    form = turn.shared.randrange(5 if turn.size > 1 else 4)
    if form == 0:
        dist.all_gather_object(got, own)
        assert got == everyone
    elif form == 1:
        got = list(everyone) if is_root else got
        dist.broadcast_object_list(got, turn.root)
        assert got == everyone
    elif form == 2:
        dist.gather_object(own, got if is_root else None, turn.root)
        assert got == (everyone if is_root else [None] * turn.size)
    elif form == 3:
        output = [None]
        dist.scatter_object_list(output, everyone if is_root else None, turn.root)
        assert output == [own]
    elif is_root:
        dist.send_object_list(everyone, (turn.root + 1) % turn.size)
    elif turn.rank == (turn.root + 1) % turn.size:
        assert dist.recv_object_list(got, turn.root) == turn.root
        assert got == everyone


def send(turn, tensor, receiver, tag):
    if turn.free:
        return (dist.isend if turn.later else dist.send)(tensor, receiver, tag=tag)
    work = turn.group.send([tensor], receiver, tag)
    return work if turn.later or not work.wait() else None


def messages(turn):
    """Those who wait immediately take them in order; others may ask for one tag before another."""
    own = [(n, m) for n, m in enumerate(turn.messages()) if turn.rank in m[:2]]
    if turn.later:
        order = turn.dice.sample(range(TAGS), TAGS)
        own.sort(key=lambda entry: order[entry[1][2]])
    works = []
    for part, (sender, receiver, tag, count) in own:
        if sender == turn.rank:
            tensor = turn.given(turn.data(sender, count, part))
            works.append(send(turn, tensor, receiver, tag))
            continue
        tensor = turn.room(count, partial(turn.data, sender, count, part))
        if not turn.later:
            assert dist.recv(tensor, sender, tag=tag) == sender
        elif turn.free:
            works.append(dist.irecv(tensor, sender, tag=tag))
        else:
            works.append(turn.group.recv([tensor], sender, tag))
    return works


def batch(turn):
    operations = []
    for part, (sender, receiver, tag, count) in enumerate(turn.messages()):
        if turn.rank == sender:
            tensor = turn.given(turn.data(sender, count, part))
            operations.append(dist.P2POp(dist.isend, tensor, receiver, tag=tag))
        elif turn.rank == receiver:
            tensor = turn.room(count, partial(turn.data, sender, count, part))
            operations.append(dist.P2POp(dist.irecv, tensor, sender, tag=tag))
    return list(dist.batch_isend_irecv(operations)) if operations else []


def from_anyone(turn):
    # No other message has the tag, or it could be taken for one of these.
    tag, count = TAGS + turn.number, turn.count(turn.size)
    if turn.rank != turn.root:
        return send(turn, turn.given(turn.data(turn.rank, count)), turn.root, tag)
    works = []
    for _ in range(turn.size - 1):
        tensor = turn.place(turn.data(turn.size, count))
        if not turn.later:
            sender = dist.recv(tensor, tag=tag)
            turn.expect(tensor, partial(turn.data, sender, count))
            continue
        if turn.free:
            work = dist.irecv(tensor, tag=tag)
        else:
            work = turn.group.recv_anysource([tensor], tag)
        turn.expect(tensor, lambda work=work: turn.data(work.source_rank(), count))
        works.append(work)
    return works


# What a single rank can do too, and what takes two.
ALONE = [
    all_reduce,
    all_reduce_of_a_list,
    all_reduce_coalesced,
    prepared,
    broadcast,
    reduce,
    all_gather,
    all_gather_coalesced,
    all_gather_single,
    all_gather_single_coalesced,
    gather,
    gather_single,
    scatter,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_single_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    objects,
]
TOGETHER = [messages, messages, batch, from_anyone]


def possible(size):
    return ALONE if size == 1 else ALONE + TOGETHER
