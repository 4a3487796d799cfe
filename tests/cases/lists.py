"""Calls in which one rank gives several tensors, in Python: README.md says what they are.

Knows nothing of how a collective is run.
"""

import itertools

import numpy as np
import polyrank as pr

SENTINEL = -7


def lists(group):
    """What differs from what these calls must leave, a line for each call that did."""
    rank, world = group.rank(), group.size()
    wrong = []
    for call in calls(world):
        method, count, elements, step, root, root_tensor = call
        memories, tensors = [], []
        for tensor in range(count):
            memories.append(np.full(elements * step, SENTINEL, np.int32))
            tensors.append(memories[-1][::step])
            tensors[-1][:] = before(elements, rank, tensor)
        if method == "allreduce":
            group.allreduce(tensors).wait()
        else:
            kind = pr.BroadcastOptions if method == "broadcast" else pr.ReduceOptions
            options = kind(root_rank=root, root_tensor=root_tensor)
            getattr(group, method)(tensors, options).wait()
        for tensor, memory in enumerate(memories):
            expected = np.full(elements * step, SENTINEL, np.int32)
            expected[::step] = outcome(call, rank, tensor, world)
            if not np.array_equal(memory, expected):
                wrong.append(f"{call}, tensor {tensor}: expected {expected}, got {memory}")
    for call in itertools.product(["allgather", "reduce_scatter"], [1, 2, 3], [0, 1, 5], [1, 2]):
        wrong.extend(blocks(group, *call))
    return wrong


def blocks(group, method, count, elements, step):
    """What differs after a call with a place for each tensor of each rank in every list."""
    rank, world = group.rank(), group.size()
    places = range(count * world)
    makes = [[np.full(elements * step, SENTINEL, np.int32) for _ in places] for _ in range(count)]
    flat = [np.full(elements * step, SENTINEL, np.int32) for _ in range(count)]

    def expected(values):
        memory = np.full(elements * step, SENTINEL, np.int32)
        memory[::step] = values
        return memory

    def part(rank, index, place):
        return before(elements, rank, index) + 10 * place

    if method == "allgather":
        for tensor, memory in enumerate(flat):
            memory[::step] = before(elements, rank, tensor)
        outputs = [[memory[::step] for memory in memories] for memories in makes]
        group.allgather(outputs, [memory[::step] for memory in flat]).wait()
        gathered = [expected(before(elements, place // count, place % count)) for place in places]
        pairs = [pair for memories in makes for pair in zip(memories, gathered, strict=True)]
    else:
        for index, memories in enumerate(makes):
            for place, memory in enumerate(memories):
                memory[::step] = part(rank, index, place)
        inputs = [[memory[::step] for memory in memories] for memories in makes]
        group.reduce_scatter([memory[::step] for memory in flat], inputs).wait()
        everything = list(itertools.product(range(world), range(count)))
        mine = [count * rank + tensor for tensor in range(count)]
        sums = [sum(part(*where, place) for where in everything) for place in mine]
        pairs = list(zip(flat, map(expected, sums), strict=True))
    call = (method, count, elements, step)
    return [f"{call}: expected {b}, got {a}" for a, b in pairs if not np.array_equal(a, b)]


def calls(world):
    """Method, tensors of a rank, elements of a tensor, stride, root, and its tensor."""
    for count, elements, step in itertools.product([1, 2, 3], [0, 1, 5], [1, 2]):
        yield "allreduce", count, elements, step, 0, 0
        for root, root_tensor in itertools.product({0, world - 1}, range(count)):
            for method in ["broadcast", "reduce"]:
                yield method, count, elements, step, root, root_tensor


def before(elements, rank, tensor):
    """What a tensor holds before the call."""
    return 1000 * rank + 100 * tensor + np.arange(elements, dtype=np.int32)


def outcome(call, rank, tensor, world):
    """What it holds afterwards."""
    method, count, elements, _, root, root_tensor = call
    if method == "broadcast":
        return before(elements, root, root_tensor)
    if method == "reduce" and (rank, tensor) != (root, root_tensor):
        return before(elements, rank, tensor)
    everything = itertools.product(range(world), range(count))
    parts = [before(elements, *where) for where in everything]
    return np.sum(parts, axis=0, dtype=np.int32)
