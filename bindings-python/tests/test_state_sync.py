"""`sync_state`: tensors that are made the same on all ranks."""

import numpy as np
import pytest

import polyrank
from oracles import same, values

COUNTS = [0, 1, 1001, 200_003]
DTYPES = ["bool", "uint8", "int16", "float16", "float32", "float64", "complex128"]


def what_most_have(here):
    odd_one = here.size - 1
    for dtype in DTYPES:
        own = [values(7, count, dtype) for count in COUNTS]
        if here.rank == odd_one:
            own = [values(3, count, dtype) for count in COUNTS]
        work = here.group.sync_state(own)
        assert work.wait() is True and work.result()[0] is own[0]
        # Of two states that are as frequent, that of rank 0 holds.
        right = 7 if here.size > 1 else 3
        for tensor, count in zip(own, COUNTS):
            same(tensor, values(right, count, dtype), (dtype, count))


def test_what_most_have(world):
    world.run(what_most_have)


def views_and_bytes(here):
    memory = np.full((6, 9), here.rank, np.float32)
    view, buffer = memory[::2, 1::3], bytearray([here.rank] * 5)
    here.group.sync_state([view, memory[1].T, buffer]).wait()
    whole = np.full((6, 9), here.rank, np.float32)
    whole[::2, 1::3] = whole[1] = 0
    same(memory, whole)
    assert buffer == bytearray(5)


def test_views_and_bytes(trio):
    trio.run(views_and_bytes)


def what_is_wrong(here):
    with pytest.raises(polyrank.CollectiveMismatchError, match="sync_state.*2 tensors"):
        here.group.sync_state([np.zeros(3 + here.rank), np.zeros(1)]).wait()
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(polyrank.PolyrankError, match="read-only"):
        here.group.sync_state([frozen])
    with pytest.raises(polyrank.InvalidTypeError, match="sync_state"):
        here.group.sync_state([1, 2])
    # Nothing is broken.
    here.group.barrier().wait()


def test_what_is_wrong(pair):
    pair.run(what_is_wrong)
