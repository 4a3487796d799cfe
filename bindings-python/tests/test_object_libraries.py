"""Types of NumPy, ml_dtypes and zoneinfo: none loses its type, whatever its reader imported."""

import datetime
import subprocess
import sys
import zoneinfo

import ml_dtypes
import numpy as np
import polyrank
import polyrank.distributed as dist
import pytest
from test_object_types import carried_alone

PATIENCE_S = 60

SMALL = [
    "bfloat16", "complex32", "float4_e2m1fn", "float6_e2m3fn", "float8_e4m3fn", "float8_e5m2",
    "float8_e8m0fnu", "int2", "int4", "uint4",
]


@pytest.mark.parametrize("name", SMALL)
def test_elements_of_ml_dtypes_keep_their_type(name):
    kind = getattr(ml_dtypes, name)
    array = np.array([[1, 0.5, 2], [1, 1, 1]]).astype(kind)
    got = carried_alone([array, array.T, array[:, :0], np.dtype(kind), kind(1)])
    for one, expected in zip(got[:3], [array, array.T, array[:, :0]], strict=True):
        assert one.dtype == np.dtype(kind) and one.shape == expected.shape and one.flags.writeable
        assert one.tobytes() == expected.tobytes()
    assert type(got[3]) is type(np.dtype(kind)) and got[3] == np.dtype(kind)
    assert type(got[4]) is kind and got[4] == kind(1)


KEPT = [
    np.array(["2026-01-01T00", "NaT"], "M8[25s]"),
    np.array([1, -2], "m8"),
    np.array([5, -7], ">m8[ns]"),
    np.array([b"ab", b"c"]),
    np.array([b"\x00\xff", b"c"], "V2"),
    np.array(["ü", "\U0010ffff"], ">U2"),
    np.array([1, 2], ">f4"),
    np.array([True, False]),
    np.array([[1, 2], [3, 4]], order="F"),
    np.array(3, "M8[D]"),
    np.zeros((0, 3), "M8[us]"),
    np.array([1 + 1j], ">c16"),
]


@pytest.mark.parametrize("array", KEPT, ids=lambda it: it.dtype.str)
def test_arrays_keep_their_elements(array):
    got = carried_alone(array)
    assert got.dtype == array.dtype and got.dtype.str == array.dtype.str
    assert got.shape == array.shape and got.tobytes() == array.tobytes()


#: Fields with names, shapes, places between which there is nothing, and fields of their own.
STRUCTURED = [
    np.array([(1, 2.5), (-3, 4)], "i4,f8"),
    np.zeros(2, [("a", "V2"), ("b", ml_dtypes.bfloat16)]),
    np.zeros((2, 0), np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.ones(3, np.dtype({"names": ["x", "y"], "formats": [">i4", "<f2"], "offsets": [8, 2]})),
    np.array([([[("ü", 5)]], b"s")], [("p", [("q", "U1"), ("r", "M8[ns]")], (1, 1)), ("s", "S5")]),
]


@pytest.mark.parametrize("array", STRUCTURED, ids=lambda it: str(it.dtype))
def test_structured_arrays_keep_their_fields(array):
    got, scalars, dtype = carried_alone([array, list(array.flat), array.dtype])
    assert got.dtype == array.dtype == dtype and got.dtype.itemsize == array.dtype.itemsize
    assert got.shape == array.shape and (got == array).all()
    assert [type(it) for it in scalars] == [np.void] * array.size
    assert all(it.dtype == array.dtype for it in scalars) and scalars == list(array.flat)


REFUSED = [
    np.zeros(2, [("a", object)]),
    np.zeros(2, [(("a title", "a"), "i4")]),
    np.zeros(2, np.dtype((np.record, [("a", "i4")]))),
    *([np.array(["a"], np.dtypes.StringDType())] if np.__version__ >= "2" else []),
    np.zeros(2, np.dtype("bfloat16").newbyteorder(">")),
    np.zeros(2, "V0"),
    *([np.zeros(2, np.longdouble)] if np.dtype("g").itemsize > 8 else []),
    np.array([object()]),
    np.void(b""),
]


@pytest.mark.parametrize("array", REFUSED, ids=lambda it: str(it.dtype))
def test_arrays_that_would_lose_their_type_are_refused(array):
    with pytest.raises(polyrank.InvalidTypeError, match="are not encoded as CBOR|have no bytes"):
        carried_alone(array)


@pytest.mark.parametrize("cls", [np.ma.MaskedArray, np.recarray])
def test_kinds_of_arrays_are_refused(cls):
    with pytest.raises(polyrank.InvalidTypeError, match="says how"):
        carried_alone(np.arange(3).view(cls))


def test_a_reader_without_ml_dtypes_says_so(monkeypatch):
    from polyrank import _libraries

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="need ml_dtypes; install it"):
        _libraries.elements_of("bfloat16")


HOSTILE = [
    ["O", [1], bytes(8)],
    ["T16", [1], bytes(16)],
    ["<i4,<i4", [1], bytes(8)],
    ["(1000000000,)i4", [0], b""],
    ["|b1", [1], b"\xff\xff"],
    ["|V0", [10**15], b""],
    ["|V2000000000", [1], b"ab"],
    ["<U1", [1], b"\xff\xff\xff\xff"],
    ["<c8", [-1], bytes(8)],
    ["<c8", [2**40, 2**40], b""],
    ["<c8", [1], list(bytes(8))],
    ["<c8", "1", bytes(8)],
    ["<c8", [True], bytes(8)],
    [["a", "<c8"], [1], bytes(8)],
    [{"names": ["a"], "formats": ["O"], "offsets": [0], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"], "formats": ["<i8"], "offsets": [1], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"], "formats": ["<i8"], "offsets": [-8], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"] * 2, "formats": ["<i4"] * 2, "offsets": [0, 4], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"], "formats": ["<i8"], "offsets": [], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"], "formats": ["<U1"], "offsets": [0], "itemsize": 4}, [1], b"\xff" * 4],
    [{"names": ["a"], "formats": [["<i8", [-1]]], "offsets": [0], "itemsize": 8}, [1], bytes(8)],
    [{"names": ["a"], "formats": ["<i8"], "offsets": [0], "itemsize": 8, "b": 1}, [1], bytes(8)],
    [["<i8", [2**40]], [1], bytes(8)],
    {"a": 1},
    ["os", [1], b"a"],
]


