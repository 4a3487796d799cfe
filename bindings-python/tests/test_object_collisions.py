"""Keys that a peer chose to have one hash: a reader refuses them before it compares them."""

import collections

import polyrank
import pytest
from test_object_types import carried_alone

#: Python's hash of an integer is its remainder by this.
MODULUS = 2**61 - 1
COUNT = 10_000

COLLIDING = [number * MODULUS for number in range(COUNT)]


@pytest.mark.parametrize(
    "carried",
    [
        dict.fromkeys(COLLIDING[:100]),
        set(COLLIDING[:100]),
        frozenset(COLLIDING[:100]),
        collections.Counter(COLLIDING[:100]),
        dict.fromkeys((number,) for number in COLLIDING[:100]),
    ],
    ids=lambda it: type(it).__name__,
)
def test_keys_of_one_hash_are_refused(carried):
    with pytest.raises((polyrank.PolyrankError, ValueError), match="that have one hash"):
        carried_alone(carried)


def test_no_more_than_some_are_compared():
    """Each key counts how often it is compared with another."""
    compared = 0

    class Number(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return int(self) == int(other)

    from polyrank import _core

    check = getattr(_core, "_check_hashes")
    with pytest.raises(ValueError, match="that have one hash"):
        check([Number(number) for number in COLLIDING])
    assert compared == 0


def test_others_are_carried():
    for kept in [
        dict.fromkeys(range(COUNT)),
        {number << 32 for number in range(COUNT)},
        dict.fromkeys(COLLIDING[:64]),
        frozenset(COLLIDING[:64]),
        {-1: "a", -2: "b", (): "c"},
    ]:
        assert carried_alone(kept) == kept
