"""What collectives must give, by NumPy and by Python's integers. Knows nothing of polyrank.

Values are small integers, so that every dtype represents them, their sums and products exactly,
whatever the order in which they are reduced.
"""

import ml_dtypes
import numpy as np

BOOL = ["bool"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
SIGNED = ["int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = UNSIGNED + SIGNED
DTYPES = BOOL + INTEGERS + FLOATS + COMPLEX

# The table of features.md rows 260 to 271, written out.
SUPPORTED = {
    "SUM": DTYPES,
    "AVG": INTEGERS + FLOATS + COMPLEX,
    "PRODUCT": BOOL + INTEGERS + FLOATS,
    "MIN": BOOL + INTEGERS + FLOATS,
    "MAX": BOOL + INTEGERS + FLOATS,
    "BAND": BOOL + INTEGERS,
    "BOR": BOOL + INTEGERS,
    "BXOR": BOOL + INTEGERS,
    "PREMUL_SUM": FLOATS + COMPLEX,
    "LAND": BOOL + INTEGERS,
    "LOR": BOOL + INTEGERS,
    "LXOR": BOOL + INTEGERS,
}
FACTOR = 0.5


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(rank: int, count: int, dtype: str, op: str = "SUM", size: int = 1) -> np.ndarray:
    """The tensor that `rank` contributes; every rank can compute every other's."""
    steps = np.arange(count, dtype=np.int64)
    if dtype == "bool":
        return (steps * 7 + rank * 3) % 5 < 2
    if op == "PRODUCT":
        numbers = (steps + rank) % 2 + 1
    elif op in ("BAND", "BOR", "BXOR"):
        numbers = (steps * 5 + rank * 11) % 127
    else:
        numbers = (steps + 2 * rank) % 4
    if dtype not in UNSIGNED and op not in ("PRODUCT", "BAND", "BOR", "BXOR"):
        numbers = numbers - 2
    if op == "AVG" and dtype not in INTEGERS:
        numbers = numbers * size
    if op == "PREMUL_SUM":
        numbers = numbers * 2
    result = numbers.astype(dtype_of(dtype))
    if dtype in COMPLEX:
        result = result + (1j * ((steps + rank) % 3) * (size if op == "AVG" else 2)).astype(dtype)
    return result


def reduced(op: str, parts: list[np.ndarray]) -> np.ndarray:
    """The reduction of all ranks' parts."""
    dtype = parts[0].dtype
    if dtype == np.bool_:
        stack = np.stack(parts)
        return {
            "SUM": stack.any(0),
            "MAX": stack.any(0),
            "BOR": stack.any(0),
            "PRODUCT": stack.all(0),
            "MIN": stack.all(0),
            "BAND": stack.all(0),
            "BXOR": stack.sum(0) % 2 == 1,
            "LAND": stack.all(0),
            "LOR": stack.any(0),
            "LXOR": stack.sum(0) % 2 == 1,
        }[op]
    if op in ("LAND", "LOR", "LXOR"):
        reduce = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}[op]
        return reduce.reduce(np.stack(parts), axis=0).astype(dtype)
    if op == "AVG" and dtype.kind in "iu":
        columns = zip(*(part.ravel().tolist() for part in parts))
        averages = [truncated(sum(column), len(parts)) for column in columns]
        return np.array(averages, dtype=dtype).reshape(parts[0].shape)
    if op == "PREMUL_SUM":
        parts = [part * dtype.type(FACTOR) for part in parts]
    reduce = {
        "PRODUCT": np.multiply,
        "MIN": np.minimum,
        "MAX": np.maximum,
        "BAND": np.bitwise_and,
        "BOR": np.bitwise_or,
        "BXOR": np.bitwise_xor,
    }.get(op, np.add)
    total = parts[0].copy()
    for part in parts[1:]:
        total = reduce(total, part)
    return total / dtype.type(len(parts)) if op == "AVG" else total


def truncated(numerator: int, denominator: int) -> int:
    """Division that truncates toward zero; Python's rounds down."""
    quotient = abs(numerator) // denominator
    return quotient if numerator >= 0 else -quotient


def same(actual: np.ndarray, expected: np.ndarray, what: object = "") -> None:
    """Same dtype, same shape, same bits of every element (NaN as NaN)."""
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if actual.dtype == dtype_of("bfloat16"):
        actual, expected = actual.astype("float32"), expected.astype("float32")
    np.testing.assert_array_equal(actual, expected, err_msg=str(what))
