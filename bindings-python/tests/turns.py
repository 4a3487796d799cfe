"""One rank's part in an operation with random arguments, and the values that NumPy says it gives.

What all ranks must agree on comes from dice that they share: the operation, dtype, operator, sizes,
root. What is each rank's own affair comes from its own dice: which memory its tensors lie in, which
form of the call it takes, whether it waits immediately. Knows nothing of sequences, and of
operations only that they are functions that take a `Turn`.
"""

import random
from functools import partial

import numpy as np

import polyrank
from oracles import (
    COMPLEX,
    DTYPES,
    FACTOR,
    INTEGERS,
    SUPPORTED,
    UNSIGNED,
    dtype_of,
    reduced,
    same,
)

# Slices of it are the tensors: that is far faster than drawing them, and no two parts are alike.
NOISE = np.frombuffer(np.random.default_rng(0).bytes(1 << 23), np.uint8)
POWERS = [2**exponent + more for exponent in range(2, 19) for more in (-1, 0, 1)]
FEW = [0, 1, 2, 3, 7, 9, 100, *(count for count in POWERS if count < 1100)]
COUNTS = [0, 1, *POWERS, 300_001]
# From this length on polyrank's own memory is read where it lies, in segments of it; what is left
# for the last segment decides how that one travels.
SEGMENT = 256 << 10
RESTS = [0, *range(1, 9), 4096, 4097]
# What one rank takes part with in one operation, so that eight ranks fit into small machines.
MAX_BYTES = 5 << 20
# Of messages whose sender is known; greater ones are for those whose sender is not.
TAGS = 3


def in_numpy(array):
    return array.copy(), None


def in_polyrank(array):
    own = polyrank.empty(len(array), array.dtype)
    own[...] = array
    return own, None


def strided(array):
    base = np.ones(2 * len(array) + 1, array.dtype)
    base[1::2] = array
    return base[1::2], base[::2]


def backwards(array):
    return array[::-1].copy()[::-1], None


def offset_in_polyrank(array):
    base = polyrank.empty(len(array) + 3, array.dtype)
    base[:3] = 1
    base[3:] = array
    return base[3:], base[:3]


# Each gives a view with these elements, and what lies beside it and must stay ones.
MEMORIES = [in_numpy, in_polyrank, strided, backwards, offset_in_polyrank]


