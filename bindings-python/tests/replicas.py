"""Replicas as processes: `python replicas.py FUNCTION OPTIONS` runs a function of this file, with
options as JSON. What it finds is printed as lines of JSON; "end" says that all of it was right.

As a module: how a test starts them, and the lighthouse that they need.
"""

import contextlib
import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import polyrank

#: Far beyond what any test takes, s.
PATIENCE_S = 60.0
#: How soon the lighthouse notices that a replica was killed, s.
SILENCE_S = 1.0
#: After how long a call that must not wait counts as hanging, s.
HANG_S = 5

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def say(**found):
    print(json.dumps(found), flush=True)


class Line:
    """What a child prints, as it comes."""

    def __init__(self, process):
        self.process = process
        self.found = []
        self.is_over = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.found.append(json.loads(line))
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


class Replica:
    """A process that runs a function of this file, or of another `program`."""

    def __init__(self, function, program=__file__, environment=None, **options):
        command = [sys.executable, program, function, json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True,
            env=os.environ | (environment or {}),
        )
        self.line = Line(self.process)

    def found(self):
        with self.line.changed:
            return list(self.line.found)

    def wait_for(self, is_it):
        """Waits until it has printed what `is_it` likes, and returns that."""
        line = self.line
        with line.changed:
            told = line.changed.wait_for(
                lambda: line.is_over or any(map(is_it, line.found)), PATIENCE_S
            )
            hits = [found for found in line.found if is_it(found)]
        assert told and hits, f"{self.process.args}: never said it, but {self.found()[-5:]}"
        return hits[0]

    def tell(self):
        """Has it stop."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self):
        """Waits for its good end, and returns all that it has printed."""
        code = self.process.wait(PATIENCE_S)
        self.line.reader.join(PATIENCE_S)
        found = self.found()
        assert code == 0 and {"end": True} in found, f"{code}: {found[-5:]}"
        return found


@contextlib.contextmanager
def lighthouse(min_replicas, *more):
    """The command, and its address."""
    command = [sys.executable, "-m", "polyrank", "lighthouse", "--port", "0"]
    command += ["--min-replicas", str(min_replicas), "--heartbeat-timeout", str(SILENCE_S), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stdout.readline, "")
        yield next(line.split()[1] for line in lines if line.split()[0] == "replicas:")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def replicas():
    """Starts them, and leaves none behind."""
    started = []

    def start(function, **options):
        started.append(Replica(function, **options))
        return started[-1]

    try:
        yield start
    finally:
        for replica in started:
            replica.kill()
            replica.process.stdin.close()


def manager_of(options, **more):
    settings = {"min_replica_size": 1, "timeout": 20, "quorum_timeout": 40}
    return polyrank.Manager(**(settings | options.get("settings", {}) | more))


def all_together(manager, size):
    """Steps until all replicas participate."""
    while True:
        manager.start_quorum()
        count = manager.num_participants()
        if manager.should_commit() and count == size:
            return


# Operations against NumPy.


def given(rank, shape, dtype):
    """What a replica gives: small whole numbers, of which sums and products are exact."""
    elements = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return np.array((elements + rank) % 3 + 1).astype(dtype)


def expected(op, size, shape, dtype):
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    all_given = [given(rank, shape, dtype).astype(wide) for rank in range(size)]
    combine = {"MAX": np.maximum, "MIN": np.minimum, "PRODUCT": np.multiply}.get(op, np.add)
    result = combine.reduce(all_given)
    return result / size if op == "AVG" else result


def check(tensor, op, size, dtype):
    wide = np.complex128 if dtype.kind == "c" else np.float64
    wanted = expected(op, size, tensor.shape, dtype)
    if op != "AVG":
        assert np.array_equal(tensor.astype(wide), wanted), (op, dtype, tensor, wanted)
        return
    # A sum is exact, and its average is off by roundings.
    parts = np.zeros(1, dtype).real.dtype
    nearness = 2 * float(ml_dtypes.finfo(parts).eps)
    assert np.allclose(tensor.astype(wide), wanted, rtol=nearness, atol=0), (dtype, tensor, wanted)


CASES = [(name, "AVG") for name in FLOATS]
CASES += [(name, "SUM") for name in ("int64", "int32", "uint8", "float32", "complex64")]
CASES += [(name, op) for name in ("int16", "float64") for op in ("MAX", "MIN", "PRODUCT")]


def operations(options):
    """Every kind of operation, one step for each kind of elements."""
    size = options["size"]
    manager = manager_of(options)
    all_together(manager, size)
    for name, op in CASES:
        dtype = dtype_of(name)
        manager.start_quorum()
        rank = manager.participating_rank()
        assert manager.num_participants() == size and manager.is_participating()
        reduce_op = getattr(polyrank.ReduceOp, op)
        for count in (0, 1, 7, 1001):
            tensor = given(rank, (count,), dtype)
            work = manager.allreduce(tensor, reduce_op)
            assert work.wait() is True
            assert work.result()[0] is tensor
            check(tensor, op, size, dtype)
        strided(manager, rank, size, (dtype, op))
        several = [given(rank, shape, dtype) for shape in ((3, 5), (), (0, 2), (33,))]
        manager.allreduce_coalesced(several, reduce_op).wait()
        for tensor in several:
            check(tensor, op, size, dtype)
        # What nobody waits for, and nobody has any longer but for one.
        dropped = [given(rank, (257,), dtype) for _ in range(3)]
        for tensor in dropped:
            manager.allreduce(tensor, reduce_op)
        last = dropped.pop()
        del dropped
        assert manager.should_commit(), manager.errored()
        check(last, op, size, dtype)
        assert manager.errored() is None
    default = np.full(3, manager.participating_rank(), np.float32)
    manager.start_quorum()
    manager.allreduce(default).wait()
    assert np.allclose(default, (size - 1) / 2), "AVG"
    assert manager.should_commit()
    assert len(set(manager.replicas())) == size and manager.replica_id() in manager.replicas()
    assert manager.group().size() == size
    manager.shutdown()


def strided(manager, rank, size, kind):
    """What lies between the elements of a view stays as it is."""
    dtype, op = kind
    whole = np.full((6, 9), 77).astype(dtype)
    view = whole[::2, 1::3]
    view[...] = given(rank, view.shape, dtype)
    turned = given(rank, (4, 3), dtype).T
    wanted = whole.copy()
    reduce_op = getattr(polyrank.ReduceOp, op)
    manager.allreduce(view, reduce_op).wait()
    wanted[::2, 1::3] = view
    check(view, op, size, dtype)
    assert np.array_equal(whole, wanted)
    manager.allreduce(turned, reduce_op).wait()
    wide = np.complex128 if dtype.kind == "c" else np.float64
    turned_wanted = expected(op, size, (4, 3), dtype).T
    assert np.allclose(turned.astype(wide), turned_wanted, rtol=0.02)


# Training.


class Model:
    """Parameters, and the optimizer's memory."""

    def __init__(self, options):
        rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
        self.weights = rng.standard_normal(1000).astype(np.float32)
        self.momentum = {"of": np.zeros(1000, np.float32), "steps": 0, "names": ["a", "b"]}
        self.faults = dict(options.get("faults", {}))

    def fail(self, where):
        """Fails as often as it is to."""
        if self.faults.get(where, 0) > 0:
            self.faults[where] -= 1
            raise KeyError(f"no weights: {where}")

    def save(self):
        self.fail("save")
        return {"weights": self.weights, "momentum": self.momentum}

    def load(self, state):
        self.fail("load")
        self.weights = state["weights"].copy()
        self.momentum = state["momentum"]

    def step(self, gradient):
        self.momentum["of"] = 0.9 * self.momentum["of"] + gradient
        self.momentum["steps"] += 1
        self.weights = self.weights - np.float32(0.1) * self.momentum["of"]

    def hash(self):
        parts = (self.weights, self.momentum["of"], np.array(self.momentum["steps"]))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def stopped():
    """An event that is set when the test says so, or is gone."""
    event = threading.Event()

    def read():
        sys.stdin.readline()
        event.set()

    threading.Thread(target=read, daemon=True).start()
    return event


