"""Softmax regression on handwritten digits by replicas that average seldom: LocalSGD and DiLoCo
beside plain data parallelism, with the same samples.

    python tests/demo/digits_replicas.py
    python tests/demo/digits_replicas.py --replicas 3 --sync-every 10 diloco

Needs Linux, which counts what is sent.
"""

import argparse
import json
import sys

import numpy as np

from digits import CLASSES, PIXELS, gradient, load
from methods import METHODS, fingerprint, train
from replica_jobs import manager_of, run, same_everywhere

RATE = np.float32(0.5)


def replica(options):
    """One replica: trains with the others, and prints what came of it."""
    (images, digits), (test_images, test_digits) = load()
    manager = manager_of(options.replicas)
    parameters = {"weights": np.zeros((PIXELS + 1, CLASSES), np.float32)}
    share = options.batch // options.replicas

    def gradients_of(step):
        # In each step all replicas together have as many images, whatever their number.
        chosen = np.random.default_rng(step).permutation(len(images))[: share * options.replicas]
        mine = chosen[options.replica :: options.replicas]
        total = gradient(parameters["weights"], images[mine], digits[mine])
        return {"weights": (total[:-1] / np.float32(share)).reshape(PIXELS + 1, CLASSES)}

    def step_by(gradients):
        parameters["weights"] -= RATE * gradients["weights"]

    sent = train(options.method, manager, parameters, gradients_of, step_by, options.steps,
                 options.sync_every)
    weights = parameters["weights"]
    right = np.mean((test_images @ weights).argmax(axis=1) == test_digits)
    loss = float(gradient(weights, test_images, test_digits)[-1]) / len(test_images)
    found = {"loss": loss, "right": float(right), "sent": sent, "hash": fingerprint(parameters)}
    print(json.dumps(found), flush=True)
    manager.shutdown()


def arguments():
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ways = "\n".join(f"{name}: {text}" for name, text in METHODS.items())
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=list(METHODS)[:4],
                        help=f"one or more of: {'; '.join(ways.splitlines())}")
    parser.add_argument("--replicas", type=int, default=2, help="how many (2)")
    parser.add_argument("--steps", type=int, default=400, help="inner steps of each (400)")
    parser.add_argument("--sync-every", type=int, default=20,
                        help="inner steps between two averages; --steps is a multiple (20)")
    parser.add_argument("--batch", type=int, default=256, help="images of all in a step (256)")
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.methods) - set(METHODS):
        parser.error(f"unknown methods: {', '.join(sorted(unknown))}; see --help")
    if options.steps % options.sync_every:
        parser.error("--steps must be a multiple of --sync-every, or the last steps are averaged "
                     "by nobody")
    if "streaming" in options.methods:
        parser.error("streaming averages halves of the parameters, of which there is one array "
                     "here: see text_replicas.py")
    return options


def main():
    """Runs each method with replicas of its own; 0 if replicas have ended with the same bits."""
    options = arguments()
    if options.replica is not None:
        options.method = options.methods[0]
        replica(options)
        return 0
    good = True
    print("method        loss    right   bytes a step  weights")
    for method in options.methods:
        words = [method, "--replicas", str(options.replicas), "--steps", str(options.steps)]
        words += ["--sync-every", str(options.sync_every), "--batch", str(options.batch)]
        results = run(__file__, words, options.replicas)
        same = same_everywhere(results)
        first, good = results[0], good and same
        sent = sum(result["sent"] for result in results) / len(results) / options.steps
        print(f"{method:12}  {first['loss']:.4f}  {first['right']:.4f}  {sent:12,.0f}  "
              f"{'the same bits' if same else 'DIFFERENT'} on all", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
