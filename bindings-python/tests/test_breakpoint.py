"""One rank stops in pdb, and the others wait: typed commands, and what becomes of the job."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time

import pytest

import polyrank

POLYRANK = [sys.executable, "-m", "polyrank"]
# Far beyond what any test takes.
PATIENCE_S = 120
SIZES = [1, 2, 3, 5]

STOPS = """
import polyrank as dist
dist.init_process_group()
rank = dist.get_rank()
secret = rank * 100 + 7
dist.breakpoint(rank=dist.get_world_size() - 1)
secret += 1000
dist.barrier()
print(f"rank {rank} went on with {secret}", flush=True)
dist.destroy_process_group()
"""


class Console:
    """A job on a terminal of its own, at which the test types."""

    def __init__(self, words, **variables):
        # Reports would stand among what is typed, on a busy machine.
        variables.setdefault("POLYRANK_STALL_REPORT", "0")
        self.master, slave = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, **variables},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def until(self, text, since=0):
        """Reads until the terminal shows `text`; what it shows from the place `since` on."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown[since:]:
            readable = select.select([self.master], [], [], deadline - time.monotonic())[0]
            assert readable, f"no {text!r} in time:\n{self.shown}"
            try:
                came = os.read(self.master, 65536)
            except OSError:
                came = b""
            assert came, f"the job ended without {text!r}:\n{self.shown}"
            self.shown += came.decode(errors="replace").replace("\r", "")
        return self.shown[since:]

    def typed(self, command, until="(Pdb) "):
        """What the terminal shows after a typed command."""
        since = len(self.shown)
        os.write(self.master, f"{command}\n".encode())
        return self.until(until, since)

    def end(self):
        """Reads to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            readable = select.select([self.master], [], [], deadline - time.monotonic())[0]
            assert readable, f"the job does not end:\n{self.shown}"
            try:
                came = os.read(self.master, 65536)
            except OSError:
                came = b""
            if not came:
                return self.process.wait(PATIENCE_S)
            self.shown += came.decode(errors="replace").replace("\r", "")


def under_launcher(tmp_path, size, program, **variables):
    (tmp_path / "train.py").write_text(program)
    words = [*POLYRANK, "run", "-n", str(size), sys.executable, str(tmp_path / "train.py")]
    return Console(words, **variables)


class Ranks:
    """Ranks without a launcher, whose standard inputs are pipes, or nothing."""

    def __init__(self, tmp_path, size, program, is_given=True):
        (tmp_path / "train.py").write_text(program)
        master = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store = master
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master.port)}
        agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "WORLD_SIZE": str(size)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(tmp_path / "train.py")],
                stdin=subprocess.PIPE if is_given else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **place, **agent, "RANK": str(rank)},
                start_new_session=True,
            )
            for rank in range(size)
        ]

    def ended(self):
        """The exit code of each, what it printed, and its errors."""
        ends = []
        for process in self.processes:
            out, errors = process.communicate(timeout=PATIENCE_S)
            ends.append((process.returncode, out, errors))
        return ends


@pytest.mark.parametrize("size", SIZES)
def test_one_rank_stops_at_the_callers_line_and_the_others_wait(tmp_path, size):
    with under_launcher(tmp_path, size, STOPS) as console:
        shown = console.until("(Pdb) ")
        last = size - 1
        assert f"[rank {last}] (Pdb) " in shown
        assert "-> dist.breakpoint(rank=dist.get_world_size() - 1)" in shown
        assert f"{last * 100 + 7}\n" in console.typed("p secret")
        # What is changed here counts.
        console.typed("secret = 5")
        assert "went on" not in console.shown
        os.write(console.master, b"c\n")
        assert console.end() == 0, console.shown
        for rank in range(last):
            assert f"rank {rank} went on with {rank * 100 + 1007}" in console.shown
        assert f"rank {last} went on with 1005" in console.shown


def test_one_steps_on_through_collectives(tmp_path):
    with under_launcher(tmp_path, 3, STOPS) as console:
        console.until("(Pdb) ")
        assert "-> secret += 1000" in console.typed("n")
        assert "207\n" in console.typed("p secret")
        assert "-> dist.barrier()" in console.typed("n")
        assert "1207\n" in console.typed("p secret")
        # The others have come to it.
        assert "-> print(" in console.typed("n")
        os.write(console.master, b"c\n")
        assert console.end() == 0, console.shown
        assert sum(f"rank {rank} went on" in console.shown for rank in range(3)) == 3


def test_breakpoints_that_are_set_there_are_met(tmp_path):
    with under_launcher(tmp_path, 2, STOPS) as console:
        console.until("(Pdb) ")
        line = STOPS.splitlines().index("dist.barrier()") + 1
        console.typed(f"b {line}")
        assert "-> dist.barrier()" in console.typed("c")
        assert "1107\n" in console.typed("p secret")
        os.write(console.master, b"c\n")
        assert console.end() == 0, console.shown


SKIPS = """
import polyrank as dist
dist.init_process_group()
for step in range(4):
    dist.breakpoint(rank=1, skip=2)
    dist.breakpoint(rank=1, skip=3)
