"""Replicas of `test_local_sgd.py` as processes, which `replicas.py` starts: what each changes in
its inner steps is known, so that a test knows what comes of it.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys

import numpy as np
from polyrank.local_sgd import DiLoCo, LocalSGD, OuterSGD

from replicas import dtype_of, manager_of, say, stopped

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests" / "demo"))
from socket_bytes import sent_bytes  # noqa: E402

#: Odd numbers of elements, one, and none.
SHAPES = {"weight": (7, 3), "bias": (1,), "none": (0, 2), "scalar": (), "strided": (4, 5)}


def initial(dtype, seed=0):
    """Parameters, of which one is a view with other elements between its own."""
    rng = np.random.default_rng(seed)
    model = {}
    for name, shape in SHAPES.items():
        values = rng.standard_normal(shape)
        array = np.zeros((4, 5, 3), dtype)[:, :, 1] if name == "strided" else np.zeros(shape, dtype)
        array[...] = values
        model[name] = array
    return model


def change(number, step, name):
    """What replica `number` takes from a parameter in an inner step, counted from 1."""
    rng = np.random.default_rng([number, step, list(SHAPES).index(name)])
    return rng.standard_normal(SHAPES[name]) / 8


def fragments_of(model, count):
    """Parts of a model, by the order of its names."""
    return [{name: model[name] for name in names} for names in names_of_fragments(count)]


def names_of_fragments(count):
    names = list(SHAPES)
    return [names[part::count] for part in range(count)]


class Killed:
    """Ends its process when the quorum of its last round is there, and others wait for it."""

    rounds = None

    def _begin_round(self):
        has_quorum = super()._begin_round()
        if self.rounds is not None:
            self.rounds -= 1
        if self.rounds == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return has_quorum


class KilledLocalSGD(Killed, LocalSGD):
    """One of which a test knows where it dies."""


class KilledDiLoCo(Killed, DiLoCo):
    """One of which a test knows where it dies."""


def layer_of(manager, model, options):
    if options["kind"] == "LocalSGD":
        layer = KilledLocalSGD(manager, model, None, options["sync_every"])
    else:
        count, more = options.get("fragments", 1), options.get("more", {})
        parts = fragments_of(model, count)
        outer = [OuterSGD() for _ in parts] if options.get("outer") == "each" else OuterSGD()
        layer = KilledDiLoCo(manager, parts, None, outer, options["sync_every"], **more)
    layer.rounds = options.get("rounds")
    return layer


def hash_of(value):
    """Of all arrays in a state, and of their names."""
    state = hashlib.sha256()

    def add(it):
        if isinstance(it, dict):
            for key in sorted(it):
                state.update(key.encode())
                add(it[key])
        elif isinstance(it, list):
            for one in it:
                add(one)
        else:
            state.update(np.ascontiguousarray(it).tobytes())

    add(value)
    return state.hexdigest()


def numbers(model):
    return {name: array.astype(np.float64).tolist() for name, array in model.items()}


def kept_of(layer):
    """The shared parameters, of all fragments."""
    parameters = layer.state_dict()["parameters"]
    parts = parameters if isinstance(parameters, list) else [parameters]
    return {name: array for part in parts for name, array in part.items()}


def oracle(options):
    """So many inner steps; then what there is."""
    manager = manager_of(options)
    model = initial(dtype_of(options["dtype"]), options.get("seed", 0))
    layer = layer_of(manager, model, options)
    with layer:
        say(joined=numbers(model), step=manager.current_step())
        for step in range(1, options["steps"] + 1):
            for name, array in model.items():
                array -= change(options["number"], step, name).astype(array.dtype)
            committed = layer.step()
            assert committed in (None, True), manager.errored()
            if committed:
                say(at=step, hash=hash_of(layer.state_dict()))
    say(model=numbers(model), kept=numbers(kept_of(layer)))
    manager.shutdown()


def train(options):
    """Trains until all have heard that it is over: that is averaged, too."""
    manager, is_over = manager_of(options), stopped()
    model = initial(np.float32, int.from_bytes(os.urandom(4), "little"))
    model["scalar"][...] = 0
    layer = layer_of(manager, model, options)
    rng, ended = np.random.default_rng(), False
    say(started=manager.replica_id())
    with layer:
        say(step=manager.current_step(), hash=hash_of(layer.state_dict()), count=0)
        while not ended:
            for name, array in model.items():
                if name != "scalar":
                    array -= rng.standard_normal(array.shape).astype(array.dtype) / 8
            if is_over.is_set():
                model["scalar"] -= 1
            before = {name: array.copy() for name, array in model.items()}
            committed = layer.step()
            if committed is False:
                check_lost(options, layer, before, model)
                say(lost=manager.errored(), at=manager.current_step())
            if committed:
                step, state = manager.current_step(), hash_of(layer.state_dict())
                say(step=step, hash=state, count=manager.num_participants())
                ended = bool(kept_of(layer)["scalar"] != 0)
    manager.shutdown()


def check_lost(options, layer, before, model):
    """What becomes of parameters when an average is lost."""
    if options["kind"] == "LocalSGD":
        assert all(np.array_equal(model[name], array) for name, array in before.items())
        return
    kept = kept_of(layer)
    for name in names_of_fragments(options.get("fragments", 1))[layer._current]:
        assert np.array_equal(model[name], kept[name]), name


class Optimizer:
    """As much of torch's optimizers as is used of an inner one."""

    def __init__(self, parameters):
        self.parameters, self.hooks = parameters, {}

    def register_step_post_hook(self, hook):
        self.hooks[id(hook)] = hook
        test = self

        class Handle:
            def remove(self):
                del test.hooks[id(hook)]

        return Handle()

    def step(self):
        for parameter in self.parameters:
            parameter += 1
        for hook in list(self.hooks.values()):
            assert hook(self, (), {}) is None


def bytes_on_the_way(options):
    """What one outer step of many parameters sends, and what came of it."""
    manager = manager_of(options)
    model = {"many": np.zeros(1_000_000, np.float32), "few": np.ones(3, np.float32)}
    layer = DiLoCo(manager, [model], None, OuterSGD(1.0, 0.0, False), 1, **options["more"])
    with layer:
        rng = np.random.default_rng(options["number"])
        given = rng.standard_normal(1_000_000).astype(np.float32)
        model["many"] -= given
        before = sent_bytes()
        assert layer.step()
        say(bytes=sent_bytes() - before, hash=hash_of(layer.state_dict()))
        group = manager.group()
        assert group.hints.compress is None
    every = [np.random.default_rng(number).standard_normal(1_000_000) for number in range(2)]
    off = np.abs(model["many"] + np.mean(every, axis=0))
    say(off=float(off.max()), largest=float(np.abs(every).max()))
    manager.shutdown()


if __name__ == "__main__":
    # A shell may have had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[sys.argv[1]](json.loads(sys.argv[2]))
    say(end=True)
