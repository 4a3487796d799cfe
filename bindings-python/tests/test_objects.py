"""Object collectives: what comes is what was given, and an error on one rank is everybody's."""

import fractions

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist

OBJECTS = [
    None,
    True,
    0,
    -1,
    2**63,
    -(2**70),
    2**127,
    -(2**127) - 1,
    2**128 - 1,
    -(2**128),
    10**1000,
    -(10**1000),
    1.5,
    "text ü",
    b"\x00\xff",
    [],
    [1, [2, [3]]],
    (1, ("a", None)),
    {"a": 1, (1, 2): [b"x"], 3: {}},
    {1, 2, 3},
    1 - 2j,
    [f"deep{n}" for n in range(100)],
]


def with_default(function):
    """Runs `function(here)` with a default group of all ranks of the pool."""

    def run(here):
        name = f"{function.__name__}"
        store = polyrank.PrefixStore(name, here.store)
        dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
        try:
            function(here)
            dist.barrier()
        finally:
            dist.destroy_process_group()

    return run


class Body:
    """A function of this module under a name that processes can import."""

    def __init__(self, name):
        self.name = name

    def __call__(self, here):
        with_default(globals()[self.name])(here)


def same(one, other):
    return type(one) is type(other) and one == other


def round_trips(here):
    for root in {0, here.size - 1}:
        given = list(OBJECTS) if here.rank == root else [None] * len(OBJECTS)
        dist.broadcast_object_list(given, src=root)
        assert all(same(a, b) for a, b in zip(given, OBJECTS, strict=True)), given
        mine = {"rank": here.rank, "data": "x" * (here.rank * 1000)}
        everybody = [{"rank": r, "data": "x" * (r * 1000)} for r in range(here.size)]
        gathered = [None] * here.size
        dist.all_gather_object(gathered, mine)
        assert gathered == everybody
        gathered = [None] * here.size if here.rank == root else None
        dist.gather_object(mine, gathered, dst=root)
        assert gathered == (everybody if here.rank == root else None)
        output = ["nothing"]
        dist.scatter_object_list(output, everybody if here.rank == root else None, group_src=root)
        assert output == [mine]
    dist.all_gather_object(gathered := [1] * here.size, None)
    assert gathered == [None] * here.size


def arrays(here):
    dtypes = ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "?"]
    given = [np.arange(6).reshape(2, 3).astype(dtype) for dtype in dtypes]
    given.append(np.float64(2.5))
    received = list(given) if here.rank == 0 else [None] * len(given)
    dist.broadcast_object_list(received, src=0)
    if here.rank:
        for array, expected in zip(received[:-1], given):
            assert array.dtype == expected.dtype and array.shape == (2, 3)
            assert (array == expected).all() and array.flags.writeable
        assert same(received[-1], np.float64(2.5))


def messages(here):
    if here.size == 1:
        return
    if here.rank == 0:
        dist.send_object_list([{"to": 1}, 2], dst=1)
        senders = set()
        for _ in range(here.size - 1):
            sender = dist.recv_object_list(received := [None])
            assert received == [f"from {sender}"]
            senders.add(sender)
        assert senders == set(range(1, here.size))
        return
    if here.rank == 1:
        assert dist.recv_object_list(received := [None, None], src=0) == 0
        assert received == [{"to": 1}, 2]
    dist.send_object_list([f"from {here.rank}"], dst=0)


@pytest.mark.parametrize("body", ["round_trips", "arrays", "messages"])
def test_objects(world, body):
    world.run(Body(body))


def failures(here):
    bad = object()
    last = here.size - 1
    # Whichever rank has the bad object, all ranks raise, and the group goes on.
    with pytest.raises(polyrank.InvalidTypeError, match=f"rank {last} gave no object"):
        dist.all_gather_object([None] * here.size, bad if here.rank == last else 1)
    with pytest.raises(polyrank.InvalidTypeError, match="rank 0 gave no object"):
        dist.broadcast_object_list([bad if here.rank == 0 else None], src=0)
    with pytest.raises(polyrank.InvalidTypeError, match=f"rank {last} gave no object"):
        gathered = [None] * here.size if here.rank == 0 else None
        dist.gather_object(bad if here.rank == last else 1, gathered)
    with pytest.raises(polyrank.InvalidTypeError, match="rank 0 gave no object"):
        objects = [bad] * here.size if here.rank == 0 else None
        dist.scatter_object_list([None], objects)
    # A list of another length is a wrong argument, wherever it is one.
    with pytest.raises(polyrank.InvalidArgumentError, match="0 gave .*: the list has 2 objects for 3"):
        dist.scatter_object_list([None], [1, 2] if here.rank == 0 else None)
    for is_wrong in (here.rank == 0, True):
        for call in (
            lambda: dist.all_gather_object([None] * (here.size + is_wrong), 1),
            lambda: dist.gather_object(
                1, [None] * (here.size + 1) if here.rank == 0 else None, dst=0),
        ):
            with pytest.raises(polyrank.InvalidArgumentError) as raised:
                call()
            assert "Error" not in str(raised.value)
            where = "the list has 4 places for the objects of 3 ranks"
            if here.rank == 0:
                assert str(raised.value) == where
            else:
                assert "rank 0 gave no object" in str(raised.value) or is_wrong
    output = [] if here.rank == 0 else [None]
    with pytest.raises(polyrank.InvalidArgumentError, match="output_list to be non-empty") as raised:
        dist.scatter_object_list(output, [1, 2, 3] if here.rank == 0 else None)
    assert "Error" not in str(raised.value)
    if here.rank == 0:
        with pytest.raises(polyrank.InvalidTypeError):
            dist.send_object_list([bad], dst=1)
    elif here.rank == 1:
        with pytest.raises(polyrank.InvalidTypeError, match="rank 0 gave no object"):
            dist.recv_object_list([None], src=0)
    endless = []
    endless.append(endless)
    with pytest.raises(polyrank.InvalidTypeError, match="nested deeper.* takes two; send a list"):
        dist.all_gather_object([None] * here.size, endless)
    with pytest.raises(ValueError, match="Must specify src or group_src"):
        dist.broadcast_object_list([1])
    dist.all_gather_object(gathered := [None] * here.size, here.rank)
    assert gathered == list(range(here.size))


def pickles(here):
    half = fractions.Fraction(1, 2)
    gathered = [None] * here.size
    dist.all_gather_object(gathered, half, codec="pickle")
    assert gathered == [half] * here.size
    # A rank that did not ask for pickles reads none.
    codec = "pickle" if here.rank == 0 else "cbor"
    received = [half if here.rank == 0 else None]
    if here.rank == 0:
        dist.broadcast_object_list(received, src=0, codec=codec)
    else:
        with pytest.raises(polyrank.InvalidArgumentError, match="may run code"):
            dist.broadcast_object_list(received, src=0, codec=codec)
    with pytest.raises(TypeError, match="codec"):
        dist.all_gather_object(gathered, half, codec="marshal")


@pytest.mark.parametrize("body", ["failures", "pickles"])
def test_what_cannot_be_encoded(trio, body):
    trio.run(Body(body))
