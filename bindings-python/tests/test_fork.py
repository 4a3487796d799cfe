"""Importing starts no thread, and a process that imported forks ranks that form a group."""

import subprocess
import sys

import pytest
from ranks import PATIENCE_S

SCRIPT = """
import os, sys
import numpy as np

def threads():
    return os.listdir("/proc/self/task") if sys.platform == "linux" else []

# NumPy's linear algebra has threads of its own.
before = threads()
import polyrank
assert threads() == before, "importing polyrank started threads"

path = sys.argv[1]
children = []
for rank in range(4):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            polyrank.init_process_group(
                init_method=f"file://{path}", rank=rank, world_size=4, timeout=30
            )
            tensor = np.full(1000, float(rank))
            polyrank.all_reduce(tensor)
            assert (tensor == 6.0).all()
            polyrank.destroy_process_group()
            status = 0
        finally:
            os._exit(status)
    children.append(child)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert statuses == [0] * 4, statuses
assert not polyrank.is_initialized()
"""

AFTER = """
import os, sys
import numpy as np
import polyrank

# The parent uses a group, and threads have started; a child starts clean.
polyrank.init_process_group(store=polyrank.HashStore(), rank=0, world_size=1, timeout=20)
polyrank.all_reduce(np.ones(4))
child = os.fork()
if child == 0:
    status = 1
    try:
        assert not polyrank.is_initialized()
        polyrank.init_process_group(store=polyrank.HashStore(), rank=0, world_size=1, timeout=20)
        tensor = np.ones(4)
        polyrank.all_reduce(tensor)
        polyrank.destroy_process_group()
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
polyrank.all_reduce(np.ones(4))
polyrank.destroy_process_group()
"""

MESSAGES = """
import os, sys
import numpy as np
import polyrank

# Two ranks have each had a message; a child of one is none of them.
path = sys.argv[1]
other = os.fork()
rank = 1 if other == 0 else 0
polyrank.init_process_group(init_method=f"file://{path}", rank=rank, world_size=2, timeout=20)
group = polyrank.default_group()
tensor = np.ones(4)
polyrank.send(tensor, 1 - rank)
polyrank.recv(tensor, 1 - rank)
if rank == 0:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: polyrank.send(tensor, 1, group=group),
                lambda: polyrank.recv(tensor, 1, group=group),
                lambda: polyrank.recv(tensor, group=group),
            ):
                try:
                    call()
                except polyrank.InvalidGroupError as error:
                    assert "forked child" in str(error), error
                else:
                    raise AssertionError("a child used its parent's connections")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
# The parent's connection is as it was.
for number in range(100):
    polyrank.send(np.full(4, float(number)), 1 - rank)
    polyrank.recv(tensor, 1 - rank)
    assert (tensor == number).all(), tensor
polyrank.destroy_process_group()
if rank == 1:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
"""

CALLBACKS = """
import os, sys, threading
import numpy as np
import polyrank

# Callbacks ran in the parent, whose background thread the child does not have.
def rank_of_pair(path):
    other = os.fork()
    rank = 1 if other == 0 else 0
    polyrank.init_process_group(init_method=f"file://{path}", rank=rank, world_size=2, timeout=20)
    return rank, other

def call_back(times):
    for number in range(times):
        tensor, ended = np.full(3000, float(number)), threading.Event()
        polyrank.all_reduce(tensor, async_op=True).get_future().add_done_callback(
            lambda _: ended.set()
        )
        assert ended.wait(20) and (tensor == 2 * number).all(), number

path = sys.argv[1]
rank, other = rank_of_pair(path + ".parent")
call_back(50)
inherited = polyrank.default_group()
child = os.fork()
if child == 0:
    status = 1
    try:
        told = threading.Event()
        try:
            work = inherited.allreduce(np.ones(3))
            work.get_future().add_done_callback(lambda _: told.set())
            assert told.wait(20), "a callback of a group that was inherited never runs"
            assert work.exception() is not None
        except polyrank.InvalidGroupError:
            pass
        _, second = rank_of_pair(path + f".child{rank}")
        call_back(50)
        polyrank.destroy_process_group()
        if second == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) == 0
        status = 0
    finally:
        os._exit(status)
call_back(50)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
polyrank.destroy_process_group()
if rank == 1:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
"""

KILLED = """
import multiprocessing, os, signal, sys, time
import numpy as np
import polyrank

# A rank is killed while a worker that it forked, as a loader of data does, lives on.
def live(ready):
    ready.set()
    time.sleep(120)

path = sys.argv[1]
other = os.fork()
rank = 1 if other == 0 else 0
polyrank.init_process_group(init_method=f"file://{path}", rank=rank, world_size=2, timeout=20)
polyrank.all_reduce(np.ones(1000))
if rank == 1:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=live, args=(ready,))
    worker.start()
    assert ready.wait(20)
    polyrank.send(np.full(1, float(worker.pid)), 0)
    os.kill(os.getpid(), signal.SIGKILL)
worker = np.zeros(1)
polyrank.recv(worker, 1)
worker = int(worker[0])
try:
    while True:
        polyrank.all_reduce(np.ones(1000))
except polyrank.RankFailedError as error:
    assert error.rank == 1, error
finally:
    # It lives until here: else there is none to end.
    os.kill(worker, signal.SIGKILL)
assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == -signal.SIGKILL
"""

EXIT = """
import sys
import numpy as np
import polyrank
group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="exits")
work = group.recv_anysource([np.zeros(4)])
sys.exit(0)
"""


def run(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr


def test_import_then_fork_four_ranks(tmp_path):
    run(SCRIPT, str(tmp_path / "rendezvous"))


def test_fork_after_use(tmp_path):
    run(AFTER)


def test_callbacks_of_a_forked_child(tmp_path):
    run(CALLBACKS, str(tmp_path / "rendezvous"))


def test_messages_of_a_forked_child(tmp_path):
    run(MESSAGES, str(tmp_path / "rendezvous"))


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_killed_rank_whose_worker_lives_is_named(tmp_path, monkeypatch, transport):
    monkeypatch.setenv("POLYRANK_TRANSPORT", transport)
    run(KILLED, str(tmp_path / "rendezvous"))


def test_exit_with_an_operation_in_flight():
    run(EXIT)
