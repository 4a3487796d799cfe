"""Objects of more types, without pickle: they come back as what they were, and no code runs."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
import zoneinfo

import numpy as np
import polyrank
import polyrank.distributed as dist
import pytest

register = polyrank.register_object_type

RUNS = []


@register
@dataclasses.dataclass
class Point:
    x: float
    y: list
    label: str = dataclasses.field(default="", init=False)

    def __post_init__(self):
        RUNS.append("Point")


@register
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    inner: Point
    at: datetime.datetime


@register
class Pair(collections.namedtuple("Pair", ["first", "second"])):
    def __new__(cls, first, second):
        RUNS.append("Pair")
        return super().__new__(cls, first, second)


@register
class Color(enum.Enum):
    RED = "r"
    BLUE = (1, 2)


@register
class Level(enum.IntEnum):
    LOW = 1


@register
class Mode(enum.Flag):
    READ, WRITE, RUN = 1, 2, 4


@register
class Bits(enum.IntFlag):
    LOW, HIGH = 1, 8


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees

    def __eq__(self, other):
        return type(other) is Celsius and other.degrees == self.degrees


register(Celsius, lambda it: it.degrees, Celsius, name="celsius")

ZONE = datetime.timezone(datetime.timedelta(hours=2))
PARIS = zoneinfo.ZoneInfo("Europe/Paris")
POINT = Point(1.5, [1, (2,)])
OBJECTS = [
    POINT,
    Frozen(POINT, datetime.datetime(2026, 1, 2, 3, 4, 5, 6, ZONE)),
    Pair(1, Pair("a", None)),
    Color.BLUE,
    {Color.RED: Level.LOW},
    Celsius(21.5),
    datetime.datetime(1, 1, 1),
    datetime.date(2026, 2, 3),
    datetime.time(1, 2, 3, 4),
    datetime.time(1, 2, tzinfo=PARIS, fold=1),
    datetime.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS),
    datetime.datetime(2026, 10, 25, 2, 30, 0, 5, tzinfo=PARIS, fold=1),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1),
    PARIS,
    Mode.READ | Mode.RUN,
    Mode(0),
    Mode.WRITE,
    Bits.LOW | Bits.HIGH,
    collections.OrderedDict([("b", 1), ("a", [2])]),
    collections.Counter("aab"),
    collections.deque([1, (2,)], maxlen=3),
    collections.deque(),
    datetime.timedelta(-1, 2, 3),
    ZONE,
    pathlib.PurePosixPath("/a/b"),
    pathlib.PureWindowsPath("c:\\a"),
    pathlib.Path("a") / "b",
    uuid.UUID(int=5),
    decimal.Decimal("1.10"),
    fractions.Fraction(-1, 3),
    frozenset({1, (2, 3)}),
    {frozenset({1})},
    bytearray(b"ab"),
    range(1, 9, 2),
    slice(1, None, 2),
    np.float32(1.5),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.complex64(1 - 2j),
    np.str_("s"),
    np.datetime64("2026-01-02T03", "h"),
    np.timedelta64(7, "25s"),
    np.dtype("<f4"),
    np.dtype("M8[ns]"),
]
ARRAYS = [
    np.array([[1 + 2j, 3]], np.complex64),
    np.array(["2026-01-01", "NaT"], "M8[D]"),
    np.array(["ab", "c"]),
    np.arange(4, dtype=">i2"),
]


def carried(here):
    name = "carried"
    store = polyrank.PrefixStore(name, here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
    try:
        RUNS.clear()
        for root in {0, here.size - 1}:
            given = OBJECTS + ARRAYS
            if here.rank != root:
                given = [None] * len(given)
            dist.broadcast_object_list(given, src=root)
            for got, expected in zip(given, OBJECTS):
                assert type(got) is type(expected) and got == expected, (got, expected)
                for field in ("fold", "tzinfo", "maxlen"):
                    assert getattr(got, field, 0) == getattr(expected, field, 0), (got, expected)
            for got, expected in zip(given[len(OBJECTS):], ARRAYS, strict=True):
                assert got.dtype == expected.dtype and got.shape == expected.shape
                assert np.array_equal(got, expected) or np.isnat(got).tolist() == [False, True]
        gathered = [None] * here.size
        dist.all_gather_object(gathered, Pair(Level.LOW, POINT))
        assert [type(it.first) for it in gathered] == [Level] * here.size
        # Only the objects that this rank made itself ran their classes' code.
        assert RUNS == ["Pair"], RUNS
        refused(here)
    finally:
        dist.destroy_process_group()


def refused(here):
    @dataclasses.dataclass
    class Unknown:
        x: int = 1

    bad = [Unknown(), object(), np.array([object()]), np.longdouble(1)]
    hints = ["register_object_type", "encode", "not encoded", "not encoded"]
    for value, hint in zip(bad, hints, strict=True):
        with pytest.raises(polyrank.InvalidTypeError, match=hint):
            dist.all_gather_object([None] * here.size, value)
    # What only the sender knows is a plain value elsewhere.
    if here.rank == 0:
        register(Unknown)
    received = [Unknown(7) if here.rank == 0 else None]
    dist.broadcast_object_list(received, src=0)
    assert received == [Unknown(7) if here.rank == 0 else {"x": 7}]
    # A sender whose class has other fields is an error that says so.
    if here.rank == 0:
        other = dataclasses.make_dataclass("Point", ["x"])
        register(other, name=f"{Point.__module__}.Point", replace=True)
        dist.broadcast_object_list([other(1)], src=0)
        register(Point, replace=True)
    else:
        with pytest.raises(ValueError, match="'label', 'y'"):
            dist.broadcast_object_list([None], src=0)
    with pytest.raises(TypeError, match="both"):
        register(object, str)
    with pytest.raises(TypeError, match="is not a dataclass, named tuple or enum"):
        register(object)


def test_objects_of_many_types_are_carried(world):
    world.run(carried)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("builtins.bytearray", 10**11),
        ("fractions.Fraction", "1e999999999"),
        ("fractions.Fraction", ["1e999999999"]),
        ("builtins.frozenset", 3),
        ("decimal.Decimal", [0, [1], 10**9]),
        ("numpy.datetime64", [0, "S2000000000"]),
        ("numpy.int64", [[1]]),
        ("numpy.float64", "1"),
        ("numpy.str_", 10**11),
        ("numpy.bytes_", 10**11),
        ("numpy.dtype", [["a", "O"]]),
        ("builtins.range", [0.5, 1, 1]),
        ("builtins.slice", "abc"),
        ("builtins.slice", [1]),
        ("collections.deque", [[], 1, 2]),
        ("ipaddress.IPv6Address", 1),
        ("datetime.timezone", "UTC"),
        ("datetime.date", 1),
    ],
)
def test_a_few_bytes_of_a_stranger_take_no_memory(name, plain):
    from polyrank import _objects

    _objects._register_module("numpy")
    readers = [read for known, read in _objects._READERS.values() if known == name]
    assert readers, f"{name} is read"
    for read in readers:
        with pytest.raises(TypeError):
            read(plain)


def carried_alone(value):
    """What comes of an object in a group of one rank."""
    dist.init_process_group(store=polyrank.HashStore(), rank=0, world_size=1)
    try:
        gathered = [None]
        dist.all_gather_object(gathered, value)
        return gathered[0]
    finally:
        dist.destroy_process_group()


def test_a_name_is_that_of_one_class():
    first = register(collections.namedtuple("Row", "a b"))
    second = collections.namedtuple("Row", "a b c")
    assert register(first) is first, "the same class again"
    with pytest.raises(polyrank.InvalidArgumentError, match="replace=True") as refused:
        register(second)
    assert refused.value.message == str(refused.value)
    assert str(refused.value).count("test_object_types.Row") >= 3, "the name and both classes"
    assert carried_alone([first(1, 2)]) == [first(1, 2)]
    assert register(second, replace=True) is second
    row = carried_alone([second(1, 2, 3)])[0]
    assert type(row) is second and row == (1, 2, 3)
    with pytest.raises(polyrank.InvalidTypeError, match="register_object_type"):
        carried_alone(first(1, 2))
    register(first, name="an older row")
    rows = carried_alone([first(1, 2), second(1, 2, 3)])
    assert [type(row) for row in rows] == [first, second]


def test_names_of_library_types_are_theirs():
    for replace in (False, True):
        with pytest.raises(polyrank.InvalidArgumentError, match="which polyrank carries"):
            register(Celsius, str, Celsius, name="uuid.UUID", replace=replace)
    half = np.float16
    register(half, lambda it: [it.item()], lambda plain: half(plain[0] + 1))
    try:
        assert carried_alone([np.float32(1), half(2)]) == [1, 3], "what the program said of it"
    finally:
        register(half, lambda it: it.item(), half)


@pytest.mark.parametrize("cls", [int, bool, type(None), float, str, bytes, list, dict, np.ndarray])
def test_what_is_carried_as_it_is_cannot_be_registered(cls):
    said = f"{cls.__name__} needs no registration"
    with pytest.raises(polyrank.InvalidArgumentError, match=said):
        register(cls, str, cls)
