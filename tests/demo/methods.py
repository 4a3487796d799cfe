"""The ways of training that the examples of replicas compare: what each sends, and when."""

import hashlib
from contextlib import nullcontext

from polyrank.local_sgd import DiLoCo, LocalSGD, OuterSGD
from socket_bytes import sent_bytes

#: By name: what is said of it.
METHODS = {
    "parallel": "all average gradients in each step",
    "local-sgd": "all average parameters every so many steps",
    "diloco": "an outer optimizer steps by the average of what changed in so many steps",
    "diloco-int8": "as diloco; changes travel as 8 bit integers",
    "streaming": "as diloco-int8, half of the parameters at a time, while training goes on",
}


def layer_of(method, manager, parameters, sync_every):
    """The context in which a replica trains."""
    if method == "parallel":
        return nullcontext()
    if method == "local-sgd":
        return LocalSGD(manager, parameters, sync_every=sync_every)
    if method != "streaming":
        is_quantized = method == "diloco-int8"
        return DiLoCo(manager, [parameters], sync_every=sync_every, should_quantize=is_quantized)
    names = sorted(parameters)
    halves = [{name: parameters[name] for name in names[half::2]} for half in range(2)]
    return DiLoCo(
        manager, halves, outer_optimizer=OuterSGD(), sync_every=sync_every, should_quantize=True,
        fragment_sync_delay=max(0, min(2, sync_every // 2 - 1)),
    )


def train(method, manager, parameters, gradients_of, step_by, steps, sync_every):
    """So many steps; the bytes that were sent in them. The parameters are what all share then.

    `gradients_of(step)` gives gradients by name, and `step_by(gradients)` changes the parameters.
    """
    with layer_of(method, manager, parameters, sync_every) as layer:
        before = sent_bytes()
        for step in range(steps):
            gradients = gradients_of(step)
            if layer is not None:
                step_by(gradients)
                layer.step()
                continue
            while True:
                manager.start_quorum()
                averages = {name: it.copy() for name, it in gradients.items()}
                for work in [manager.allreduce(it) for it in averages.values()]:
                    work.wait()
                if manager.should_commit():
                    break
            step_by(averages)
        sent = sent_bytes() - before
    if isinstance(layer, DiLoCo):
        # Of a fragment whose turn was earlier each replica has trained its own since.
        for part in layer.state_dict()["parameters"]:
            for name, shared in part.items():
                parameters[name][...] = shared
    return sent


def fingerprint(parameters):
    """To see whether replicas have the same bits."""
    digest = hashlib.sha256()
    for name in sorted(parameters):
        digest.update(parameters[name].tobytes())
    return digest.hexdigest()
