"""Types of NumPy, ml_dtypes, PyTorch and zoneinfo as plain values, and back.

Knows nothing of tags: how a type is entered is passed in. Texts that name a type of elements come
from strangers, so that only the forms that NumPy itself writes are read.
"""

# Nothing is known of what users' types hold.
# pyright: basic

import importlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from polyrank._times import zone_name, zone_of

__all__ = ["LIBRARIES", "entries_of", "of_type"]

#: A type's name, the type, and what makes a plain value of an instance, and an instance of that.
Entry = tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]]

_NUMBERS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 intc uintc long ulong longlong ulonglong"
).split()
_TIMES = ("datetime64", "timedelta64")
#: Elements that are less than NumPy's, or other than its own.
_ML_NUMBERS = (
    "bfloat16 float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 "
    "float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "int1 int2 int4 uint1 uint2 uint4 complex32 bcomplex32"
).split()

#: The names of what is carried, by library: a reader imports the library when one of them comes.
LIBRARIES: dict[str, Sequence[str]] = {
    "numpy": [*_NUMBERS, *_TIMES, "ndarray", "str_", "bytes_", "void", "dtype"],
    "ml_dtypes": _ML_NUMBERS,
    "torch": ["dtype", "Size"],
    "zoneinfo": ["ZoneInfo"],
}

#: A type of elements of fixed size as NumPy writes it, which is less than it reads: numbers,
#: times, texts, bytes.
_ELEMENT = re.compile(r"[<>|](b1|[iu][1248]|f2|f4|f8|c8|c16|[mM]8(\[\w{1,30}\])?|[SUV]\d{1,10})")


def entries_of(library: str) -> list[Entry]:
    """What is carried of a library, which is imported: it may raise `ImportError`."""
    # It takes a while to import PyTorch, and few need it.
    module = importlib.import_module(library)
    return _ENTRIES[library](module)


def of_type(plain: Any, cls: type) -> Any:
    """A plain value of exactly this type: a constructor may do anything with another."""
    if type(plain) is not cls:
        raise TypeError(f"expected {cls.__name__}, not {type(plain).__name__}")
    return plain


def _of_zoneinfo(module: Any) -> list[Entry]:
    return [("zoneinfo.ZoneInfo", module.ZoneInfo, zone_name, zone_of)]


def _of_torch(module: Any) -> list[Entry]:
    kinds = {str(it): it for it in vars(module).values() if isinstance(it, module.dtype)}
    return [
        ("torch.dtype", module.dtype, str, lambda name: kinds[name]),
        ("torch.Size", module.Size, list, lambda plain: module.Size(of_type(plain, list))),
    ]


def _of_numpy(module: Any) -> list[Entry]:
    entries: list[Entry] = []
    # Some types have several names, which differ between platforms; the last entry's is written.
    for name in reversed(_NUMBERS):
        scalar = getattr(module, {"bool": "bool_"}.get(name, name), None)
        if scalar is not None:
            entries.append((f"numpy.{name}", scalar, _number, _number_as(scalar)))
    for name in _TIMES:
        entries.append((f"numpy.{name}", getattr(module, name), _parts_of_time, _time))
    entries.append(("numpy.str_", module.str_, str, _copy_as(module.str_, str)))
    entries.append(("numpy.bytes_", module.bytes_, bytes, _copy_as(module.bytes_, bytes)))
    entries.append(("numpy.ndarray", module.ndarray, _parts_of_array, _array))
    entries.append(("numpy.void", module.void, _parts_of_record, _record))
    kinds = {type(module.dtype(kind)) for kind in "?bhilqBHILQefdFDSUmMV"}
    return entries + [("numpy.dtype", kind, _name_of_elements, elements_of) for kind in kinds]


def _of_ml_dtypes(module: Any) -> list[Entry]:
    numpy: Any = importlib.import_module("numpy")
    entries: list[Entry] = []
    for name in _ML_NUMBERS:
        scalar = getattr(module, name, None)
        if scalar is not None:
            entries.append((f"ml_dtypes.{name}", scalar, _number, _number_as(scalar)))
            # A type of elements is of NumPy, whatever it is of.
            kind = type(numpy.dtype(scalar))
            entries.append(("numpy.dtype", kind, _name_of_elements, elements_of))
    return entries


_ENTRIES: dict[str, Callable[[Any], list[Entry]]] = {
    "numpy": _of_numpy,
    "ml_dtypes": _of_ml_dtypes,
    "torch": _of_torch,
    "zoneinfo": _of_zoneinfo,
}


def _number(scalar: Any) -> Any:
    return scalar.item()


def _number_as(scalar: Any) -> Callable[[Any], Any]:
    def decode(plain: Any) -> Any:
        if type(plain) not in (bool, int, float, complex):
            raise TypeError(f"expected a number, not {type(plain).__name__}")
        return scalar(plain)

    return decode


