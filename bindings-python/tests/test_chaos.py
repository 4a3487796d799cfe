"""Faults on purpose, as the environment asks for them: the core's, so here only that they come."""

import os
import signal
import subprocess
import sys

PROGRAM = """
import numpy as np
import polyrank
group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="alone")
for step in range(1, 6):
    group.allreduce(np.ones(1)).wait()
    print("done", step, flush=True)
"""
PATIENCE_S = 120


def ran(chaos):
    environment = {**os.environ, "POLYRANK_CHAOS": chaos}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_rank_is_killed_before_its_operation():
    ended = ran("kill=0#3")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended.stdout == "done 1\ndone 2\n"
    assert "rank 0 kills itself before its operation 3, ALLREDUCE of alone" in ended.stderr
    assert "asks for faults: rank 0 is killed before its operation 3" in ended.stderr


def test_others_are_not():
    ended = ran("kill=1#3,kill=0#6,delay=1ms@0")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("done") == 5


def test_what_is_not_a_fault_is_refused():
    ended = ran("delay=5@0")
    assert ended.returncode == 1
    assert "InvalidArgumentError: POLYRANK_CHAOS is 'delay=5@0'" in ended.stderr
    assert "'delay=5@0' is not a fault; expected delay=TIME@RANK" in ended.stderr