class Turn:
    """One rank's part in operation `number` of the sequence of a seed, which is one of `calls`.

    A call takes the turn and gives a `Work`, a list of them, or None where it has waited.
    """

    def __init__(self, group, seed, number, dice, calls):
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self.number, self.dice = number, dice
        self.shared = random.Random(f"{seed} {number}")
        self.call = self.shared.choice(calls)
        # Ranks that all have memory of polyrank get nowhere by chance alone.
        self.own = self.shared.random() < 0.4
        byte = self.own and self.shared.random() < 0.5
        self.dtype = self.shared.choice(["uint8", "int8", "bool"] if byte else DTYPES)
        self.op = self.shared.choice([op for op in SUPPORTED if self.dtype in SUPPORTED[op]])
        self.root = self.shared.randrange(self.size)
        self.free = dice.random() < 0.5
        self.later = dice.random() < 0.7
        self.sizes, self.memories = [], []
        self.works, self.checks = [], []

    def __str__(self):
        form = "free function" if self.free else "method"
        waits = "later" if self.later else "at once"
        return (
            f"{self.call.__name__} of {self.dtype}, {self.op}, root {self.root}, counts drawn "
            f"{self.sizes}; here: {form}, waits {waits}, memory {self.memories}"
        )

    def start(self):
        works = self.call(self)
        works = works if isinstance(works, list) else [works]
        self.works = [work for work in works if work is not None]

    def finish(self):
        """Waits, in any order and by any means, and compares what came."""
        self.dice.shuffle(self.works)
        for work in self.works:
            if self.dice.random() < 0.7:
                assert work.wait() is True
            else:
                work.get_future().wait()
        for tensor, expected in self.checks:
            same(tensor, expected(), self)

    # Sizes: all ranks draw the same.

    def count(self, parts=1):
        """Elements of a tensor of which a rank has so many."""
        itemsize = dtype_of(self.dtype).itemsize
        if self.own and self.shared.random() < 0.5:
            rest = self.shared.choice([rest for rest in RESTS if rest % itemsize == 0])
            count = (SEGMENT * self.shared.randint(1, 2) + rest) // itemsize
        else:
            count = self.shared.choice(FEW if self.shared.random() < 0.6 else COUNTS)
        count = min(count, MAX_BYTES // (itemsize * parts))
        self.sizes.append(count)
        return count

    def counts(self, parts):
        """One of each of so many tensors."""
        count = self.count(parts)
        counts = [self.shared.choice([count, count, 0, 1, count // 2]) for _ in range(parts)]
        self.sizes.append(counts)
        return counts

    def blocks(self):
        """What each rank has for each other: most of it little."""
        count = self.count(2 * self.size)
        few = [0, 1, 5, min(count, 300)]
        blocks = [[self.shared.choice(few) for _ in range(self.size)] for _ in range(self.size)]
        for sender in range(self.size):
            blocks[sender][self.shared.randrange(self.size)] = count
        self.sizes.append(blocks)
        return blocks

    def messages(self):
        """Who sends whom, with which tag, how much; some to the same rank with the same tag."""
        messages = []
        for _ in range(self.shared.randint(1, 6)):
            sender, receiver = self.shared.sample(range(self.size), 2)
            times = self.shared.randint(1, 2)
            for _ in range(times):
                tag = self.shared.randrange(TAGS)
                messages.append((sender, receiver, tag, self.count(8)))
        self.sizes.append([message[:3] for message in messages])
        return messages

    # Elements: every rank can compute every other's.

    def data(self, rank, count, part=0):
        place = self.number * 7919 + rank * 104_729 + part * 1_299_709
        place %= len(NOISE) - count
        return numbers(NOISE[place : place + count], self.dtype, self.op, self.size)

    def total(self, count, part=0):
        return total(self.op, [self.data(rank, count, part) for rank in range(self.size)])

    def slice(self, count, part=0):
        """This rank's part of the reduction of one tensor of all parts."""
        return self.total(count * self.size, part)[self.rank * count : (self.rank + 1) * count]

    def joined(self, count, part=0):
        return np.concatenate([self.data(rank, count, part) for rank in range(self.size)])

    @property
    def operator(self):
        if self.op == "PREMUL_SUM":
            return polyrank.premul_sum(FACTOR)
        return getattr(polyrank.ReduceOp, self.op)

    # Tensors, each in memory of any kind.

    def place(self, array):
        memory = in_polyrank if self.own else self.dice.choice(MEMORIES)
        self.memories.append(memory.__name__)
        tensor, beside = memory(array)
        if beside is not None:
            self.expect(beside, partial(np.ones, beside.shape, beside.dtype))
        return tensor

    def expect(self, tensor, expected):
        self.checks.append((tensor, expected))

    def changed(self, array, expected):
        """An input that becomes the output."""
        tensor = self.place(array)
        self.expect(tensor, expected)
        return tensor

    def given(self, array):
        """An input, which stays."""
        return self.changed(array, lambda: array)

    def room(self, count, expected):
        """An output, with other numbers in it."""
        return self.changed(self.data(self.size, count), expected)


def numbers(noise, dtype, op, size):
    """Small integers, of which every dtype represents the sums and products that `op` makes."""
    if dtype == "bool":
        return noise % 2 == 1
    if op in ("BAND", "BOR", "BXOR"):
        return (noise % 128).astype(dtype)
    if op == "PRODUCT":
        return (noise % 2 + 1).astype(dtype_of(dtype))
    factor = 2 if op == "PREMUL_SUM" else 1
    if op == "AVG" and dtype not in INTEGERS:
        factor = size
    result = (noise % 9).astype(np.int16)
    if dtype not in UNSIGNED:
        result = (result - 4) * factor
    result = result.astype(dtype_of(dtype))
    if dtype in COMPLEX:
        result = result + (1j * (noise // 9 % 5 * factor)).astype(dtype)
    return result


def total(op, parts):
    """As `reduced`, and averages of integers without a loop of Python."""
    if op != "AVG" or parts[0].dtype.kind not in "iu":
        return reduced(op, parts)
    totals = sum(part.astype(np.int64) for part in parts)
    return (np.sign(totals) * (abs(totals) // len(parts))).astype(parts[0].dtype)