@pytest.mark.parametrize("plain", HOSTILE, ids=repr)
def test_arrays_of_strangers_are_no_more_than_their_bytes(plain):
    from polyrank import _libraries

    with pytest.raises((TypeError, ValueError)):
        _libraries._array(plain)


FRESH = """
import sys
import polyrank
import polyrank.distributed as dist

names = {"numpy", "zoneinfo", "ml_dtypes"}
assert names.isdisjoint(sys.modules), names & set(sys.modules)
store = polyrank.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, timeout=30)
dist.init_process_group(store=store, rank=1, world_size=2, timeout=30)
came = [None]
for _ in range(int(sys.argv[2])):
    dist.broadcast_object_list(came, src=0)
    print(type(came[0]).__module__, type(came[0]).__qualname__, repr(came[0]), flush=True)
dist.destroy_process_group()
"""


def test_types_do_not_depend_on_what_the_reader_imported():
    given = [
        [zoneinfo.ZoneInfo("Europe/Paris")],
        [np.float32(1.5), np.True_, np.longlong(7), np.dtype("M8[ns]")],
        [ml_dtypes.bfloat16(1.5), np.dtype("float8_e5m2")],
        [np.array([0, 1], "M8[D]"), np.zeros(1, ml_dtypes.int4)],
    ]
    for values in given:
        store = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        command = [sys.executable, "-c", FRESH, str(store.port), str(len(values))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            dist.init_process_group(store=store, rank=0, world_size=2, timeout=30)
            try:
                for value in values:
                    dist.broadcast_object_list([value], src=0)
            finally:
                dist.destroy_process_group()
                said, _ = reader.communicate(timeout=PATIENCE_S)
        expected = [f"{type(it).__module__} {type(it).__qualname__} {it!r}" for it in values]
        assert said.splitlines() == expected


def test_what_a_reader_lacks_altogether_is_a_plain_value(monkeypatch):
    from polyrank import _objects

    tag, plain = _objects.plain_value(np.float32(1.5))
    monkeypatch.setattr(_objects, "_READERS", {})
    monkeypatch.setattr(_objects, "_registered_modules", set())
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert type(_objects.restored(tag, plain)) is float


def test_types_of_torch_are_read_where_it_is_installed(monkeypatch, tmp_path):
    from polyrank import _objects

    # A stand-in: the package itself is large. It is found, and not imported so far.
    (tmp_path / "torch.py").write_text(
        "class dtype:\n"
        "    def __repr__(self):\n"
        "        return 'torch.float32'\n"
        "class Size(tuple):\n"
        "    pass\n"
        "float32 = dtype()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for known in ("_READERS", "_WRITERS", "_registered_modules"):
        monkeypatch.setattr(_objects, known, getattr(_objects, known).copy())
    _objects._registered_modules.discard("torch")
    got = _objects.restored(_objects._tag_of("torch.Size"), [1, 2])
    torch = sys.modules["torch"]
    assert type(got) is torch.Size and got == (1, 2)
    assert carried_alone([torch.float32]) == [torch.float32]
    monkeypatch.delitem(sys.modules, "torch")


def test_names_of_libraries_types_are_reserved_before_they_are_imported(monkeypatch):
    from polyrank import _objects

    class Own:
        pass

    monkeypatch.setattr(_objects, "_registered_modules", set())
    with pytest.raises(polyrank.InvalidArgumentError, match="which polyrank carries"):
        polyrank.register_object_type(Own, str, str, name="numpy.float32")


CET = datetime.timezone(datetime.timedelta(hours=1), "CET")
ODD = datetime.timezone(datetime.timedelta(seconds=-5), "a]b[c=%C3")
ZONES = [CET, ODD, datetime.timezone.utc, datetime.timezone(-datetime.timedelta(0, 1, 5))]


@pytest.mark.parametrize("zone", ZONES, ids=str)
def test_names_of_time_zones_are_kept(zone):
    times = [
        datetime.datetime(2026, 1, 2, 3, 4, tzinfo=zone),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone, fold=1),
        datetime.time(1, 2, tzinfo=zone, fold=1),
    ]
    got = carried_alone([zone, *times])
    assert [repr(it) for it in got] == [repr(it) for it in [zone, *times]]
    assert [it.tzname() for it in got[1:]] == [zone.tzname(None)] * 3


def test_time_zones_of_others_are_refused():
    class Own(datetime.tzinfo):
        def utcoffset(self, when):
            return datetime.timedelta(hours=1)

        def tzname(self, when):
            return "Own"

        def dst(self, when):
            return None

    class Paris(zoneinfo.ZoneInfo):
        pass

    for zone in (Own(), Paris("Europe/Paris")):
        for time in (datetime.datetime(2026, 1, 1, tzinfo=zone), datetime.time(1, tzinfo=zone)):
            with pytest.raises(polyrank.InvalidTypeError, match="convert with astimezone"):
                carried_alone(time)