def wait_for(*works):
    """Waits for them, which never raises."""
    for work in works:
        work.wait()


def train(options):
    """Trains until all have heard that it is over: that is reduced, too."""
    model, is_over = Model(options), stopped()
    manager = manager_of(options)
    manager.register_state_dict_fn("model", model.load, model.save)
    manager.register_state_dict_fn("count", lambda count: None, lambda: manager.current_step())
    say(started=manager.replica_id())
    while True:
        manager.start_quorum()
        participants, rank = manager.num_participants(), manager.participating_rank()
        rng = np.random.default_rng(manager.current_step())
        slope = rng.standard_normal(1000).astype(np.float32)
        # All but one take a state in the very first step, and are counted nevertheless.
        is_first = manager.current_step() == 0
        # One that does not participate contributes nothing of what it has.
        gradient = slope * np.float32(1000 if rank is None else rank + 1)
        end = np.full(1, is_over.is_set(), np.int32)
        works = [manager.allreduce(gradient), manager.allreduce(end, polyrank.ReduceOp.MAX)]
        wait_for(*works)
        if not manager.should_commit():
            say(lost=manager.errored(), at=manager.current_step())
            continue
        wanted = slope * (participants + 1) / 2
        assert is_first or np.allclose(gradient, wanted, rtol=1e-5, atol=1e-6)
        model.step(gradient)
        say(step=manager.current_step(), hash=model.hash(), participants=participants, rank=rank)
        if end[0]:
            break
    manager.shutdown()


