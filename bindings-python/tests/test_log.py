"""What is logged, and what arrives of it in Python."""

import json
import logging
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import polyrank

PATIENCE_S = 120
GROUP = """
    import polyrank
    polyrank.init_process_group(store=polyrank.HashStore(), rank=0, world_size=1)
    polyrank.destroy_process_group()
"""


def ran(program, arguments=(), **variables):
    """What a program writes to stdout and stderr that is run with these variables."""
    program = "\n".join(textwrap.dedent(part) for part in program)
    own = {"PATH": "/usr/bin:/bin", "POLYRANK_COPY_PRICES": "off", **variables}
    command = [sys.executable, *arguments, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, env=own, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


LOGGED = """
    import logging
    logging.basicConfig(
        format="%(levelname)s|%(name)s|%(rank)s|%(group)s|%(message)s", level=logging.LEVEL)
"""


def test_what_was_chosen_is_told_at_the_start_with_rank_and_group():
    _, errors = ran([LOGGED.replace("LEVEL", "INFO"), GROUP])
    lines = [line.split("|", 4) for line in errors.splitlines()]
    assert {tuple(line[:4]) for line in lines} == {("INFO", "polyrank.group", "0", "default_pg")}
    messages = "\n".join(line[4] for line in lines)
    assert "algorithms: allreduce: " in messages and "broadcast: " in messages


def test_levels_of_python_decide():
    assert ran([LOGGED.replace("LEVEL", "WARNING"), GROUP]) == ("", "")
    quiet = "logging.getLogger('polyrank.group').setLevel(logging.ERROR)"
    assert "|polyrank.group|" not in ran([LOGGED.replace("LEVEL", "DEBUG"), quiet, GROUP])[1]


@pytest.mark.parametrize(
    ("variables", "is_told"),
    [
        ({}, False),
        ({"POLYRANK_LOG": "info"}, True),
        ({"POLYRANK_LOG": "polyrank::group=info"}, True),
        ({"POLYRANK_LOG": "polyrank::transport=trace"}, False),
        ({"TORCH_CPP_LOG_LEVEL": "INFO"}, True),
        ({"TORCH_CPP_LOG_LEVEL": "WARNING", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, False),
        ({"POLYRANK_LOG": "warn", "TORCH_CPP_LOG_LEVEL": "INFO"}, False),
    ],
)
def test_without_handlers_the_environment_decides(variables, is_told):
    _, errors = ran([GROUP], **variables)
    start = "polyrank: info group: rank 0 of group default_pg: algorithms: "
    assert (start in errors) == is_told, errors


def test_lines_are_objects_for_programs():
    _, errors = ran([GROUP], POLYRANK_LOG="info", POLYRANK_LOG_FORMAT="json")
    lines = [json.loads(line) for line in errors.splitlines()]
    assert lines
    for line in lines:
        told = [line[name] for name in ("level", "target", "rank", "group")]
        assert told == ["INFO", "polyrank::group", 0, "default_pg"]


def test_a_word_that_means_nothing_is_said():
    _, errors = ran(["import polyrank"], POLYRANK_LOG="verbose")
    assert "POLYRANK_LOG is 'verbose', but 'verbose' is neither a level nor a part" in errors
    assert "expected off, error, warn" in errors
    # Nothing more is logged for it.
    _, errors = ran([LOGGED.replace("LEVEL", "WARNING"), GROUP], POLYRANK_LOG="verbose")
    assert len(errors.splitlines()) == 1, errors


STALLED = """
    import ctypes, logging, sys, threading
    import polyrank
    logging.basicConfig(format="LOGGED %(message)s")
    store = polyrank.HashStore()
    groups = [None, None]
    def join(rank):
        groups[rank] = polyrank.ProcessGroup(store, rank, 2)
    def both(call):
        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    both(join)
    waiting = groups[0].barrier()
    waiter = threading.Thread(target=waiting.wait)
    waiter.start()
"""
ENDS = """
    groups[1].barrier().wait()
    waiter.join()
"""


def test_a_warning_says_where_the_program_is():
    wait_for_line = """
    seen = threading.Event()
    class Seen(logging.Handler):
        def emit(self, record):
            seen.set()
    logging.getLogger("polyrank.stall").addHandler(Seen())
    def waits_here():
        while not seen.is_set():
            pass
    waits_here()
    """
    _, errors = ran([STALLED, wait_for_line, ENDS], POLYRANK_STALL_REPORT="0.2")
    first = errors.splitlines()[0]
    assert first.startswith("LOGGED barrier #1 of group")
    assert "in waits_here" in first, errors


def test_a_warning_that_python_cannot_take_goes_to_standard_error():
    # A function of C that holds Python's lock for longer than a warning waits.
    holds = """
    ctypes.PyDLL(None).sleep(4)
    """
    _, errors = ran([STALLED, holds, ENDS], POLYRANK_STALL_REPORT="0.2")
    assert errors.startswith("polyrank: barrier #1 of group"), errors
    assert "\nLOGGED barrier #1 of group" in errors, errors


def test_forked_children_have_their_own_lines_only():
    # Twice: lines of the parent may wait to be read, or be read already.
    program = """
    import os, sys
    import polyrank
    def told():
        polyrank.ProcessGroup(polyrank.HashStore(), 0, 1).shutdown()
    for _ in range(2):
        told()
        child = os.fork()
        if child == 0:
            told()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    _, errors = ran([program], POLYRANK_LOG="info")
    assert sum("algorithms: " in line for line in errors.splitlines()) == 4, errors


def test_a_child_that_is_forked_while_a_line_is_written_has_its_own_lines():
    program = """
    import os, sys
    import polyrank
    def told():
        polyrank.ProcessGroup(polyrank.HashStore(), 0, 1).shutdown()
    errors = os.dup(2)
    reads, writes = os.pipe()
    os.dup2(writes, 2)
    os.set_blocking(writes, False)
    try:
        while True:
            os.write(writes, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writes, True)
    told()
    # It gives up: there is no room for the first line.
    polyrank._core._flush_log()
    child = os.fork()
    if child == 0:
        os.dup2(errors, 2)
        told()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    _, errors = ran([program], POLYRANK_LOG="info")
    assert errors.count("algorithms: ") == 1, errors


def test_children_that_are_forked_while_threads_log_end():
    program = """
    import os, sys, threading
    import polyrank
    over = threading.Event()
    def tell():
        while not over.is_set():
            polyrank.ProcessGroup(polyrank.HashStore(), 0, 1).shutdown()
    threads = [threading.Thread(target=tell) for _ in range(2)]
    [thread.start() for thread in threads]
    for _ in range(100):
        child = os.fork()
        if child == 0:
            polyrank._core._flush_log()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    over.set()
    [thread.join() for thread in threads]
    """
    ran([program])


def test_a_filter_that_fails_loses_no_warning_and_shows_nothing_else():
    fails = """
    import logging
    def fail(record):
        raise ValueError("full")
    logging.getLogger("polyrank.group").addFilter(fail)
    logging.getLogger("polyrank.stall").addFilter(fail)
    logging.basicConfig(level=logging.INFO)
    """
    assert ran([fails, GROUP]) == ("", "")
    holds = "ctypes.CDLL(None).sleep(2)"
    _, errors = ran([fails, STALLED, holds, ENDS], POLYRANK_STALL_REPORT="0.2")
    assert errors.startswith("polyrank: barrier #1 of group"), errors


def test_debug_levels():
    assert polyrank.get_debug_level() == polyrank.DebugLevel.OFF
    for level in (polyrank.DebugLevel.DETAIL, "INFO", 0):
        polyrank.set_debug_level(level)
        expected = polyrank.DebugLevel[level] if isinstance(level, str) else level
        assert polyrank.get_debug_level() is polyrank.DebugLevel(expected)
    for wrong in ("detail", 3, None):
        with pytest.raises(TypeError, match=r"must be 'OFF' \(0\) \| 'INFO' \(1\)"):
            polyrank.set_debug_level(wrong)
    polyrank.set_debug_level_from_env()
    assert polyrank.get_debug_level() is polyrank.DebugLevel.OFF


def test_debug_levels_of_the_environment():
    program = "import polyrank; print(polyrank.get_debug_level().name)"
    assert ran([program], TORCH_DISTRIBUTED_DEBUG="DETAIL")[0] == "DETAIL\n"
    both = {"POLYRANK_DEBUG": "info", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    assert ran([program], **both)[0] == "INFO\n"
    wrong = """
    import polyrank
    for call in (polyrank.get_debug_level, polyrank.set_debug_level_from_env):
        try:
            call()
        except polyrank.InvalidArgumentError as error:
            print(error)
    """
    said = "POLYRANK_DEBUG is 'loud'; expected OFF, INFO or DETAIL\n"
    assert ran([wrong], POLYRANK_DEBUG="loud")[0] == 2 * said


def test_records_say_how_each_rank_reaches_the_others_and_when_that_was(caplog):
    with caplog.at_level(logging.INFO, logger="polyrank"):
        store = polyrank.HashStore()
        with ThreadPoolExecutor(2) as ranks:
            groups = list(ranks.map(lambda rank: polyrank.ProcessGroup(store, rank, 2), range(2)))
        # Lines arrive by a thread of their own, in order.
        polyrank._core._flush_log()
    records = [record for record in caplog.records if record.name == "polyrank.group"]
    for rank in range(2):
        ways = f"one of 2 ranks; rank {1 - rank} on this host by shared memory; it listens at 127."
        told = [record.getMessage() for record in records if record.rank == rank]
        assert any(message.startswith(ways) for message in told), told
    assert all(time.time() - PATIENCE_S < record.created < time.time() for record in records)
    for group in groups:
        group.abort()


OPERATION = """
    import threading
    import numpy as np
    store = polyrank.HashStore()
    ranks = [threading.Thread(target=lambda: groups.append(polyrank.ProcessGroup(store, 1, 2)))]
    groups = []
    [rank.start() for rank in ranks]
    group = polyrank.ProcessGroup(store, 0, 2)
    [rank.join() for rank in ranks]
    with polyrank.record_comm("layer 1"):
        work = group.allreduce(np.ones(1))
    # A thread waits, as it would in a program that hangs.
    failed = []
    def wait():
        try:
            work.wait()
        except polyrank.DistBackendError as error:
            failed.append(error)
    waiting = threading.Thread(target=wait)
    waiting.start()
    told.wait()
    groups[0].abort()
    waiting.join()
    assert failed
    polyrank._core._flush_log()
"""


def test_what_is_said_of_an_operation_has_its_name_and_number():
    listens = """
    import logging, threading
    import polyrank
    told, records = threading.Event(), []
    class Handler(logging.Handler):
        def emit(self, record):
            if record.name in ("polyrank.stall", "polyrank.operation"):
                records.append(record)
                told.set()
    logging.getLogger("polyrank").addHandler(Handler())
    logging.getLogger("polyrank").setLevel(logging.DEBUG)
    """
    prints = """
    for record in records:
        facts = (record.rank, record.group, record.operation, record.sequence, record.comm_name)
        print(record.name, record.levelname, facts)
    """
    out, _ = ran([listens, OPERATION, prints], POLYRANK_STALL_REPORT="0.2")
    lines = set(out.splitlines())
    facts = "(0, 'group', 'allreduce', 1, 'layer 1')"
    assert f"polyrank.stall WARNING {facts}" in lines, out
    assert f"polyrank.operation DEBUG {facts}" in lines, out


def test_objects_and_lines_name_the_operation():
    # Nobody takes the lines: standard error has them, which a thread reads until it stalls.
    listens = """
    import os, sys, threading
    import polyrank
    told, (there, here) = threading.Event(), os.pipe()
    err = os.dup(2)
    os.dup2(here, 2)
    def read():
        for line in os.fdopen(there, "rb"):
            os.write(err, line)
            if b"has waited" in line:
                told.set()
    reading = threading.Thread(target=read)
    reading.start()
    """
    ends = """
    os.close(here)
    os.dup2(err, 2)
    reading.join()
    """
    variables = {"POLYRANK_LOG": "debug", "POLYRANK_STALL_REPORT": "0.2"}
    program = [listens, OPERATION, ends]
    _, errors = ran(program, POLYRANK_LOG_FORMAT="json", **variables)
    lines = [json.loads(line) for line in errors.splitlines()]
    told = [line for line in lines if line["target"] in ("polyrank::stall", "polyrank::operation")]
    assert {line["target"] for line in told} == {"polyrank::stall", "polyrank::operation"}
    for line in told:
        facts = [line[name] for name in ("rank", "group", "operation", "sequence", "comm_name")]
        assert facts == [0, "group", "allreduce", 1, "layer 1"]
    assert all("operation" not in line for line in lines if line["target"] == "polyrank::group")
    _, errors = ran(program, **variables)
    assert "polyrank: allreduce 'layer 1' #1 of group group: rank 0 has waited for " in errors
    failed = "operation: rank 0 of group group: allreduce 'layer 1' #1: failed: "
    assert f"polyrank: debug {failed}" in errors, errors
