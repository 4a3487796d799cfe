"""What ranks of `polyrank bench` in Python put into their arrays, and what must come out: as the
benchmark's own ranks have it, see `pattern.rs`. Knows nothing of libraries."""

import numpy as np

REDUCES = ("allreduce", "reduce", "reduce_scatter")

NUMPY = {
    "u8": np.uint8,
    "i8": np.int8,
    "u16": np.uint16,
    "i16": np.int16,
    "u32": np.uint32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


def lengths(case, count, ranks):
    """Elements of the input and of the output."""
    whole = count * ranks
    return {
        "allreduce": (count if case["form"] == "out_of_place" else 0, count),
        "reduce": (0, count),
        "broadcast": (0, count),
        "allgather": (count, whole),
        "gather": (count, whole),
        "scatter": (whole, count),
        "reduce_scatter": (whole, count),
        "alltoall": (whole, whole),
        "barrier": (0, 0),
        "sendrecv": (count, count),
        "pingpong": (count, count),
        "put": (count, count),
    }[case["operation"]]


def values(case, ranks, rank, index):
    """What `rank` contributes as these elements of its input."""
    mixed = index * 31 + rank * 17 + index // 97
    if case["operation"] not in REDUCES:
        return mixed % 113
    if case["reduction"] == "sum":
        return mixed % min(max(127 // ranks, 2), 113)
    if case["reduction"] == "product":
        return 1 + ((index + rank) % max(ranks // 6 + 1, 7) == 0)
    if case["reduction"] == "avg":
        return index % max(100 // ranks, 1) + np.where(index % ranks == rank, ranks, 0)
    return mixed % 113


FOLDS = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def reduced(case, ranks, index):
    """What all ranks' elements reduce to."""
    result = values(case, ranks, 0, index)
    for rank in range(1, ranks):
        result = FOLDS[case["reduction"]](result, values(case, ranks, rank, index))
    return result // ranks if case["reduction"] == "avg" else result


def expected(case, ranks, rank, root, index):
    """What `rank` must find in its output; None where its output says nothing."""
    count = max(case["count"], 1)
    name, within = case["operation"], index % count
    own = rank * count + within
    if name == "allreduce":
        return reduced(case, ranks, index)
    if name == "reduce":
        return reduced(case, ranks, index) if rank == root else None
    if name == "broadcast":
        return values(case, ranks, root, index)
    if name == "allgather" or (name == "gather" and rank == root):
        return values(case, ranks, index // count, within)
    if name == "scatter":
        return values(case, ranks, root, own)
    if name == "reduce_scatter":
        return reduced(case, ranks, own)
    if name == "alltoall":
        return values(case, ranks, index // count, own)
    if name == "sendrecv":
        return values(case, ranks, (rank - 1) % ranks, index)
    if name == "put":
        return values(case, ranks, 0, index) if rank == 1 else None
    return values(case, ranks, 1 - rank, index) if name == "pingpong" and rank < 2 else None


def expected_of_ones(case, ranks, rank, root):
    """What every element of the output of `rank` must be if all ranks contribute ones; None where
    its output says nothing."""
    # Nobody knows when another rank's put is there, but by asking that rank.
    if case["operation"] == "put" or expected(case, ranks, rank, root, np.arange(1)) is None:
        return None
    if case["operation"] not in REDUCES:
        return 1
    return {"sum": ranks, "bxor": ranks % 2}.get(case["reduction"], 1)
