"""A replica that learns the digits together with others that come and go: the Python replicas of
`cargo xtask churn`.

`learner.mjs` is the same program in JavaScript, `tests/examples/learner.rs` in Rust. Its arguments
are the lighthouse, its name, its number, how many milliseconds a step takes at least, and after how
many steps it ends. It prints a line of JSON for each step. Its input has lines as well: `slow 100`
adds so many milliseconds to its steps, and after `stop` all end together.
"""

import json
import sys
import threading
import time

import numpy as np
import polyrank as pr
from digits import CLASSES, PIXELS, fingerprint, gradient, load

BATCH, LEARNING_RATE = 64, np.float32(0.1)
#: Replicas whose images differ.
NUMBERS = 6
#: How long an operation, and a quorum, are waited for, s.
TIMEOUT_S, QUORUM_TIMEOUT_S = 3, 6


def say(**found):
    print(json.dumps(found), flush=True)


class Orders:
    """What is read from the input."""

    def __init__(self):
        self.is_over = False
        self.slow_s = 0.0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in sys.stdin:
            if line.startswith("slow "):
                self.slow_s = float(line.split()[1]) / 1000
            if line.strip() == "stop":
                self.is_over = True


def read(state):
    """The weights."""
    return np.frombuffer(state.get("weights"), "<f4").reshape(PIXELS + 1, CLASSES)


def main():
    """Trains until it is told to end."""
    lighthouse, name, number, pace_ms, steps = sys.argv[1:]
    (images, digits), _ = load()
    orders = Orders()
    # What another replica gives comes into the store, and what is in it is given to others.
    state = pr.HashStore()
    state.set("weights", np.zeros((PIXELS + 1, CLASSES), "<f4").tobytes())

    manager = pr.Manager(
        1,
        lighthouse_addr=lighthouse,
        replica_id=name,
        rank=0,
        world_size=1,
        timeout=TIMEOUT_S,
        quorum_timeout=QUORUM_TIMEOUT_S,
    )
    manager.register_state_store("weights", state)
    say(started=manager.replica_id())
    is_over = False
    while not is_over:
        began = manager.current_step()
        try:
            manager.start_quorum()
            first = (began * NUMBERS + int(number)) * BATCH
            mine = np.arange(first, first + BATCH) % len(images)
            slope = gradient(read(state), images[mine], digits[mine])[:-1] / np.float32(BATCH)
            time.sleep(int(pace_ms) / 1000 + orders.slow_s)
            over = np.full(1, orders.is_over or began + 1 >= int(steps), np.int32)
            # How many of those that participate have given something: some may take a state.
            share = np.ones(1)
            works = [manager.allreduce(slope), manager.allreduce(over, pr.ReduceOp.MAX)]
            works.append(manager.allreduce(share))
            for work in works:
                work.wait()
            is_committed = manager.should_commit()
        except pr.QuorumError as error:
            say(lost=began, why=str(error))
            continue
        if is_committed:
            # Single operations of IEEE 754 on binary32, each rounded: every language has the same.
            weights = read(state)
            weights = weights - LEARNING_RATE * slope.reshape(weights.shape)
            state.set("weights", weights.astype("<f4").tobytes())
            is_over = bool(over[0])
            step, participants = manager.current_step(), manager.num_participants()
            batches, hash_of_it = manager.batches_committed(), f"{fingerprint(weights):016x}"
            gave = round(float(share[0]) * participants, 6)
            gives = manager.is_participating()
            members = len(manager.replicas())
            who = {"members": members, "of": participants, "gives": gives, "gave": gave}
            say(step=step, since=began, **who, batches=batches, hash=hash_of_it)
        else:
            say(lost=manager.current_step(), why=manager.errored())
    loss = float(gradient(read(state), images, digits)[-1]) / len(images)
    say(end=manager.current_step(), loss=loss)
    manager.shutdown()


if __name__ == "__main__":
    main()
