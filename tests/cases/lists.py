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
    return wrong


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