dist.destroy_process_group()
"""


def test_the_first_calls_of_a_line_are_skipped(tmp_path):
    with under_launcher(tmp_path, 2, SKIPS) as console:
        seen = []
        console.until("(Pdb) ")
        for _ in range(3):
            seen.append(console.typed("p step").splitlines()[1])
            if len(seen) < 3:
                console.typed("c")
        os.write(console.master, b"c\n")
        assert console.end() == 0, console.shown
        # The first line stops in steps 2 and 3, the second in step 3.
        assert seen == ["2", "3", "3"]


def test_who_waits_is_told_that_the_rank_is_at_its_breakpoint(tmp_path):
    with under_launcher(tmp_path, 3, STOPS, POLYRANK_STALL_REPORT="0.5") as console:
        console.until("(Pdb) ")
        line = STOPS.splitlines().index("dist.breakpoint(rank=dist.get_world_size() - 1)") + 1
        said = console.until(f"train.py:{line} in <module>; ")
        assert "ranks 0, 1 have waited for" in said
        assert "; rank 2 is at its breakpoint, " in said
        os.write(console.master, b"c\n")
        assert console.end() == 0, console.shown


ENDS = """
import polyrank as dist
dist.init_process_group()
try:
    dist.breakpoint(rank=1)
except dist.RankFailedError as error:
    print(f"rank {error.rank} failed: {error}", flush=True)
"""


IS_GONE = "rank 1 failed: rank 1 of group 'default_pg' is gone (its process ended: "


def test_when_the_debugger_is_quit_the_others_learn_that_the_rank_failed(tmp_path):
    ranks = Ranks(tmp_path, 3, ENDS)
    ranks.processes[1].stdin.write("p 6 * 7\nq\n")
    ranks.processes[1].stdin.flush()
    ends = ranks.ended()
    assert ends[1][0] != 0
    assert "42\n" in ends[1][1]
    assert "BdbQuit" in ends[1][2]
    for rank in (0, 2):
        assert ends[rank][0] == 0, ends[rank]
        assert ends[rank][1].startswith(IS_GONE), ends[rank]


def test_when_the_held_rank_is_killed_the_others_learn_it(tmp_path):
    ranks = Ranks(tmp_path, 2, ENDS)
    assert ranks.processes[1].stdout.readline().startswith("> ")
    ranks.processes[1].kill()
    code, out, _ = ranks.ended()[0]
    assert code == 0
    assert out.startswith(IS_GONE)


UNHELD = """
import polyrank as dist
dist.init_process_group()
try:
    dist.breakpoint(rank=1)
except dist.UnsupportedError as error:
    print(error)
dist.barrier()
print("went on")
dist.destroy_process_group()
"""


def test_a_rank_that_nobody_can_type_to_says_so_and_all_go_on(tmp_path):
    ends = Ranks(tmp_path, 2, UNHELD, is_given=False).ended()
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert ends[0][1] == "went on\n"
    assert ends[1][1] == (
        "rank 1 (no terminal, and nothing on its standard input: start the job on a terminal, or "
        "give the rank an input, as polyrank run hands its own to rank 0) does not support "
        "breakpoint\nwent on\n"
    )


def test_only_ranks_of_the_group_are_held(pair):
    pair.run(refuse)
    pair.run(raise_limits)


def refuse(here):
    with pytest.raises(polyrank.RankNotInGroupError):
        polyrank.breakpoint(rank=7, group=here.group)
    with pytest.warns(UserWarning, match="does not belong to the given group"):
        polyrank.breakpoint(group=polyrank.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(TypeError, match="rank"):
        polyrank.breakpoint("0", group=here.group)


def raise_limits(here):
    """A skipped call changes nothing; any other raises shorter limits, and lowers none."""
    assert here.group.rank() == here.rank
    group = here.make_group("limits", timeout=20)
    polyrank.breakpoint(rank=1, skip=5, group=group)
    assert group.timeout.total_seconds() == 20
