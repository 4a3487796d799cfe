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
        mine = 4 if here.rank == odd_one else 7
        own = [values(mine, count, dtype) for count in COUNTS]
        before = [tensor.copy() for tensor in own]
        replaced = here.group.sync_state(own)
        # Of two states that are as frequent, that of rank 0 holds.
        expected = [values(7 if here.size > 1 else 4, count, dtype) for count in COUNTS]
        for tensor, right in zip(own, expected):
            same(tensor, right, dtype)
        pairs = enumerate(zip(before, expected))
        differed = [at for at, (had, has) in pairs if had.tobytes() != has.tobytes()]
        assert replaced == differed, dtype
        assert bool(differed) == (here.rank == odd_one and here.size > 1), dtype


def test_what_most_have(world):
    world.run(what_most_have)


def newcomers_who_are_alike(here):
    trained = here.rank == 0
    own = [np.full(1001, 0.5 if trained else 0.0), np.zeros(3)]
    replaced = here.group.sync_state(own, revision=7 if trained else 0, timeout=20)
    assert replaced == ([] if trained else [0])
    same(own[0], np.full(1001, 0.5))


def test_newcomers_who_are_alike(world):
    world.run(newcomers_who_are_alike)


def views_and_bytes(here):
    memory = np.full((6, 9), here.rank, np.float32)
    view, buffer = memory[::2, 1::3], bytearray([here.rank] * 5)
    replaced = here.group.sync_state([view, memory[1].T, buffer])
    assert replaced == ([] if here.rank == 0 else [0, 1, 2])
    whole = np.full((6, 9), here.rank, np.float32)
    whole[::2, 1::3] = whole[1] = 0
    same(memory, whole)
    assert buffer == bytearray(5)


def test_views_and_bytes(trio):
    trio.run(views_and_bytes)


def what_is_wrong(here):
    with pytest.raises(polyrank.InvalidArgumentError, match="sync_state.*other dtypes or sizes"):
        here.group.sync_state([np.zeros(3 + here.rank), np.zeros(1)])
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(polyrank.PolyrankError, match="read-only"):
        here.group.sync_state([frozen])
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(8), (2, 4), (8, 0))
    with pytest.raises(polyrank.InvalidArgumentError, match="share memory with one another"):
        here.group.sync_state([overlapping])
    with pytest.raises(polyrank.InvalidTypeError, match="sync_state"):
        here.group.sync_state([1, 2])
    here.group.barrier().wait()


def test_what_is_wrong(pair):
    pair.run(what_is_wrong)


def one_comes_too_late(here):
    # A group of its own: it is broken afterwards.
    own = here.group.split_group([0, 1])
    store = here.group.get_group_store()
    if here.rank == 1:
        store.get("rank 0 has waited")
    # Rank 1 comes when it is too late, and learns the same.
    with pytest.raises(polyrank.CollectiveTimeoutError, match="sync_state"):
        own.sync_state([np.zeros(3)], timeout=0.2)
    if here.rank == 0:
        store.set("rank 0 has waited", b"")


def test_one_comes_too_late(pair):
    pair.run(one_comes_too_late)
