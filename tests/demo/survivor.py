"""A rank in Python for the site's demo "Kill a rank": it trains with tabs that come and go.

    python tests/demo/survivor.py ws://127.0.0.1:29510/ ROOM

The page of the room shows both. How ranks agree on who trains together, and on the weights, is
written in site/src/survive; this does the same, so that its bits are theirs.
"""

import argparse
import contextlib
import json
import pathlib
import secrets
import time

import numpy as np

import polyrank as pr

INPUTS, CLASSES = 65, 10
WEIGHTS = INPUTS * CLASSES
BATCH, LEARNING_RATE = 256, 0.05
PACE_S, PATIENCE_S, PAUSE_S, ERROR_PAUSE_S = 0.06, 3.0, 0.02, 0.1
TIMEOUT_S, MEETING_S = 10.0, 5.0
COMPARED_EVERY = 20
DIGITS = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.csv"


def main():
    """Trains until it is interrupted, or has made so many steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("url", help="the store beside the site: ws://127.0.0.1:29510/")
    parser.add_argument("room", help="the room, as the page's address has it")
    parser.add_argument("--steps", type=int, help="leave after so many")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        survive(options.url, options.room, options.steps)


def survive(url, room, steps):
    """Trains with whoever is there."""
    me = {"id": secrets.token_hex(3), "name": "Python"}
    prefix = f"rooms/{room}/survive"
    store = pr.WebSocketStore(url, timeout=TIMEOUT_S)
    meetings = Meetings(store, prefix, me)
    options = {"group_name": me["id"], "timeout": TIMEOUT_S, "enable_reconfigure": True}
    group = pr.ProcessGroup(pr.PrefixStore(prefix, store), 0, 1, backend="websocket", **options)
    trainer = Trainer(group, read_examples(), steps)
    last, expected = None, []
    while expected is not None:
        number, members, knocks = meetings.join(last, expected)
        rank = [member["id"] for member in members].index(me["id"])
        gone, leaves, last = set(), False, number
        print(f"quorum {number}: rank {rank} of {len(members)}", flush=True)
        try:
            group.set_timeout(MEETING_S)
            group.configure(f"{url.rstrip('/')}/{prefix}/group/{number}", rank, len(members))
            group.set_timeout(TIMEOUT_S)
            trainer.heal(rank, len(members))
            looks = meetings if rank == 0 else None
            leaving = trainer.train(rank, len(members), looks, knocks)
            gone = {one for one in range(len(members)) if leaving[one]}
            leaves = rank in gone
        except pr.RankFailedError as error:
            gone = {error.rank}
        except pr.RendezvousTimeoutError as error:
            gone = set(error.missing_ranks)
        except pr.PolyrankError as error:
            print(f"quorum {number}: {error}", flush=True)
            time.sleep(ERROR_PAUSE_S)
        expected = [it["id"] for at, it in enumerate(members) if at not in gone]
        expected = None if leaves else expected
    group.abort()


class Meetings:
    """How ranks agree in a store who trains together."""

    def __init__(self, store, prefix, me):
        """As this member."""
        self.store, self.prefix, self.me = store, prefix, me

    def join(self, last, expected):
        """The number and the members of the next quorum that this rank is in, and how often
        somebody had knocked before it was closed."""
        newest = self.newest()
        number = max(newest, last or 0) + 1
        if last is None and newest > 0:
            expected = [member["id"] for member in self.closed(newest)]
            self.knock()
        elif last is not None and newest > last:
            expected = [*expected, *(member["id"] for member in self.closed(newest))]
            self.knock()
        while True:
            knocks = self.knocks()
            self.store.append(self.key(number, "came"), json.dumps(self.me) + "\n")
            members = self.close(number, expected)
            if any(member["id"] == self.me["id"] for member in members):
                return number, members, knocks
            self.knock()
            expected, number = [member["id"] for member in members], number + 1

    def close(self, number, expected):
        """Who is in the quorum, once that is closed, by this rank or another."""
        until = time.monotonic() + PATIENCE_S
        while not self.store.check([self.key(number, "closed")]):
            lines = self.store.get(self.key(number, "came")).decode().split("\n")
            came = [json.loads(line) for line in lines if line]
            missing = set(expected) - {member["id"] for member in came}
            if not missing or time.monotonic() > until:
                ours = json.dumps(came)
                closed = self.store.compare_set(self.key(number, "closed"), "", ours).decode()
                if closed == ours:
                    self.raise_newest(number)
                return json.loads(closed)
            time.sleep(PAUSE_S)
        return self.closed(number)

    def raise_newest(self, number):
        """Makes this the number of the newest quorum, unless a later one was closed meanwhile."""
        now = self.store.compare_set(f"{self.prefix}/newest", "", str(number)).decode()
        while int(now) < number:
            now = self.store.compare_set(f"{self.prefix}/newest", now, str(number)).decode()

    def newest(self):
        """The number of the quorum that was closed last."""
        key = f"{self.prefix}/newest"
        return int(self.store.get(key)) if self.store.check([key]) else 0

    def closed(self, number):
        """The members of a quorum."""
        return json.loads(self.store.get(self.key(number, "closed")))

    def knocks(self):
        """How often somebody has knocked."""
        return self.store.add(f"{self.prefix}/knocks", 0)

    def knock(self):
        """Tells the members of other quorums that somebody waits for them."""
        self.store.add(f"{self.prefix}/knocks", 1)

    def key(self, number, name):
        """Of one quorum."""
        return f"{self.prefix}/{number}/{name}"


class Trainer:
    """What one rank has of the model."""

    def __init__(self, group, examples, last_step):
        """From nothing."""
        self.group, (self.inputs, self.digits), self.last_step = group, examples, last_step
        self.weights, self.step = np.zeros(WEIGHTS, np.float32), 0
        self.own_steps = 0

    def heal(self, rank, size):
        """All get the state of the one that has made the most steps."""
        steps = np.zeros(size, np.int32)
        steps[rank] = self.step
        self.group.allreduce([steps]).wait()
        # What comes is kept when it has come as a whole.
        weights = self.weights.copy()
        self.group.broadcast(weights, int(steps.argmax())).wait()
        self.weights, self.step = weights, int(steps.max())

    def train(self, rank, size, looks, knocks):
        """Trains until somebody knocks or leaves; who leaves, by rank. Rank 0 `looks` for those."""
        while True:
            began = time.monotonic()
            start = self.step % -(-len(self.inputs) // BATCH) * BATCH
            inputs, digits = self.inputs[start : start + BATCH], self.digits[start : start + BATCH]
            total = np.zeros(WEIGHTS + 2 + size, np.float32)
            total[: WEIGHTS + 1] = gradient(self.weights, inputs[rank::size], digits[rank::size])
            total[WEIGHTS + 1] = looks is not None and looks.knocks() != knocks
            leaves = self.last_step is not None and self.own_steps + 1 >= self.last_step
            total[WEIGHTS + 2 + rank] = leaves
            self.group.allreduce([total]).wait()
            # Each operation is rounded to 32 bits, as in the tabs.
            self.weights -= np.float32(LEARNING_RATE / len(inputs)) * total[:WEIGHTS]
            self.step, self.own_steps = self.step + 1, self.own_steps + 1
            if self.step % COMPARED_EVERY == 0:
                self.compare()
            if total[WEIGHTS + 1 :].any():
                return total[WEIGHTS + 2 :]
            time.sleep(max(0.0, PACE_S - (time.monotonic() - began)))

    def compare(self):
        """Takes part in the comparison of all weights."""
        smallest = self.weights.view(np.uint32).copy()
        largest = smallest.copy()
        self.group.allreduce([smallest], pr.ReduceOp.MIN).wait()
        self.group.allreduce([largest], pr.ReduceOp.MAX).wait()
        if (smallest != largest).any():
            raise SystemExit("the ranks have different weights")


def read_examples():
    """The images for training, each with a one for the bias, and their digits."""
    table = np.loadtxt(DIGITS, delimiter=",")
    table = table[np.arange(len(table)) % 5 != 4]
    return np.hstack([table[:, :-1] / 16, np.ones((len(table), 1))]), table[:, -1].astype(int)


def gradient(weights, inputs, digits):
    """The sum over the examples of the gradient, with that of the losses behind it."""
    scores = inputs @ weights.reshape(INPUTS, CLASSES).astype(np.float64)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True)) if len(inputs) else scores
    errors = exponentials / exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(digits))
    loss = -np.log(np.maximum(errors[rows, digits], np.finfo(np.float64).tiny)).sum()
    errors[rows, digits] -= 1
    return np.append((inputs.T @ errors).ravel(), loss).astype(np.float32)


if __name__ == "__main__":
    main()
