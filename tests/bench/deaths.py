"""How soon ranks know that one of them was killed: from the signal to the error in the last of the
survivors. Knows the libraries by the few methods of `ranks.py`; nothing of how they find out.

    cargo xtask python --release
    PYTHONPATH=bindings-python/python python tests/bench/deaths.py --worlds 2,3,5,8,32
    python tests/bench/deaths.py --worlds 4 --openmpi PYTHON_WITH_MPI4PY   # ULFM, beside polyrank
    python tests/bench/deaths.py --worlds 4,8 --cases loop,blocked --recover --trials 50 \
        --openmpi PYTHON_WITH_MPI4PY --torchft PYTHON_WITH_TORCHFT
    sudo -E python tests/bench/deaths.py --worlds 4 --hosts 2,4            # between hosts

Each trial starts its ranks anew. They are copies of this process, which has imported the library,
so that 32 of them start in a second on few cores; those of Open MPI are started by its `mpiexec`.
One gets SIGKILL at a moment that differs from trial to trial. Hosts are namespaces of this machine,
as in `network.py`, here of processes, too: no rank can ask the system for a process of another.
With `--recover` the survivors go on: they make a group of those who are left, and allreduce in it.
Then there are two more columns, which count from the error in the last survivor: until all are in
the smaller group, and until its first allreduce is done on all. It is not measured between hosts.

Cases:

- loop: all ranks allreduce, one after the other, until that fails.
- blocked: the survivors are in an allreduce for which the victim does not come.
- idle: nothing is in flight; the survivors' next call is made 0.3 s after the signal, from which
  its time counts.
- unused: as `idle`, but no rank has called anything of the group yet.
- first: as `blocked`, but it is the first call of the group.
- new_group, split_group, monitored_barrier: the survivors are in that; the victim does not come.

Beside the ranks' times stand two of the kernel's: when the victim's sockets were closed, and when
its process had ended, as this process saw them, if it got a core. With more ranks than cores in
`loop`, the victim first has to get a core to die on.
"""

import argparse
import json
import os
import random
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import network

COLUMNS = ["sockets closed", "process ended", "first survivor", "last survivor", "its maximum"]
RECOVERY_COLUMNS = ["smaller group", "its first allreduce"]
#: What stands in the columns before those of the last survivor.
MEDIANS = ("closed", "ended", "first")
CASES = "loop,blocked,idle,unused,first,new_group,split_group,monitored_barrier"
#: What a rank that is idle does nothing for, from the signal on.
IDLE_SECONDS = 0.3
#: No trial takes so long.
LIMIT_SECONDS = 60


def main():
    """Parses the command line, and measures; the same file serves as the program of a rank."""
    if sys.argv[1:2] == ["--rank"]:
        return serve_rank(*sys.argv[2:])
    if sys.argv[1:2] == ["--ranks"]:
        return start_ranks(*sys.argv[2:])
    if sys.argv[1:2] == ["--fork"]:
        return fork_ranks()
    if sys.argv[1:2] == ["--store"]:
        return keep_store(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--worlds", default="2,3,5,8,32", help="numbers of ranks")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--transports", default="auto,tcp", help="values of POLYRANK_TRANSPORT")
    parser.add_argument("--hosts", default="", help="numbers of hosts, instead of one; needs root")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of the allreduce's tensor")
    parser.add_argument("--trials", type=int, default=7, help="of each cell")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--openmpi", help="a Python that has mpi4py, with mpiexec beside it")
    parser.add_argument("--torchft", help="a Python that has torchft and torch")
    parser.add_argument("--recover", action="store_true", help="go on with those who are left")
    parser.add_argument("--raw", action="store_true", help="print each trial, with CPU times")
    options = parser.parse_args()
    if options.hosts and options.recover:
        parser.error("--recover is not for --hosts")
    columns = COLUMNS + (RECOVERY_COLUMNS if options.recover else [])
    torchft = ForkedElsewhere(options.torchft) if options.torchft else None
    print("Milliseconds from the signal, medians over the trials.\n")
    print(f"| library | ranks | case | {' | '.join(columns)} |")
    print("|---" * (3 + len(columns)) + "|", flush=True)
    for world in map(int, options.worlds.split(",")):
        for case in options.cases.split(","):
            for transport in options.transports.split(",") if not options.hosts else []:
                show(f"polyrank, {transport}", Forked(transport), world, case, options)
            for hosts in map(int, filter(None, options.hosts.split(","))):
                with network.network(hosts, 0, "reno", 0):
                    show(f"polyrank, {hosts} hosts", Hosts(hosts), world, case, options)
            if options.openmpi and case in ("loop", "blocked", "idle"):
                show("Open MPI, ULFM", Launched(options.openmpi), world, case, options)
            if torchft is not None and case in ("loop", "blocked", "idle"):
                show("torchft, Gloo", torchft, world, case, options)


