"""Looking at messages before they are received."""

import os
import signal
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import polyrank

# What is sent unasked, and what its receiver must ask for.
COUNTS = [0, 1, 1000, 500_000]


def told(found, source, tag, dtype, count):
    size = {"f64": 8, "i16": 2}[dtype]
    assert found == {"source": source, "tag": tag, "dtype": dtype, "bytes": count * size}


def lengths_that_nobody_knows(here):
    """Each rank sends its next as much as only it knows; that asks, and makes room."""
    after, before = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    for tag, count in enumerate(COUNTS):
        sent = here.group.send([np.full(count + here.rank, here.rank, np.float64)], after, tag)
        found = here.group.probe(before, tag)
        told(found, before, tag, "f64", count + before)
        # It is still there.
        assert here.group.iprobe(before, tag) == found
        room = np.zeros(found["bytes"] // 8)
        here.group.recv([room], found["source"], found["tag"]).wait()
        assert (room == before).all()
        sent.wait()
        assert here.group.iprobe(before, tag) is None


def test_lengths_that_nobody_knows(world):
    world.run(lengths_that_nobody_knows)


def first_of_several(here):
    if here.rank == 0:
        assert here.group.iprobe() is None
        here.group.barrier().wait()
        # What was sent first with this tag, whatever came before it with another one.
        told(here.group.probe(1, 4), 1, 4, "i16", 3)
        found = [here.group.probe(None, 5)["source"]]
        here.group.recv([np.zeros(2, np.int16)], found[0], 5).wait()
        found.append(here.group.probe(None, 5)["source"])
        here.group.recv([np.zeros(2, np.int16)], found[1], 5).wait()
        assert sorted(found) == [1, 2]
        here.group.recv([np.zeros(3, np.int16)], 1, 4).wait()
    else:
        here.group.barrier().wait()
        here.group.send([np.zeros(2, np.int16)], 0, 5).wait()
        if here.rank == 1:
            here.group.send([np.zeros(3, np.int16)], 0, 4).wait()
    here.group.barrier().wait()


def test_first_of_several(trio):
    trio.run(first_of_several)


def late_and_interrupted(here):
    """A look that finds nothing in time, or is given up, is nobody else's failure."""
    group = here.make_group("late probes", timeout=60)
    other = 1 - here.rank
    if here.rank == 0:
        group.set_timeout(timedelta(milliseconds=50))
        with pytest.raises(polyrank.CollectiveTimeoutError) as caught:
            group.probe(other, 3)
        assert "probe" in str(caught.value) and "with tag 3" in str(caught.value)
        assert caught.value.missing_ranks == [other]
        group.set_timeout(timedelta(seconds=60))
        pressed = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
        pressed.start()
        with pytest.raises(KeyboardInterrupt):
            group.probe(other, 4)
            time.sleep(1)
        pressed.join()
    assert group.get_error() == polyrank.WorkResult.SUCCESS
    group.barrier().wait()
    sum_of_ranks = np.array([here.rank])
    group.allreduce(sum_of_ranks).wait()
    assert sum_of_ranks == [1]
    group.shutdown()


def test_looks_that_find_nothing_end_alone(pair):
    pair.run(late_and_interrupted)


def receives_take_nothing_of_it(here):
    """What a receive that waits has taken is not seen any more."""
    other = 1 - here.rank
    room = np.zeros(1)
    receiving = here.group.recv([room], other, 3)
    here.group.send([np.ones(1)], other, 3).wait()
    receiving.wait()
    assert here.group.iprobe(other, 3) is None
    here.group.barrier().wait()
    here.group.send([np.ones(2)], other, 3).wait()
    told(here.group.probe(other, 3), other, 3, "f64", 2)
    here.group.recv([np.zeros(2)], other, 3).wait()


def test_receives_take_nothing_of_it(pair):
    pair.run(receives_take_nothing_of_it)


def own_messages(here):
    assert here.group.iprobe(here.rank, 1) is None
    sent = here.group.send([np.ones(5, np.int16)], here.rank, 1)
    told(here.group.probe(here.rank, 1), here.rank, 1, "i16", 5)
    here.group.recv([np.zeros(5, np.int16)], here.rank, 1).wait()
    sent.wait()


def test_own_messages(world):
    world.run(own_messages)


def what_is_refused(here):
    why = "probe: source rank must be from 0 to 1"
    with pytest.raises(polyrank.InvalidArgumentError, match=why):
        here.group.probe(2)
    group = here.make_group("a sender that goes", timeout=20)
    if here.rank == 0:
        with pytest.raises(polyrank.PolyrankError, match="rank 1"):
            group.probe(1)
    else:
        group.abort()


def test_what_is_refused(pair):
    pair.run(what_is_refused)