def two_ranks(options):
    """A rank of a replica of two: it reduces with the ranks of the same number."""
    manager = manager_of(options)
    rank = options["settings"]["rank"]
    all_together(manager, options["size"])
    for step in range(5):
        is_lost, before = step == 2, manager.current_step()
        manager.start_quorum()
        if is_lost and rank == 1 and options["number"] == 0:
            manager.report_error("this rank alone")
        tensor = np.array([float(rank), 10.0 * options["number"]])
        wait_for(manager.allreduce(tensor))
        assert manager.should_commit() != is_lost, (step, manager.errored())
        assert manager.current_step() == before + (not is_lost)
        assert is_lost or list(tensor) == [rank, 10.0 * (options["size"] - 1) / 2]
    # Rank 0, with which goes the manager of the replica, waits for the other.
    manager.shutdown()


def forgets(options):
    """Ends without shutdown, as it may in any place of a step."""
    manager = manager_of(options)
    manager.register_state_dict_fn("a", manager.load_state_dict, manager.state_dict)
    if options["where"] != "before":
        manager.start_quorum()
    if options["where"] == "operation":
        manager.wait_quorum()
        manager.allreduce(np.ones(100))
    # Beyond the end of the module's names.
    sys.modules["kept"] = manager


# What goes wrong here now, told apart by a signal that ends the child.


def behind(options):
    """Takes states, until the test ends it."""
    manager = manager_of(options)
    manager.register_state_dict_fn("model", lambda state: None, lambda: None)
    while True:
        manager.start_quorum()
        manager.should_commit()


def ahead(options, load, save):
    """A manager that gives its state as soon as there is a quorum."""
    manager = manager_of(options)
    manager.load_state_dict(polyrank.ManagerState(step=5, batches_committed=5))
    manager.register_state_dict_fn("model", load, save)
    return manager


def fails_each_step(options):
    """Fails while others wait for it in an operation."""
    manager = manager_of(options)
    while True:
        manager.start_quorum()
        manager.wait_quorum()
        manager.report_error("this one fails")
        manager.should_commit()


def waits_for_one_that_fails(options):
    """No work raises what another replica has failed with."""
    manager = manager_of(options)
    raised = []
    for _ in range(100):
        manager.start_quorum()
        work = manager.allreduce(np.ones(100))
        try:
            assert work.wait() and work.is_success() and work.exception() is None
        except (polyrank.PolyrankError, AssertionError) as error:
            raised.append(repr(error))
        assert not manager.should_commit()
    assert not raised, (len(raised), raised[0])


def ahead_of_others(options):
    """Gives its state, until the test ends it."""
    manager = ahead(options, lambda state: None, lambda: None)
    while True:
        manager.start_quorum()
        manager.should_commit()


def goes_on_in_a_step(options):
    """Sets how far it is while another takes its state."""
    manager = ahead(options, lambda state: None, lambda: {"weights": np.ones(3)})
    manager.start_quorum()
    signal.alarm(HANG_S)
    manager.load_state_dict(polyrank.ManagerState(step=5, batches_committed=5))
    # The end of the process may wait for those that are connected to its store.
    signal.alarm(0)
    assert manager.should_commit()


def collects_on_its_thread(options):
    """The last who knows the manager is in a cycle, which its own thread collects."""
    collected = threading.Event()

    class Trainer:
        pass

    def save():
        gc.collect()
        collected.set()
        return {}

    trainer = Trainer()
    trainer.itself = trainer
    trainer.manager = ahead(options, lambda state: None, save)
    gc.disable()
    trainer.manager.start_quorum()
    del trainer
    say(ready=True)
    assert collected.wait(HANG_S)


def forks(options):
    """A child drops the manager of its parent."""
    manager = manager_of(options)
    child = os.fork()
    if child == 0:
        signal.alarm(HANG_S)
        del manager
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    # A shell may have had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[sys.argv[1]](json.loads(sys.argv[2]))
    say(end=True)
