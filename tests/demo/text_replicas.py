"""A transformer of 1.3 million parameters learns this repository's documentation, byte by byte, on
replicas that average seldom: DiLoCo beside plain data parallelism, with the same samples.

    python tests/demo/text_replicas.py
    python tests/demo/text_replicas.py --steps 300 --sync-every 30 parallel diloco streaming

Some minutes for each method, one core for each replica. Needs Linux, which counts what is sent.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from methods import METHODS, fingerprint, train
from replica_jobs import manager_of, run, same_everywhere
from transformer import Adam, loss_and_gradients, parameters_of

HEADS = 5
ROOT = Path(__file__).parents[2]


def load():
    """The bytes of all pages, of which every tenth stretch of 4 KiB is for testing."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "site").glob("[!n]*/*.md"))]
    text = np.frombuffer("\n".join(page.read_text("utf-8") for page in pages).encode(), np.uint8)
    stretches = [text[begin : begin + 4096] for begin in range(0, len(text), 4096)]
    tests = np.concatenate(stretches[9::10])
    del stretches[9::10]
    return np.concatenate(stretches), tests


def windows(text, places, context):
    """Rows of bytes, each one longer than the context."""
    return text[places[:, None] + np.arange(context + 1)].astype(np.int64)


def test_loss(parameters, text, context):
    """The mean loss on a part of the text that nobody has trained on."""
    places = np.linspace(0, len(text) - context - 1, 24).astype(int)
    return loss_and_gradients(parameters, windows(text, places, context), HEADS, False)[0]


def replica(options):
    """One replica: trains with the others, and prints what came of it."""
    text, tests = load()
    manager = manager_of(options.replicas)
    # So that methods are compared: replicas may begin with any, since all take those of one.
    rng = np.random.default_rng(0)
    parameters = parameters_of(rng, options.width, options.layers, options.context)
    optimizer = Adam(parameters, options.rate)
    share, began, losses = options.batch // options.replicas, time.monotonic(), []

    def gradients_of(step):
        # In each step all replicas together have the same samples, whatever their number.
        chosen = np.random.default_rng([7, step]).integers(
            0, len(text) - options.context - 1, share * options.replicas
        )
        mine = windows(text, chosen[options.replica :: options.replicas], options.context)
        loss, gradients = loss_and_gradients(parameters, mine, HEADS)
        losses.append(loss)
        if (step + 1) % max(1, options.steps // 10) == 0:
            passed = time.monotonic() - began
            recent = np.mean(losses[-10:])
            if options.replica == 0:
                print(f"{options.method}: step {step + 1} of {options.steps}, loss {recent:.3f}, "
                      f"{passed:.0f} s", flush=True)
        return gradients

    def step_by(gradients):
        optimizer.step(parameters, gradients)

    if options.method == "parallel":
        share_of_one(manager, parameters)
    sent = train(options.method, manager, parameters, gradients_of, step_by, options.steps,
                 options.sync_every)
    found = {"loss": test_loss(parameters, tests, options.context), "sent": sent,
             "hash": fingerprint(parameters), "seconds": time.monotonic() - began,
             "count": sum(it.size for it in parameters.values())}
    print(json.dumps(found), flush=True)
    manager.shutdown()


def share_of_one(manager, parameters):
    """All begin with the parameters of one, as in the manager's first step all take its state."""
    def load_state_dict(state):
        for name, array in parameters.items():
            array[...] = state[name]

    manager.register_state_dict_fn("model", load_state_dict, lambda: parameters)
    while manager.current_step() == 0:
        manager.start_quorum()
        manager.should_commit()


def arguments():
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ways = "; ".join(f"{name}: {text}" for name, text in METHODS.items())
    parser.add_argument("methods", nargs="*", metavar="METHOD",
                        default=["parallel", "diloco", "diloco-int8"],
                        help=f"one or more of: {ways}")
    numbers = {
        "replicas": (2, "how many"),
        "steps": (200, "inner steps of each"),
        "sync-every": (20, "inner steps between two averages; --steps is a multiple"),
        "batch": (16, "rows of all replicas in a step"),
        "context": (96, "bytes of a row"),
        "width": (160, "of the residual stream, a multiple of 5"),
        "layers": (4, "of the transformer"),
    }
    for name, (default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--rate", type=float, default=2e-3, help="of Adam (0.002)")
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.methods) - set(METHODS):
        parser.error(f"unknown methods: {', '.join(sorted(unknown))}; see --help")
    if options.steps % options.sync_every:
        parser.error("--steps must be a multiple of --sync-every, or the last steps are averaged "
                     "by nobody")
    if "streaming" in options.methods and options.sync_every % 2:
        parser.error("streaming averages halves, one after the other: --sync-every must be even")
    options.numbers = [word for name in [*numbers, "rate"]
                       for word in (f"--{name}", str(getattr(options, name.replace("-", "_"))))]
    return options


def main():
    """Runs each method with replicas of its own; 0 if replicas have ended with the same bits."""
    options = arguments()
    if options.replica is not None:
        options.method = options.methods[0]
        replica(options)
        return 0
    good = True
    print("method        parameters    loss  bytes a step  seconds  weights on all")
    for method in options.methods:
        results = run(__file__, [method, *options.numbers], options.replicas)
        same = same_everywhere(results)
        first, good = results[0], good and same
        sent = sum(result["sent"] for result in results) / len(results) / options.steps
        print(f"{method:12}  {first['count']:10,}  {first['loss']:.4f}  {sent:12,.0f}  "
              f"{first['seconds']:7.0f}  {'the same bits' if same else 'DIFFERENT'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
