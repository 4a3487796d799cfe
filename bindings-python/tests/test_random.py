"""Random sequences of operations, in flight together, against NumPy.

Other tests take operations one by one; what one of them leaves behind for the next is found here.
A sequence follows from a seed. `POLYRANK_TEST_SEED` sets it; else it is drawn, and a failure says
it together with the step, the operation, and the command that runs the same again.
"""

import os
import random

import polyrank
import polyrank.distributed as dist
from operations import possible
from ranks import RankError
from turns import Turn

SEED = "POLYRANK_TEST_SEED"
# By size: more ranks have more to do in each step.
STEPS = {1: 1000, 2: 400, 3: 250, 5: 120, 8: 70}
# An operation takes milliseconds. This is less than the patience of the pool, so that all ranks say
# what they waited for.
TIMEOUT_S = 20.0


def sequence(here, seed):
    store = polyrank.PrefixStore(f"random {seed}", here.store)
    dist.init_process_group(
        "tcp", store=store, rank=here.rank, world_size=here.size, timeout=TIMEOUT_S
    )
    try:
        take_turns(seed, here.rank, STEPS[here.size])
        dist.barrier()
    except BaseException:
        # So that the others need not wait for their deadline.
        dist.abort_process_group()
        raise
    dist.destroy_process_group()


def take_turns(seed, rank, steps):
    """All ranks start the same operations in the same order. Each waits when it likes to."""
    group = polyrank.default_group()
    dice = random.Random(f"{seed} rank {rank}")
    calls = possible(group.size())
    pending: list[Turn] = []
    limit = 0
    for number in range(steps):
        turn = Turn(group, seed, number, dice, calls)
        with_note(seed, number, turn, turn.start)
        if not turn.later or not turn.works:
            with_note(seed, number, turn, turn.finish)
            continue
        pending.append(turn)
        if len(pending) > limit:
            dice.shuffle(pending)
            left = dice.randint(0, limit)
            while len(pending) > left:
                turn = pending.pop()
                with_note(seed, number, turn, turn.finish)
            limit = dice.choice([0, 2, 5, 20])
    while pending:
        turn = pending.pop(dice.randrange(len(pending)))
        with_note(seed, steps, turn, turn.finish)


def with_note(seed, number, turn, call):
    """Calls it; what it raises says where in the sequence."""
    try:
        call()
    except BaseException as error:
        error.add_note(f"seed {seed}, at step {number}, {call.__name__} of {turn.number}: {turn}")
        raise


def test_random_sequences(world):
    seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 32))
    try:
        world.run(sequence, seed)
    except RankError as error:
        file = os.path.relpath(__file__)
        error.add_note(f"Again: {SEED}={seed} python -m pytest {file} -k world{world.size}")
        raise
