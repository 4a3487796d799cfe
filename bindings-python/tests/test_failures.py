"""Ranks that die, disagree or come too late: every rank gets an error that says so."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import polyrank
from ranks import PATIENCE_S, Pool


def disagree(here, name, kind):
    group = here.make_group(f"mismatch {name}", timeout=20)
    odd = here.rank == here.size - 1
    tensor = np.ones(4, np.float32)
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        if kind == "collective":
            (group.barrier() if odd else group.allreduce(tensor)).wait()
        elif kind == "dtype":
            group.allreduce(tensor.astype(np.int32) if odd else tensor).wait()
        elif kind == "size":
            group.allreduce(np.ones(5, np.float32) if odd else tensor).wait()
        elif kind == "operator":
            op = polyrank.ReduceOp.MAX if odd else polyrank.ReduceOp.SUM
            group.allreduce(tensor, op).wait()
        elif kind == "root":
            group.broadcast(tensor, 1 if odd else 0).wait()
        elif kind == "both are roots":
            # The two roots wait for each other, and no frame tells them.
            root = here.size - 1 if odd else 0
            outputs = [np.zeros(4, np.float32) for _ in range(here.size)]
            group.gather(outputs if root == here.rank else [], tensor, root).wait()
        # A rank that exchanges no frame with the odd one may be done; its next call raises.
        for _ in range(100):
            group.barrier().wait()
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert error.kind == "CollectiveMismatch"
    assert error.group is not None and error.rank is not None
    assert error.ours != error.theirs
    return str(error)


KINDS = ["collective", "dtype", "size", "operator", "root", "both are roots"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_disagreeing_ranks(pools, kind, size):
    messages = pools(size).run(disagree, kind, kind)
    for message in messages:
        assert "rank" in message


def asks_nothing(here):
    group = here.make_group("asks nothing", timeout=20)
    group.allreduce(np.ones(4 + here.rank, np.float32))
    with pytest.raises(polyrank.CollectiveMismatchError):
        group.shutdown()


@pytest.mark.parametrize("size", [2, 3])
def test_a_failure_that_nobody_asked_for_is_told_at_the_end(pools, size):
    pools(size).run(asks_nothing)


def too_late(here):
    group = here.make_group("too late", timeout=20)
    if here.rank == 0:
        work = group.allreduce(np.ones(2), timeout=0.3)
        with pytest.raises(polyrank.CollectiveTimeoutError) as caught:
            work.wait()
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.collective == "allreduce"
        assert caught.value.missing_ranks == [1]
        assert (caught.value.rank, caught.value.waiting_rank) == (1, 0)
        # The group is broken now.
        with pytest.raises(polyrank.PolyrankError):
            group.barrier().wait()
        here.store.set("too late", "")
    else:
        here.store.wait(["too late"])
        with pytest.raises(polyrank.PolyrankError):
            group.allreduce(np.ones(2)).wait()


def test_an_operation_past_its_deadline(pair):
    pair.run(too_late)


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import polyrank as pr

rank = int(sys.argv[1])
store = pr.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False, timeout=30)
pr.init_process_group(store=store, rank=rank, world_size=2, timeout=30)
if rank == 1:
    store.get("interrupted")
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGINT, signal.default_int_handler)
other = store.clone()

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    other.set("interrupted", b"")

try:
    threading.Thread(target=interrupt).start()
    exec(sys.argv[3])
except BaseException as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "pr.all_reduce(np.ones(2))",
        "pr.all_reduce(np.ones(2), async_op=True).get_future().wait()",
        "pr.all_gather_object([None, None], 1)",
        "pr.monitored_barrier()",
        "pr.new_group([0, 1])",
    ],
)
def test_ctrl_c_wins_over_the_death_of_a_peer(call):
    """Both come at once where a terminal sends SIGINT to all ranks."""
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=30)
    command = [sys.executable, "-c", INTERRUPTED]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(server.port), call],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    (out, err), _ = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    assert (out.decode().strip(), err.decode()) == ("KeyboardInterrupt", "")


def aborts(here):
    group = here.make_group("aborts", timeout=20)
    if here.rank == 0:
        here.store.wait(["waiting1", "waiting2"])
        group.abort()
    with pytest.raises(polyrank.AbortedError) as caught:
        work = group.allreduce(np.ones(2))
        here.store.set(f"waiting{here.rank}", "")
        work.wait()
    assert "rank 0" in str(caught.value)
    error = caught.value
    assert (error.rank, error.collective, error.sequence) == (0, "allreduce", 1)
    with pytest.raises(polyrank.AbortedError) as caught:
        group.barrier().wait()
    assert (caught.value.rank, caught.value.collective) == (0, "barrier")


def test_abort(trio):
    trio.run(aborts)


def through(here):
    """All have been in an operation, and no rank is any more: who is in one with a rank that is
    killed hears of that."""
    here.group.barrier().wait()
    here.store.barrier("through", here.size)


def die(here):
    through(here)
    os.kill(os.getpid(), signal.SIGKILL)


def survive(here, dead, collective):
    through(here)
    started = time.monotonic()
    with pytest.raises(polyrank.RankFailedError) as caught:
        for _ in range(1_000_000):
            if collective == "allreduce":
                here.group.allreduce(np.ones(1000)).wait()
            elif collective == "broadcast":
                here.group.broadcast(np.ones(10), (dead + 1) % here.size).wait()
            else:
                here.group.barrier().wait()
    error = caught.value
    assert error.rank == dead, str(error)
    assert f"rank {dead}" in str(error)
    assert error.collective, str(error)
    # Later calls fail immediately, with the same error.
    with pytest.raises(polyrank.RankFailedError):
        here.group.barrier().wait()
    return time.monotonic() - started


@pytest.mark.parametrize("dead", [0, 2])
@pytest.mark.parametrize("collective", ["allreduce", "broadcast"])
def test_a_killed_rank_is_named_on_all_others(dead, collective):
    pool = Pool(4)
    try:
        others = [rank for rank in range(4) if rank != dead]
        pool.connections[dead].send((die, ()))
        pool.run(survive, dead, collective, ranks=others)
    finally:
        pool.close(kill=True)


def idle_then_call(here, dead):
    through(here)
    here.store.wait(["killed"])
    with pytest.raises(polyrank.RankFailedError) as caught:
        for _ in range(1_000_000):
            here.group.barrier().wait()
    assert caught.value.rank == dead


def test_a_rank_killed_while_idle_is_named_by_the_next_call():
    pool = Pool(3)
    try:
        for rank in range(2):
            pool.connections[rank].send((idle_then_call, (2,)))
        pool.connections[2].send((die, ()))
        pool.processes[2].join()
        pool.store.set("killed", "")
        pool.collect([0, 1])
    finally:
        pool.close(kill=True)


def roots_differ(here):
    group = here.make_group("roots differ")
    called = None
    try:
        group.broadcast(np.full(4, float(here.rank)), root=here.rank).wait()
    except polyrank.CollectiveMismatchError as error:
        called = error
    try:
        group.shutdown()
    except polyrank.CollectiveMismatchError as error:
        called = called or error
    assert called is not None, "nobody said that the roots differ"
    assert "root 0" in str(called) and "root 1" in str(called)


def test_roots_on_which_ranks_disagree_are_told_at_the_latest_when_they_leave(pair):
    pair.run(roots_differ)


def factors_differ(here):
    group = here.make_group("factors differ")
    factor = 0.5 + here.rank
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.allreduce([np.ones(3)], polyrank.premul_sum(factor)).wait()
    assert "factor 0.5" in str(caught.value) and "factor 1.5" in str(caught.value)
    group = here.make_group("factors of scattered sums differ")
    blocks = [np.ones(3) for _ in range(here.size)]
    with pytest.raises(polyrank.CollectiveMismatchError) as caught:
        group.reduce_scatter(np.ones(3), blocks, op=polyrank.premul_sum(factor)).wait()
    assert "factor 0.5" in str(caught.value) and "factor 1.5" in str(caught.value)


def test_factors_on_which_ranks_disagree_are_shown(pair):
    pair.run(factors_differ)
