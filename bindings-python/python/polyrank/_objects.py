"""Objects that CBOR has no words for, as plain values with a tag; and back, without their code.

What a tag stands for is the digest of a type's name, so that readers which do not know the type see
the plain value: in other languages, a map of fields, a list, a text or a number.
"""

# Nothing is known of what users' types hold.
# pyright: basic

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import ipaddress
import pathlib
import sys
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from polyrank._core import InvalidArgumentError
from polyrank._times import datetime_of_text, text_of_time, time_of_text, zone_name, zone_of

__all__ = ["register_object_type"]

_Type = TypeVar("_Type", bound=type)

#: By type: its tag, and its plain value.
_WRITERS: dict[type, tuple[int, Callable[[Any], Any]]] = {}
#: By tag: the type's name, and the object of a plain value.
_READERS: dict[int, tuple[str, Callable[[Any], Any]]] = {}
#: By tag: the class that a program registered.
_REGISTERED: dict[int, type] = {}
#: What the codec carries itself: these instances never come here.
_CARRIED = (type(None), bool, int, float, complex, str, bytes, list, tuple, set, dict)


def register_object_type(
    cls: _Type,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
) -> _Type:
    """Lets object collectives carry instances of `cls`, without pickle; returns `cls`.

    A dataclass, a named tuple or an enum needs nothing else, and none of its code runs: fields are
    set as they came, members are found by name. For other types `encode` makes a plain value of an
    object, and `decode` an object of that. A rank that has not registered the type, or one in
    another language, gets the plain value: a map of the fields.

    May stand before a class, as a decorator. Types of one `name` are the same type on all ranks;
    without one, the name is the module's and the class's. A name that another class has here raises
    `InvalidArgumentError`, unless `replace` says that `cls` takes its place, as in a notebook that
    defines a class again: instances of the former class are not carried any more.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_object_type() takes a class, not {cls!r}")
    if cls in _CARRIED or (cls.__module__, cls.__qualname__) == ("numpy", "ndarray"):
        raise InvalidArgumentError(
            f"{cls.__qualname__} needs no registration: objects of it are carried as such"
        )
    if (encode is None) != (decode is None):
        raise TypeError("register_object_type() takes both 'encode' and 'decode', or neither")
    if encode is None or decode is None:
        encode, decode = _of_structure(cls)
    # A program that multiprocessing starts anew has another name there.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    name = name or f"{module}.{cls.__qualname__}"
    # The types of a library come first: they would take the place of `cls` later.
    _register_library(cls)
    _make_room(cls, name, replace)
    _register(cls, name, encode, decode)
    _REGISTERED[_tag_of(name)] = cls
    return cls


def _make_room(cls: type, name: str, replace: bool) -> None:
    """Sees that no other class has this name: its objects would come back as those of `cls`."""
    tag = _tag_of(name)
    holders = [it for it, (known, _) in _WRITERS.items() if known == tag and it is not cls]
    if not holders:
        return
    former = _REGISTERED.get(tag)
    if former is None:
        library = holders[0]
        raise InvalidArgumentError(
            f"{name} is the name of {library!r}, which polyrank carries; pass another"
        )
    if not replace:
        raise InvalidArgumentError(
            f"{former!r} is registered as {name}, so {cls!r} cannot be: pass another name, or "
            "replace=True if it is the same class, defined again"
        )
    del _WRITERS[former]


def _register(
    cls: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    tag = _tag_of(name)
    if _READERS.get(tag, (name, None))[0] != name:
        raise ValueError(f"the names {name} and {_READERS[tag][0]} have one tag; rename a class")
    _WRITERS[cls] = (tag, encode)
    _READERS[tag] = (name, decode)


def _tag_of(name: str) -> int:
    """From 2**52 on, where no tag is registered, and below 2**53, which any language can read."""
    digest = hashlib.sha256(f"polyrank {name}".encode()).digest()
    return 2**52 + int.from_bytes(digest[:6], "big")


def _of_structure(cls: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if issubclass(cls, enum.Flag):
        return _names_of_flags, lambda names: _flags(cls, names)
    if issubclass(cls, enum.Enum):
        members = cls.__members__
        return (lambda member: _member_name(member)), (lambda name: members[name])
    if dataclasses.is_dataclass(cls):
        return _fields_of_dataclass, lambda plain: _dataclass(cls, plain)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names: tuple[str, ...] = getattr(cls, "_fields")
        return (
            lambda values: dict(zip(names, values, strict=True)),
            lambda plain: tuple.__new__(cls, [_map(plain)[name] for name in names]),
        )
    raise TypeError(
        f"{cls.__qualname__} is not a dataclass, named tuple or enum: pass 'encode' and 'decode'"
    )


def _member_name(member: enum.Enum) -> str:
    if member.name is None or member.name not in type(member).__members__:
        raise TypeError(f"{member!r} is not a single member of its enum")
    return member.name


def _names_of_flags(flags: enum.Flag) -> str:
    """As `READ|WRITE`; of none an empty text."""
    single = [member for member in type(flags) if member.value & flags.value]
    if sum(member.value for member in single) != flags.value:
        raise TypeError(f"{flags!r} has bits that are no members of its enum")
    return "|".join(_member_name(member) for member in single)


def _flags(cls: type[enum.Flag], names: Any) -> enum.Flag:
    members = cls.__members__
    single = [members[name] for name in _of_type(names, str).split("|") if name]
    return cls(sum({member.value for member in single}))


def _fields_of_dataclass(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _dataclass(cls: type, plain: Any) -> Any:
    fields = _map(plain)
    known = {field.name for field in dataclasses.fields(cls)}
    if set(fields) != known:
        odd = sorted(map(str, set(fields) ^ known))
        raise ValueError(f"the fields {odd} of {cls.__qualname__} differ between ranks")
    instance: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def _map(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"a map of fields was expected, not {type(plain).__name__}")
    return plain


def plain_value(value: Any) -> tuple[int, Any]:
    """The tag and the plain value of an object; called by the encoder."""
    cls = type(value)
    if cls not in _WRITERS:
        _register_library(cls)
    if cls not in _WRITERS:
        name = f"{cls.__module__}.{cls.__qualname__}"
        is_structure = dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum)
        if is_structure or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
            advice = f"call polyrank.register_object_type({cls.__name__}) on all ranks first"
        else:
            advice = (
                "polyrank.register_object_type(cls, encode, decode) says how; "
                'codec="pickle" takes any object, among trusted ranks'
            )
        raise TypeError(f"objects of type {name} are not encoded as CBOR; {advice}")
    tag, encode = _WRITERS[cls]
    return tag, encode(value)


def restored(tag: int, plain: Any) -> Any:
    """The object of a tag and a plain value, or that value; called by the decoder."""
    if tag not in _READERS and tag >= 2**52:
        for module in ("numpy", "torch", "zoneinfo"):
            if module in sys.modules:
                _register_module(module)
    found = _READERS.get(tag)
    if found is None:
        return plain
    try:
        return found[1](plain)
    except Exception as error:
        raise ValueError(f"no {found[0]} came, but {plain!r:.60}: {error}") from error


def _register_library(cls: type) -> None:
    """Types of NumPy, PyTorch and zoneinfo, once they are met."""
    module = cls.__module__.partition(".")[0]
    if module in ("numpy", "torch", "zoneinfo"):
        _register_module(module)


_registered_modules: set[str] = set()


def _register_module(module: str) -> None:
    if module in _registered_modules:
        return
    _registered_modules.add(module)
    library: Any = sys.modules[module]
    if module == "zoneinfo":
        _register(library.ZoneInfo, "zoneinfo.ZoneInfo", zone_name, zone_of)
        return
    if module == "torch":
        kinds = {str(it): it for it in vars(library).values() if isinstance(it, library.dtype)}
        _register(library.dtype, "torch.dtype", str, lambda name: kinds[name])
        _register(library.Size, "torch.Size", list, library.Size)
        return
    scalars = {library.dtype(kind).type for kind in "?bhilqBHILQefdFDSUmM"}
    for scalar in scalars - {library.bytes_, library.str_, library.timedelta64, library.datetime64}:
        _register(scalar, f"numpy.{scalar.__name__}", lambda it: it.item(), _number_as(scalar))
    _register(library.ndarray, "numpy.ndarray", _parts_of_array, _array)
    _register(library.str_, "numpy.str_", str, library.str_)
    _register(library.bytes_, "numpy.bytes_", bytes, library.bytes_)
    for scalar in (library.datetime64, library.timedelta64):
        _register(
            scalar,
            f"numpy.{scalar.__name__}",
            lambda it: [int(it.astype("i8")), it.dtype.str],
            _time,
        )
    for dtype in {type(library.dtype(kind)) for kind in "?bhilqBHILQefdgFDGSUmMO"}:
        _register(dtype, "numpy.dtype", lambda it: it.str, library.dtype)


def _number_as(scalar: Any) -> Callable[[Any], Any]:
    def decode(plain: Any) -> Any:
        if type(plain) not in (bool, int, float, complex):
            raise TypeError(f"expected a number, not {type(plain).__name__}")
        return scalar(plain)

    return decode


def _time(plain: Any) -> Any:
    number, name = _of_type(plain, list)
    numpy: Any = sys.modules["numpy"]
    dtype = numpy.dtype(_of_type(name, str))
    if dtype.kind not in "mM":
        raise TypeError(f"expected a time of NumPy, not {dtype}")
    return numpy.array(_of_type(number, int), "i8").astype(dtype)[()]


def _parts_of_array(array: Any) -> list[Any]:
    if array.dtype.hasobject or array.dtype.fields is not None:
        raise TypeError(f"arrays of {array.dtype} are not encoded as CBOR")
    return [array.dtype.str, list(array.shape), array.tobytes()]


def _array(plain: Any) -> Any:
    dtype, shape, elements = plain
    return sys.modules["numpy"].frombuffer(elements, dtype).reshape(shape).copy()


def _of_type(plain: Any, cls: type) -> Any:
    """A plain value of exactly this type: a constructor may do anything with another."""
    if type(plain) is not cls:
        raise TypeError(f"expected {cls.__name__}, not {type(plain).__name__}")
    return plain


def _whole(plain: Any, count: int) -> list[int]:
    """So many whole numbers."""
    items = list(_of_type(plain, list))
    if len(items) != count:
        raise TypeError(f"expected {count} numbers, not {len(items)}")
    return [_of_type(item, int) for item in items]


def _register_standard_library() -> None:
    def of(cls: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        _register(cls, f"{cls.__module__}.{cls.__qualname__}", encode, decode)

    for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath):
        of(path, str, path)
    # Files have the paths of the reader's system.
    for path in (pathlib.PosixPath, pathlib.WindowsPath):
        _register(path, "pathlib.Path", str, pathlib.Path)
    of(datetime.datetime, text_of_time, datetime_of_text)
    of(datetime.date, datetime.date.isoformat, datetime.date.fromisoformat)
    of(datetime.time, text_of_time, time_of_text)
    of(
        datetime.timedelta,
        lambda it: [it.days, it.seconds, it.microseconds],
        lambda plain: datetime.timedelta(*_whole(plain, 3)),
    )
    of(
        datetime.timezone,
        lambda it: it.utcoffset(None).total_seconds(),
        lambda plain: datetime.timezone(datetime.timedelta(seconds=plain)),
    )
    of(uuid.UUID, str, uuid.UUID)
    of(decimal.Decimal, str, lambda plain: decimal.Decimal(_of_type(plain, str)))
    of(
        fractions.Fraction,
        lambda it: [it.numerator, it.denominator],
        lambda plain: fractions.Fraction(*_whole(plain, 2)),
    )
    of(collections.OrderedDict, dict, lambda plain: collections.OrderedDict(_map(plain)))
    of(collections.Counter, dict, lambda plain: collections.Counter(_map(plain)))
    of(
        collections.deque,
        lambda it: [list(it), it.maxlen],
        lambda plain: collections.deque(_of_type(plain[0], list), plain[1]),
    )
    of(frozenset, list, lambda plain: frozenset(_of_type(plain, list)))
    of(bytearray, bytes, lambda plain: bytearray(_of_type(plain, bytes)))
    of(range, lambda it: [it.start, it.stop, it.step], lambda plain: range(*plain))
    of(slice, lambda it: [it.start, it.stop, it.step], lambda plain: slice(*plain))
    of(ipaddress.IPv4Address, str, ipaddress.IPv4Address)
    of(ipaddress.IPv6Address, str, ipaddress.IPv6Address)


_register_standard_library()
