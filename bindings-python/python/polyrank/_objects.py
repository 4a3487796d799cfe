"""Objects that CBOR has no words for, as plain values with a tag; and back, without their code.

What a tag stands for is the digest of a type's name, so that readers which do not know the type see
the plain value: in other languages, a map of fields, a list, a text or a number. What libraries'
types are as plain values, `_libraries` knows.
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
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

from polyrank import _core
from polyrank._core import InvalidArgumentError
from polyrank._libraries import LIBRARIES, entries_of, of_type
from polyrank._times import (
    datetime_of_text,
    plain_zone,
    text_of_time,
    time_of_text,
    zone_of_plain,
)

_check_hashes = cast(Callable[[list[Any]], None], getattr(_core, "_check_hashes"))

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
    _register_module(cls.__module__.partition(".")[0])
    _register_module(_LIBRARY_OF.get(_tag_of(name), ""))
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
        return _parts_of_flags, lambda parts: _flags(cls, parts)
    if issubclass(cls, enum.Enum):
        return _member_name, lambda name: _member(cls, name)
    if dataclasses.is_dataclass(cls):
        _see_that_fields_are_all(cls)
        return _fields_of_dataclass, lambda plain: _dataclass(cls, plain)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names: tuple[str, ...] = getattr(cls, "_fields")
        return (
            lambda values: dict(zip(names, values, strict=True)),
            lambda plain: tuple.__new__(cls, [_fields(cls, names, plain)[it] for it in names]),
        )
    raise TypeError(
        f"{cls.__qualname__} is not a dataclass, named tuple or enum: pass 'encode' and 'decode'"
    )


def _see_that_fields_are_all(cls: type) -> None:
    """Refuses a dataclass that is a list, say, whose items are not among its fields."""
    built_in = next(it for it in cls.__mro__ if not it.__flags__ & _IS_HEAP_TYPE)
    if built_in is not object:
        raise TypeError(
            f"{cls.__qualname__} is {built_in.__name__}, too, which holds more than its fields: "
            "pass 'encode' and 'decode'"
        )


#: What CPython says of classes that programs define.
_IS_HEAP_TYPE = 1 << 9


def _member_name(member: enum.Enum) -> Any:
    name: Any = member._name_
    if name not in type(member).__members__:
        raise TypeError(f"{member!r} is not a single member of its enum")
    return name


def _member(cls: type[enum.Enum], name: Any) -> Any:
    members = cls.__members__
    if of_type(name, str) not in members:
        raise ValueError(f"{cls.__qualname__} has no member {name!r:.60} on this rank")
    return members[name]


def _parts_of_flags(flags: enum.Flag) -> list[Any]:
    """As `["READ", "WRITE"]`; bits that no member has follow as a number."""
    if flags._name_ in type(flags).__members__:
        return [flags._name_]
    value = flags._value_
    rest, parts = value, []
    # Members of one bit first: they say it all, unless a bit stands in none of them.
    members = sorted(type(flags).__members__.items(), key=lambda it: it[1]._value_.bit_count() > 1)
    for name, member in members:
        bits = member._value_
        if rest & bits and value & bits == bits:
            parts.append(name)
            rest &= ~bits
    return [*parts, rest] if rest else parts


def _flags(cls: type[enum.Flag], parts: Any) -> Any:
    if len(of_type(parts, list)) == 1 and type(parts[0]) is str:
        return _member(cls, parts[0])
    value = 0
    for part in parts:
        value |= part if type(part) is int else _member(cls, part)._value_
    # Not by a call of the class, which may have code of its own for bits that it lacks.
    missing: Any = enum.Flag._missing_
    flags = missing.__func__(cls, value)
    # What a class does with bits that it has no member for, is its affair: it may drop them.
    if type(flags) is not cls or flags._value_ != value:
        raise ValueError(f"{cls.__qualname__} has not all bits of {value:#x} on this rank")
    return flags


def _fields_of_dataclass(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _dataclass(cls: type, plain: Any) -> Any:
    fields = _fields(cls, [field.name for field in dataclasses.fields(cls)], plain)
    instance: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def _fields(cls: type, known: Any, plain: Any) -> dict[str, Any]:
    """A map of exactly these fields."""
    fields = _map(plain)
    if set(fields) != set(known):
        odd = sorted(map(str, set(fields) ^ set(known)))
        raise ValueError(f"the fields {odd} of {cls.__qualname__} differ between ranks")
    return fields


def _map(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"a map of fields was expected, not {type(plain).__name__}")
    return plain


def plain_value(value: Any) -> tuple[int, Any]:
    """The tag and the plain value of an object; called by the encoder."""
    cls = type(value)
    if cls not in _WRITERS:
        _register_module(cls.__module__.partition(".")[0])
        # Types of elements say that they are NumPy's.
        if (cls.__module__, cls.__qualname__[:6]) == ("numpy", "dtype["):
            _register_module("ml_dtypes")
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
    if tag not in _READERS and tag in _LIBRARY_OF:
        # What comes back must not depend on what this rank has imported so far.
        _register_module(_LIBRARY_OF[tag])
    found = _READERS.get(tag)
    if found is None:
        return plain
    try:
        return found[1](plain)
    except Exception as error:
        raise ValueError(f"no {found[0]} came, but {_shown(plain)}: {error!s:.200}") from error


def _shown(plain: Any) -> str:
    """What a value is, at no cost: it may be large, and hold objects that have code."""
    if type(plain) in (str, bytes):
        return repr(plain[:60])
    if plain is None or type(plain) in (bool, float) or _is_short(plain):
        return repr(plain)
    count = f" of {len(plain)}" if type(plain) in (list, tuple, dict) else ""
    return f"{type(plain).__name__}{count}"


def _is_short(plain: Any) -> bool:
    return type(plain) is int and plain.bit_length() <= 64


#: By tag: the library whose type it is.
_LIBRARY_OF = {
    _tag_of(f"{library}.{name}"): library for library, names in LIBRARIES.items() for name in names
}
#: Libraries whose types are known here, and those that are not installed.
_registered_modules: set[str] = set()
_registering = threading.RLock()


def _register_module(library: str) -> None:
    """Makes the types of a library known, if it is one that is carried and is installed."""
    if library not in LIBRARIES or library in _registered_modules:
        return
    with _registering:
        if library in _registered_modules:
            return
        try:
            entries = entries_of(library)
        except ImportError:
            entries = []
        for name, cls, encode, decode in entries:
            _register(cls, name, encode, decode)
        # Last: others look here without the lock.
        _registered_modules.add(library)


def _items(plain: Any, count: int) -> Any:
    """A list of so many."""
    if len(of_type(plain, list)) != count:
        raise TypeError(f"expected {count} values, not {len(plain)}")
    return plain


def _whole(plain: Any, count: int) -> list[int]:
    """So many whole numbers."""
    return [of_type(item, int) for item in _items(plain, count)]


def _register_standard_library() -> None:
    # Names are spelt out: versions of Python differ in which module a class says it is of.
    of = _register
    of(pathlib.PurePosixPath, "pathlib.PurePosixPath", str, _of_text(pathlib.PurePosixPath))
    of(pathlib.PureWindowsPath, "pathlib.PureWindowsPath", str, _of_text(pathlib.PureWindowsPath))
    # Files have the paths of the reader's system.
    for path in (pathlib.PosixPath, pathlib.WindowsPath):
        of(path, "pathlib.Path", str, _of_text(pathlib.Path))
    of(datetime.datetime, "datetime.datetime", text_of_time, datetime_of_text)
    date = datetime.date
    of(date, "datetime.date", date.isoformat, _of_text(date.fromisoformat))
    of(datetime.time, "datetime.time", text_of_time, time_of_text)
    of(
        datetime.timedelta,
        "datetime.timedelta",
        lambda it: [it.days, it.seconds, it.microseconds],
        lambda plain: datetime.timedelta(*_whole(plain, 3)),
    )
    of(datetime.timezone, "datetime.timezone", plain_zone, zone_of_plain)
    of(uuid.UUID, "uuid.UUID", str, _of_text(uuid.UUID))
    of(decimal.Decimal, "decimal.Decimal", str, _of_text(decimal.Decimal))
    of(
        fractions.Fraction,
        "fractions.Fraction",
        lambda it: [it.numerator, it.denominator],
        lambda plain: fractions.Fraction(*_whole(plain, 2)),
    )
    for map_type in (collections.OrderedDict, collections.Counter):
        decode = lambda plain, map_type=map_type: map_type(_map(plain))  # noqa: E731
        of(map_type, f"collections.{map_type.__name__}", dict, decode)
    of(
        collections.deque,
        "collections.deque",
        lambda it: [list(it), it.maxlen],
        lambda plain: collections.deque(of_type(_items(plain, 2)[0], list), plain[1]),
    )
    of(frozenset, "builtins.frozenset", list, _frozenset)
    of(bytearray, "builtins.bytearray", bytes, lambda plain: bytearray(of_type(plain, bytes)))
    of(range, "builtins.range", _bounds, lambda plain: range(*_whole(plain, 3)))
    of(slice, "builtins.slice", _bounds, lambda plain: slice(*_items(plain, 3)))
    for address in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        of(address, f"ipaddress.{address.__name__}", str, _of_text(address))


def _of_text(make: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda plain: make(of_type(plain, str))


def _frozenset(plain: Any) -> frozenset[Any]:
    _check_hashes(of_type(plain, list))
    return frozenset(plain)


def _bounds(it: Any) -> list[Any]:
    return [it.start, it.stop, it.step]


_register_standard_library()
