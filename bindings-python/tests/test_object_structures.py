"""Enums, flags, dataclasses and named tuples: by names, whichever bits and bases they have."""

import collections
import dataclasses
import enum

import polyrank
import pytest
from polyrank import _objects
from test_object_types import carried_alone

register = polyrank.register_object_type


@register
class Masked(enum.Flag):
    X = 3
    Y = 4


@register
class Overlapping(enum.Flag):
    A = 3
    B = 6


@register
class Open(enum.IntFlag):
    NONE = 0
    LOW = 1
    HIGH = 8
    BOTH = 9


@register
class Kept(enum.Flag, boundary=enum.KEEP):
    LOW = 1


@register
class All(enum.IntFlag):
    A = 1
    ALL = -1


@register
class Closed(enum.Flag, boundary=enum.CONFORM):
    LOW = 1


Barred = register(enum.Flag("Barred", {"a|b": 1, "|": 2, "c": 4}, module=__name__))

FLAGS = [
    (Masked.X, ["X"]),
    (Masked.X | Masked.Y, ["Y", "X"]),
    (Masked(1), [1]),
    (Overlapping.A | Overlapping.B, ["A", "B"]),
    (Overlapping.A & Overlapping.B, [2]),
    (Overlapping(0), []),
    (Open(0), ["NONE"]),
    (Open.BOTH, ["BOTH"]),
    (Open.BOTH | 2, ["LOW", "HIGH", 2]),
    (All.ALL, ["ALL"]),
    (All.A, ["A"]),
    (Open(1 | 2 | 16), ["LOW", 18]),
    # Versions of Python differ in which bits these have.
    (~Open.LOW, None),
    (~Kept.LOW, None),
    (Kept(5), ["LOW", 4]),
    (Kept(2**62), [2**62]),
    (Barred["a|b"] | Barred["c"], ["a|b", "c"]),
    (Barred["|"], ["|"]),
]


@pytest.mark.parametrize(("flags", "plain"), FLAGS, ids=str)
def test_flags_are_a_list_of_names_and_the_bits_that_have_none(flags, plain):
    if plain is not None:
        assert _objects.plain_value(flags)[1] == plain
    got = carried_alone(flags)
    assert type(got) is type(flags) and got == flags and got.value == flags.value


def test_flags_that_a_reader_has_not_are_no_others():
    tag, _ = _objects.plain_value(Closed.LOW)
    assert _objects.restored(tag, ["LOW"]) is Closed.LOW
    for plain in (["LOW", 2], ["HIGH"], [None], [["LOW"]], "LOW", {"LOW": 1}, [True], [1.5]):
        with pytest.raises(ValueError, match="no .*Closed came"):
            _objects.restored(tag, plain)
    tag, _ = _objects.plain_value(Masked.X)
    with pytest.raises(ValueError, match="Masked"):
        _objects.restored(tag, [8])


def test_a_member_that_a_reader_has_not_is_told():
    @register
    class Local(enum.Enum):
        A = 1

    tag, plain = _objects.plain_value(Local.A)
    assert _objects.restored(tag, plain) is Local.A
    with pytest.raises(ValueError, match="has no member 'B' on this rank"):
        _objects.restored(tag, "B")


def test_members_whose_class_says_otherwise_are_found_by_name():
    @register
    class Loud(enum.Enum):
        A = 1

        @property
        def name(self):
            raise AssertionError("code ran")

        value = name

        @classmethod
        def _missing_(cls, value):
            raise AssertionError("code ran")

    @register
    class LoudBits(enum.Flag):
        A, B = 1, 2

        @classmethod
        def _missing_(cls, value):
            return super()._missing_(value) if asked else pytest.fail("code ran")

    asked = True
    both = LoudBits.A | LoudBits.B
    asked = False
    assert carried_alone([Loud.A, LoudBits.A]) == [Loud.A, LoudBits.A]
    assert carried_alone(both) is both
    tag, plain = _objects.plain_value(both)
    del LoudBits._value2member_map_[3]
    assert _objects.restored(tag, plain).value == 3


@pytest.mark.parametrize("base", [dict, list, int, str, Exception, tuple])
def test_a_dataclass_that_is_more_than_its_fields_says_how(base):
    cls = dataclasses.dataclass(type("More", (base,), {"__annotations__": {"x": int}}))
    with pytest.raises(TypeError, match="holds more than its fields: pass 'encode'"):
        register(cls)


def test_a_named_tuple_with_other_fields_elsewhere_is_told():
    more = register(collections.namedtuple("Fields", "a b", module=__name__))
    tag, plain = _objects.plain_value(more(1, 2))
    assert plain == {"a": 1, "b": 2}
    register(collections.namedtuple("Fields", "a", module=__name__), replace=True)
    with pytest.raises(ValueError, match="'b'.* differ between ranks"):
        _objects.restored(tag, plain)


@register
@dataclasses.dataclass
class Node:
    next: object


def nodes(count):
    made = None
    for _ in range(count):
        made = Node(made)
    return made


def test_objects_of_registered_types_are_two_levels_each():
    count = 0
    got = carried_alone(nodes(50))
    while got is not None:
        got, count = got.next, count + 1
    assert count == 50
    with pytest.raises(polyrank.InvalidTypeError, match="nested deeper than 100 levels"):
        carried_alone(nodes(51))
    endless = Node(None)
    endless.next = [endless, endless]
    with pytest.raises(polyrank.InvalidTypeError, match="nested deeper"):
        carried_alone(endless)


def test_a_value_that_cannot_be_restored_is_described_and_runs_no_code():
    @register
    @dataclasses.dataclass
    class Loud:
        x: int

        def __repr__(self):
            raise AssertionError("code ran")

    tag = _objects.plain_value(Masked.X)[0]
    for plain, said in [
        ([Loud(1)] * 3, "but list of 3:"),
        (Loud(1), "but Loud:"),
        (b"a" * 10**6, "but b'aaa"),
        (2**100_000, "but int:"),
        ({"a": 1}, "but dict of 1:"),
        (1.5, "but 1.5:"),
        (["x" * 10**6], "but list of 1:"),
    ]:
        with pytest.raises(ValueError, match=said) as refused:
            _objects.restored(tag, plain)
        assert len(str(refused.value)) < 200
