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
    assert error.error_index == 1, "not one that it has left alone"
    assert error.pid == context.pids()[1]
    assert str(error).startswith("rank 1 (process ")
    assert all(process.exitcode is not None for process in context.processes)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (type(error), error.args, vars(error))


def raises_in_turn(rank, folder):
    if rank == 0:
        waits(rank, os.path.join(folder, "the other has ended"))
        raise ValueError("as it was left alone")
    raise KeyError("the cause")


def test_the_cause_is_told_however_late_one_looks(tmp_path):
    context = polyrank.spawn(raises_in_turn, (str(tmp_path),), nprocs=2, join=False)
    context.processes[1].join()
    (tmp_path / "the other has ended").touch()
    context.processes[0].join()
    with pytest.raises(multiprocessing.ProcessRaisedException, match="the cause"):
        context.join()


def leaves_a_child(rank, folder):
    if os.fork() == 0:
        waits(rank, os.path.join(folder, "over"))
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_rank_has_left_behind_holds_up_nobody(tmp_path):
    context = polyrank.spawn(leaves_a_child, (str(tmp_path),), nprocs=1, join=False)
    try:
        with pytest.raises(multiprocessing.ProcessExitedException, match="was ended by SIGKILL"):
            context.join()
    finally:
        (tmp_path / "over").touch()


def test_the_context_may_be_dropped(tmp_path):
    processes = polyrank.spawn(sums, (str(tmp_path), 1.0), nprocs=2, join=False).processes
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


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