def show(name, start, world, case, options):
    """Measures and prints one cell."""
    moments = random.Random(options.seed)
    trials = []
    for number in range(options.trials):
        # In turn each rank is the victim, rank 0 and with it the store as well.
        victim = (number + 1) % world
        trial = Trial(start, world, case, victim, options)
        trials.append(trial.run(moments.uniform(0.02, 0.12)))
        if options.raw:
            print(json.dumps(trials[-1]), flush=True)
    last = [it["last"] for it in trials]
    middle = {key: statistics.median(it[key] for it in trials) for key in MEDIANS}
    figures = [*middle.values(), statistics.median(last), max(last)]
    if options.recover:
        figures += [statistics.median(it[key] for it in trials) for key in ("smaller", "again")]
    shown = " | ".join(f"{it:.1f}" for it in figures)
    print(f"| {name} | {world} | {case} | {shown} |", flush=True)


class Trial:
    """Ranks of which one is killed."""

    def __init__(self, start, world, case, victim, options):
        """Starts the ranks, and waits until each of them says that it is ready."""
        self.victim = victim
        self.folder = tempfile.TemporaryDirectory(prefix="deaths-")
        path = os.path.join(self.folder.name, "control")
        with socket.socket(socket.AF_UNIX) as listening, socket.socket() as free:
            listening.bind(path)
            listening.listen(world)
            free.bind(("127.0.0.1", 0))
            url = f"tcp://{start.address}:{free.getsockname()[1]}"
            how = json.dumps({"bytes": options.bytes, "recovers": options.recover})
            words = [path, case, str(victim), how, str(world), url]
            self.store = serve_store(free) if options.recover or start.needs_store else None
            free.close()
            self.started = start(world, words)
            listening.settimeout(LIMIT_SECONDS)
            self.controls = {}
            self.processes = {}
            for _ in range(world):
                control = listening.accept()[0]
                rank = json.loads(control.makefile("r").readline())
                self.controls[rank] = control
                self.processes[rank] = process_of(control)

    def run(self, moment):
        """Milliseconds from the signal to what happened then."""
        try:
            for control in self.controls.values():
                control.sendall(b"begin\n")
            time.sleep(moment + 0.05)
            victim = self.controls.pop(self.victim)
            process = os.pidfd_open(self.processes[self.victim])
            begin = time.monotonic()
            os.kill(self.processes[self.victim], signal.SIGKILL)
            closed, ended = when_readable([victim, process])
            answers = {rank: answer(control) for rank, control in self.controls.items()}
            os.close(process)
        finally:
            self.started.end()
            if self.store is not None:
                self.store.kill()
                self.store.wait()
            self.folder.cleanup()
        after = []
        for rank, told in answers.items():
            if not told["names_victim"]:
                raise SystemExit(f"rank {rank} says of the death of {self.victim}: {told['text']}")
            after.append((told["at"] - max(begin, told["since"])) * 1e3)
        ms = [(it - begin) * 1e3 for it in (closed, ended)]
        known = {"closed": ms[0], "ended": ms[1], "first": min(after), "last": max(after)}
        told = answers.values()
        if all("again" in it for it in told):
            all_know = max(it["at"] for it in told)
            for key in ("smaller", "again"):
                known[key] = (max(it[key] for it in told) - all_know) * 1e3
        cpu = sorted(round(it["cpu"] * 1e3, 2) for it in answers.values())
        every = sorted(round(it, 1) for it in after)
        return {**known, "begin": begin, "every": every, "cpu": cpu}


def serve_store(free):
    """Serves a store at the port of this socket, which lives longer than any rank."""
    port = free.getsockname()[1]
    free.close()
    program = [sys.executable, os.path.abspath(__file__), "--store", str(port)]
    server = subprocess.Popen(program, stdout=subprocess.PIPE)
    if not server.stdout.readline():
        raise SystemExit("the store cannot be served; its error is above")
    return server


def keep_store(port):
    """Serves a store until the process is killed."""
    import polyrank

    served = polyrank.TCPStore("127.0.0.1", int(port), is_master=True, wait_for_workers=False)
    print(served.port, flush=True)
    while True:
        time.sleep(LIMIT_SECONDS)


def process_of(control):
    """The process at the other end of a socket, as this process numbers it."""
    size = struct.calcsize("3i")
    credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return struct.unpack("3i", credentials)[0]


def when_readable(files):
    """When each of two descriptors became readable."""
    when = {}
    while len(when) < len(files):
        waiting = [it for it in files if it not in when]
        readable, _, _ = select.select(waiting, [], [], LIMIT_SECONDS)
        if not readable:
            raise SystemExit("the victim does not end")
        for it in readable:
            when[it] = time.monotonic()
    return [when[it] for it in files]