def _copy_as(cls: Any, expected: type) -> Callable[[Any], Any]:
    return lambda plain: cls(of_type(plain, expected))


def _parts_of_time(time: Any) -> list[Any]:
    return [int(time.astype("i8")), time.dtype.str]


def _time(plain: Any) -> Any:
    number, name = of_type(plain, list)
    dtype = elements_of(name)
    if dtype.kind not in "mM":
        raise TypeError(f"expected a time of NumPy, not {dtype}")
    numpy: Any = importlib.import_module("numpy")
    return numpy.array(of_type(number, int), "i8").astype(dtype)[()]


def _name_of_elements(dtype: Any) -> Any:
    """What `elements_of` finds a type of elements by; a `TypeError` where that would be another."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        name: Any = [_name_of_elements(base), list(shape)]
    elif dtype.fields is not None:
        name = _names_of_fields(dtype)
    else:
        # Types of other libraries call themselves bytes without meaning, `V2`.
        name = dtype.name if dtype.name in _ML_NUMBERS else dtype.str
    try:
        made = elements_of(name)
        same = made == dtype and made.type is dtype.type
    except (TypeError, ValueError):
        same = False
    if not same or dtype.hasobject:
        advice = "pass array.tolist() or array.astype(...)"
        raise TypeError(f"arrays of {dtype} are not encoded as CBOR; {advice}")
    return name


def _names_of_fields(dtype: Any) -> dict[str, Any]:
    """What `elements_of` finds a type of elements with fields by."""
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_name_of_elements(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }


def _of_fields(plain: dict[Any, Any]) -> Any:
    """A type of elements with fields, from what `_names_of_fields` gives, and nothing else."""
    if set(plain) != {"names", "formats", "offsets", "itemsize"}:
        raise TypeError("a type of elements with fields has names, formats, offsets and a size")
    names, formats, offsets = (of_type(plain[it], list) for it in ("names", "formats", "offsets"))
    if not len(names) == len(formats) == len(offsets):
        raise TypeError("names, formats and offsets of fields are not equally many")
    numpy: Any = importlib.import_module("numpy")
    return numpy.dtype(
        {
            "names": [of_type(name, str) for name in names],
            "formats": [elements_of(name) for name in formats],
            "offsets": [of_type(offset, int) for offset in offsets],
            "itemsize": of_type(plain["itemsize"], int),
        }
    )


def elements_of(name: Any) -> Any:
    """The type of elements of a name, of the names of fields, or of a name and a shape."""
    numpy: Any = importlib.import_module("numpy")
    if type(name) is dict:
        return _of_fields(name)
    if type(name) is list:
        if len(name) != 2:
            raise TypeError(f"{name!r:.60} is not a type of elements and a shape")
        base, shape = name
        shape = tuple(of_type(size, int) for size in of_type(shape, list))
        return numpy.dtype((elements_of(base), shape))
    if of_type(name, str) not in _ML_NUMBERS:
        if _ELEMENT.fullmatch(name) is None:
            raise TypeError(f"{name!r:.60} is not a type of elements that is carried")
        return numpy.dtype(name)
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError:
        raise TypeError(f"elements of {name} need ml_dtypes; install it on this rank") from None
    if not hasattr(module, name):
        raise TypeError(f"this rank's version of ml_dtypes has no {name}; install a later one")
    return numpy.dtype(getattr(module, name))


def _parts_of_array(array: Any) -> list[Any]:
    name = _name_of_elements(array.dtype)
    if array.dtype.itemsize == 0:
        raise TypeError("arrays whose elements have no bytes are not encoded as CBOR")
    return [name, list(array.shape), array.tobytes()]


def _array(plain: Any) -> Any:
    name, shape, elements = of_type(plain, list)
    dtype = elements_of(name)
    if any(of_type(size, int) < 0 for size in of_type(shape, list)):
        raise ValueError(f"a negative size among {shape!r:.60}")
    size = math.prod(shape) * dtype.itemsize
    if dtype.itemsize == 0 or size != len(of_type(elements, bytes)):
        raise ValueError(f"{len(elements)} bytes are not {shape!r:.60} elements of {dtype}")
    numpy: Any = importlib.import_module("numpy")
    array = numpy.ndarray(shape, dtype, elements).copy()
    _check_texts(array)
    return array


def _check_texts(array: Any) -> None:
    """Refuses texts with elements that are not characters: NumPy fails only when they are read."""
    for name in array.dtype.names or ():
        _check_texts(array[name])
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        numpy: Any = importlib.import_module("numpy")
        letters = numpy.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
        if int(letters.max()) > sys.maxunicode:
            raise ValueError("a text has elements that are not characters")


def _parts_of_record(record: Any) -> list[Any]:
    name, _, elements = _parts_of_array(record)
    return [name, elements]


def _record(plain: Any) -> Any:
    name, elements = of_type(plain, list)
    return _array([name, [], elements])[()]
