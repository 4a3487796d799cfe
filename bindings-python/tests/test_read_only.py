"""Arrays in memory that nobody may write serve every rank that only reads them."""

import mmap
import tempfile

import numpy as np
import pytest

import polyrank
from ranks import Here


def mapped(values) -> np.ndarray:
    """Memory that the system lets nobody write: a write ends the process."""
    with tempfile.TemporaryFile() as file:
        file.write(values.tobytes() or b"\0")
        file.flush()
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memory, values.dtype, count=values.size)


def from_root(root: int) -> polyrank.BroadcastOptions:
    options = polyrank.BroadcastOptions()
    options.root_rank = root
    return options


def read_only_where_it_is_read(here: Here, elements: int):
    expected = np.arange(elements, dtype=np.float64) + 1
    for root in range(here.size):
        given = mapped(expected if here.rank == root else np.zeros(elements))
        assert not given.flags.writeable
        tensor = given if here.rank == root else np.zeros(elements)
        here.group.broadcast(tensor, root).wait()
        assert (tensor == expected).all()
        tensors = [tensor] if here.rank != root else [given, np.zeros(elements)]
        here.group.broadcast(tensors, from_root(root)).wait()
        assert all((tensor == expected).all() for tensor in tensors)
        # Strided: the root's copy is not copied back.
        strided = mapped(np.repeat(expected, 2))[::2] if here.rank == root else tensor
        here.group.broadcast(strided, root).wait()
        SUM, AVG = polyrank.ReduceOp.SUM, polyrank.ReduceOp.AVG
        for op, times in (SUM, here.size), (AVG, 1), (polyrank.premul_sum(0.5), here.size / 2):
            tensor = expected.copy() if here.rank == root else mapped(expected)
            here.group.reduce(tensor, root, op=op).wait()
            assert np.allclose(tensor, expected * (times if here.rank == root else 1)), op
    if here.size == 1 or elements == 0:
        return
    # Refused here, before anybody waits: the others do not call.
    other = (here.rank + 1) % here.size
    refused = f"rank {here.rank}, which is not the root {other}, writes it"
    with pytest.raises(ValueError, match=refused):
        here.group.broadcast(mapped(expected), other)
    with pytest.raises(ValueError, match=f"rank {here.rank}, the root, writes"):
        here.group.reduce(mapped(expected), here.rank)
    with pytest.raises(ValueError, match=f"rank {here.rank}, the root, writes"):
        here.group.broadcast([expected.copy(), mapped(expected)], from_root(here.rank))


@pytest.mark.parametrize("elements", [0, 1, 7, 100_001])
def test_read_only_memory_serves_a_rank_that_only_reads(world, elements):
    world.run(read_only_where_it_is_read, elements)