def answer(control):
    """What a survivor says."""
    control.settimeout(LIMIT_SECONDS)
    try:
        line = control.makefile("r").readline()
    except TimeoutError:
        line = ""
    if not line:
        raise SystemExit("a survivor does not say that it knows; its error is above")
    return json.loads(line)


class Forked:
    """Starts ranks of polyrank, which are copies of this process."""

    address = "127.0.0.1"
    needs_store = False

    def __init__(self, transport):
        """The library is imported once."""
        import numpy  # noqa: F401
        import polyrank  # noqa: F401

        self.transport = transport

    def __call__(self, ranks, words):
        """Starts so many ranks, or these."""
        self.children = []
        for rank in range(ranks) if isinstance(ranks, int) else ranks:
            child = os.fork()
            if child == 0:
                os.environ["POLYRANK_TRANSPORT"] = self.transport
                run_as_child("polyrank", rank, words)
            self.children.append(child)
        return self

    def end(self):
        """Ends the ranks."""
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        for child in self.children:
            os.waitpid(child, 0)


def run_as_child(library, rank, words):
    """Runs a rank, and ends the process whatever happens."""
    try:
        serve_rank(library, str(rank), *words)
    except BaseException as error:  # noqa: BLE001
        print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


class Hosts:
    """Starts ranks of polyrank at hosts, those that follow one another at the same."""

    address = network.address(0)
    needs_store = False

    def __init__(self, hosts):
        """How many there are."""
        self.hosts = hosts

    def __call__(self, world, words):
        """Starts the ranks: each host has a process of numbers of its own, which starts them."""
        own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        program = [sys.executable, os.path.abspath(__file__), "--ranks"]
        self.processes = []
        for host in range(self.hosts):
            ranks = [rank for rank in range(world) if rank * self.hosts // world == host]
            command = [*own, *program, ",".join(map(str, ranks)), *words]
            self.processes.append(subprocess.Popen(network.within(host, *command)))
        return self

    def end(self):
        """Ends the hosts."""
        for process in self.processes:
            process.kill()
            process.wait()


def start_ranks(ranks, *words):
    """Starts the ranks of a host, and lives as long as they do."""
    start = Forked("auto")
    start([int(rank) for rank in ranks.split(",")], list(words))
    time.sleep(2 * LIMIT_SECONDS)


class Launched:
    """Starts ranks of Open MPI, which ULFM keeps alive."""

    address = "127.0.0.1"
    needs_store = False

    def __init__(self, python):
        """Its Python."""
        self.python = python

    def __call__(self, world, words):
        """Starts the ranks."""
        mpiexec = os.path.join(os.path.dirname(self.python), "mpiexec")
        launcher = [mpiexec, "--with-ft", "ulfm", "--oversubscribe", "-n", str(world)]
        rank = [self.python, os.path.abspath(__file__), "--rank", "ulfm", "-1", *words]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # The launcher reports the death that was asked for.
        self.process = subprocess.Popen(
            launcher + rank, env={**os.environ, **allowed}, stderr=subprocess.DEVNULL
        )
        return self

    def end(self):
        """Ends the ranks."""
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class ForkedElsewhere:
    """Starts ranks of torchft: copies of a process that has imported it, which needs seconds."""

    address = "127.0.0.1"
    needs_store = True

    def __init__(self, python):
        """Its Python."""
        program = [python, os.path.abspath(__file__), "--fork"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.parent = subprocess.Popen(program, text=True, **pipes)

    def __call__(self, world, words):
        """Starts the ranks."""
        self.ask([world, words])
        return self

    def end(self):
        """Ends the ranks."""
        self.ask(None)

    def ask(self, what):
        """Has the other process do it."""
        print(json.dumps(what), file=self.parent.stdin, flush=True)
        if not self.parent.stdout.readline():
            raise SystemExit("torchft cannot be imported there")


def fork_ranks():
    """Starts ranks, and ends them, as it is asked to."""
    import torchft  # noqa: F401

    children = []
    for line in sys.stdin:
        asked = json.loads(line)
        for rank in range(asked[0]) if asked else ():
            child = os.fork()
            if child == 0:
                run_as_child("torchft", rank, asked[1])
            children.append(child)
        if not asked:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            children.clear()
        print("done", flush=True)


def serve_rank(library, rank, path, case, victim, how, world, url):
    """Joins, says so, does what the case says until it fails, and says when that was."""
    import numpy

    control = socket.socket(socket.AF_UNIX)
    how = json.loads(how)
    group = LIBRARIES[library](int(rank), int(world), url, how["recovers"])
    tensor = numpy.zeros(how["bytes"] // 4, numpy.float32)
    if case not in ("unused", "first"):
        for _ in range(5):
            group.allreduce(tensor)
        group.barrier()
    control.connect(path)
    lines = control.makefile("rw")
    lines.write(json.dumps(group.rank) + "\n")
    lines.flush()
    lines.readline()
    is_victim = group.rank == int(victim)
    if is_victim and case != "loop":
        time.sleep(LIMIT_SECONDS)
    if case in ("idle", "unused"):
        time.sleep(IDLE_SECONDS + 0.17)
    since = time.monotonic() if case in ("idle", "unused") else 0
    call = getattr(group, case, group.allreduce)
    cpu = time.process_time()
    try:
        while True:
            call(tensor)
    except Exception as error:  # noqa: BLE001
        at, cpu = time.monotonic(), time.process_time() - cpu
        text = f"{type(error).__name__}: {error}"
        told = {"since": since, "at": at, "cpu": cpu, "text": text}
        told["names_victim"] = group.names(error, int(victim))
        if how["recovers"] and told["names_victim"]:
            group.go_on_without(int(victim))
            told["smaller"] = time.monotonic()
            group.allreduce(tensor)
            told["again"] = time.monotonic()
        # Others have not heard of it yet, and need the cores.
        time.sleep(IDLE_SECONDS)
    lines.write(json.dumps(told) + "\n")
    lines.flush()
    # The others may still need this process.
    time.sleep(LIMIT_SECONDS)


class Polyrank:
    """The default group."""

    def __init__(self, rank, world, url, has_store):
        """Joins it."""
        import polyrank

        self.library, self.rank = polyrank, rank
        where = {"init_method": url}
        if has_store:
            # It lives longer than any rank.
            host, port = url.removeprefix("tcp://").rsplit(":", 1)
            where = {"store": polyrank.TCPStore(host, int(port), is_master=False)}
        polyrank.init_process_group(
            "tcp", **where, rank=rank, world_size=world, timeout=LIMIT_SECONDS / 2
        )
        self.allreduce, self.barrier = polyrank.all_reduce, polyrank.barrier

    def go_on_without(self, victim):
        """The default group has one rank less."""
        self.library.group.WORLD.shrink_group([victim]).wait()

    def new_group(self, _):
        """A group of all ranks."""
        self.library.new_group()

    def split_group(self, _):
        """A part that has all ranks."""
        self.library.split_group(split_ranks=[list(range(self.library.get_world_size()))])

    def monitored_barrier(self, _):
        """Waits for all, and says who did not come."""
        self.library.monitored_barrier()

    def names(self, error, victim):
        """Whether the error says that this rank died."""
        is_death = isinstance(error, self.library.RankFailedError) and error.rank == victim
        missing = getattr(error, "missing_ranks", [])
        return is_death or missing == [victim]


class Ulfm:
    """All ranks of the job of `mpiexec`."""

    def __init__(self, _rank, _world, _url, _has_store):
        """Has failures raised."""
        from mpi4py import MPI

        self.library, self.group = MPI, MPI.COMM_WORLD
        self.group.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.barrier = self.group.rank, self.group.Barrier

    def allreduce(self, tensor):
        """Who learns of a death revokes the communicator, so that all do."""
        try:
            self.group.Allreduce(self.library.IN_PLACE, tensor)
        except self.library.Exception:
            self.group.Revoke()
            raise

    def go_on_without(self, _victim):
        """A communicator of those who are left."""
        self.group = self.group.Shrink()

    def names(self, _error, _victim):
        """An error of MPI names no rank."""
        return True


class Torchft:
    """torchft's group over Gloo, which is made anew by `configure`."""

    def __init__(self, rank, world, url, _has_store):
        """Makes it the first time."""
        import datetime

        import torch
        import torchft

        self.torch, self.rank, self.world = torch, rank, world
        self.store = url.removeprefix("tcp://")
        limit = datetime.timedelta(seconds=LIMIT_SECONDS / 2)
        self.group = torchft.ProcessGroupGloo(timeout=limit)
        self.configure("first", rank, world)

    def configure(self, name, rank, world):
        """Meets the others under this name."""
        self.group.configure(f"{self.store}/{name}", f"replica{self.rank}", rank, world)

    def allreduce(self, tensor):
        """Of the same memory."""
        op = self.torch.distributed.ReduceOp.SUM
        self.group.allreduce([self.torch.from_numpy(tensor)], op).wait()

    def barrier(self):
        """All are there."""
        import numpy

        self.allreduce(numpy.zeros(1, numpy.float32))

    def go_on_without(self, victim):
        """The others, in their order."""
        self.configure("second", self.rank - (self.rank > victim), self.world - 1)

    def names(self, _error, _victim):
        """An error of Gloo names no rank."""
        return True


LIBRARIES = {"polyrank": Polyrank, "ulfm": Ulfm, "torchft": Torchft}

if __name__ == "__main__":
    main()
