"""Ranks as processes that this one starts."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import polyrank
from polyrank import multiprocessing

PATIENCE_S = 60


def sums(rank, folder, scale):
    polyrank.init_process_group()
    assert rank == polyrank.get_rank()
    tensor = np.full(3, scale * (rank + 1))
    polyrank.all_reduce(tensor)
    with open(os.path.join(folder, str(rank)), "w") as file:
        file.write(f"{tensor[0]} of {polyrank.get_world_size()}")
    polyrank.destroy_process_group()


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_meet_without_settings(size, start_method, tmp_path):
    polyrank.spawn(sums, (str(tmp_path), 2.0), nprocs=size, start_method=start_method)
    told = {file.name: file.read_text() for file in tmp_path.iterdir()}
    total = 2.0 * sum(range(size + 1))
    assert told == {str(rank): f"{total} of {size}" for rank in range(size)}


def fails(rank, how):
    polyrank.init_process_group()
    if rank == 1:
        if how == "raise":
            raise KeyError("no such weights")
        if how == "long":
            raise ValueError("x" * 1_000_000)
        if how == "exit":
            sys.exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    polyrank.barrier()


@pytest.mark.parametrize("how", ["raise", "long", "exit", "kill"])
def test_the_failure_of_one_ends_all_and_is_told(how):
    context = polyrank.spawn(fails, (how,), nprocs=3, join=False)
    with pytest.raises(multiprocessing.ProcessException) as caught:
        context.join()
    error = caught.value
    if how in ("raise", "long"):
        assert type(error) is multiprocessing.ProcessRaisedException
        assert "fails" in error.msg or how == "long"
        assert ("KeyError: 'no such weights'" if how == "raise" else "xxx") in error.msg
    else:
        assert type(error) is multiprocessing.ProcessExitedException
        named = (7, None) if how == "exit" else (-9, "SIGKILL")
        assert (error.exit_code, error.signal_name) == named
    assert error.error_index == 1 and error.pid == context.pids()[1]
    assert str(error).startswith("rank 1 (process ")
    assert all(process.exitcode is not None for process in context.processes)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (type(error), error.args, vars(error))


def waits(rank, path):
    while not os.path.exists(path):
        pass


def test_a_join_may_end_before_the_processes(tmp_path):
    path = tmp_path / "go on"
    context = polyrank.spawn(waits, (str(path),), nprocs=2, join=False)
    assert not context.join(timeout=0.1)
    path.touch()
    assert context.join()
    assert context.join(), "again"
    assert [process.exitcode for process in context.processes] == [0, 0]


def stubborn(rank, folder):
    if rank == 1:
        # The other ignores the signal by now.
        waits(rank, os.path.join(folder, "ready"))
        raise ValueError("over")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.path.join(folder, "ready"), "w").close()
    time.sleep(PATIENCE_S)


def test_what_does_not_end_is_killed(tmp_path):
    context = polyrank.spawn(stubborn, (str(tmp_path),), nprocs=2, join=False)
    with pytest.raises(multiprocessing.ProcessRaisedException, match="over"):
        context.join(grace_period=0.1)
    assert context.processes[0].exitcode == -signal.SIGKILL


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="nprocs is 0"):
        polyrank.spawn(sums, nprocs=0)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        polyrank.spawn(lambda rank: None, nprocs=2)
    with pytest.raises(AttributeError, match="module 'polyrank' has no attribute 'spown'"):
        polyrank.spown  # noqa: B018


def test_what_was_started_ends_with_who_started_it(tmp_path):
    (tmp_path / "orphans.py").write_text(
        textwrap.dedent("""
        import os, sys, time
        import polyrank

        def main(rank):
            os.write(1, f"{os.getpid()}\\n".encode())
            time.sleep(600)

        if __name__ == "__main__":
            polyrank.spawn(main, nprocs=2)
        """)
    )
    command = [sys.executable, "orphans.py"]
    parent = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    # They hold its standard output open until they end.
    assert parent.stdout.read() == ""
    assert len(set(pids)) == 2
