"""Parameters of a model as NumPy arrays on the host, whatever library they are of."""

# Tensors are of any library.
# pyright: basic

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from polyrank._core import InvalidArgumentError, InvalidTypeError

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]

#: What is averaged, and in what it is computed: the small steps of an outer optimizer would vanish
#: in 16 bits.
_WIDE = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}
_EXPECTED = (
    "a model is a mapping of names to arrays, a sequence of arrays or of (name, array), or a "
    "torch.nn.Module"
)


class Parameters:
    """The parameters of a model, or of a part of one, in the order of their names.

    The model is asked for them each time: a program may put another array of the same shape in the
    place of one. They are written in place.
    """

    def __init__(self, model: Any, what: str) -> None:
        self._what = what
        self._named = _reader(model, what)
        tensors = self._tensors()
        self._layout = {name: _described(name, view) for name, view in tensors.items()}

    def names(self) -> list[str]:
        """Their names, sorted: replicas may have made their mappings in another order."""
        return list(self._layout)

    def read(self) -> Arrays:
        """Copies."""
        return {name: view.array().copy() for name, view in self._tensors().items()}

    def read_wide(self) -> Arrays:
        """Copies, in which an outer optimizer computes."""
        tensors = self._tensors()
        return {name: _wide(view.array()) for name, view in tensors.items()}

    def write(self, values: Arrays) -> None:
        """Sets them, rounded to what they are."""
        for name, view in self._tensors().items():
            view.assign(values[name])

    def rounded(self, values: Arrays) -> Arrays:
        """What `read_wide` would give after `write`."""
        tensors = self._tensors()
        return {name: _wide(view.rounded(values[name])) for name, view in tensors.items()}

    def as_they_are(self) -> dict[str, Any]:
        """The objects of the model."""
        return {name: view.tensor for name, view in self._tensors().items()}

    def addresses(self) -> dict[int, str]:
        """Names by where elements lie, of those that have any."""
        found = self._tensors().items()
        return {view.address(): name for name, view in found if view.array().size > 0}

    def _tensors(self) -> "dict[str, _View]":
        named: dict[str, _View] = {}
        for name, tensor in self._named():
            if name in named:
                raise InvalidArgumentError(f"{self._what}: two parameters are called {name!r}")
            named[name] = _view(name, tensor)
        named = dict(sorted(named.items()))
        layout = getattr(self, "_layout", None)
        if layout is not None:
            found = {name: _described(name, view) for name, view in named.items()}
            if found != layout:
                changed = sorted(found.items() ^ layout.items())
                raise InvalidArgumentError(
                    f"{self._what}: parameters are not those that there were at first: {changed}"
                )
        return named


class _View:
    """One parameter: memory of the host."""

    def __init__(self, tensor: Any, array: Array) -> None:
        self.tensor = tensor
        self._array = array

    def array(self) -> Array:
        return self._array

    def assign(self, values: Array) -> None:
        self._array[...] = values

    def rounded(self, values: Array) -> Array:
        return values.astype(self._array.dtype)

    def address(self) -> int:
        return int(self._array.__array_interface__["data"][0])


class _TorchView(_View):
    """One of torch, on any device; NumPy has no bfloat16, so that it is seen in 32 bits."""

    def __init__(self, tensor: Any) -> None:
        self._torch: Any = importlib.import_module("torch")
        on_host = tensor.detach().cpu()
        if on_host.dtype == self._torch.bfloat16:
            on_host = on_host.float()
        super().__init__(tensor, on_host.numpy())

    def assign(self, values: Array) -> None:
        with self._torch.no_grad():
            self.tensor.copy_(self._torch.from_numpy(np.ascontiguousarray(values)))

    def rounded(self, values: Array) -> Array:
        exact = self._torch.from_numpy(np.ascontiguousarray(values))
        left = exact.to(self.tensor.dtype).to(exact.dtype)
        array: Array = left.numpy().reshape(values.shape)
        return array

    def address(self) -> int:
        return int(self.tensor.data_ptr())


def _reader(model: Any, what: str) -> Callable[[], Iterable[tuple[str, Any]]]:
    """What gives names and parameters, as they are now."""
    named = getattr(model, "named_parameters", None)
    if callable(named):
        return cast("Callable[[], Iterable[tuple[str, Any]]]", named)
    if isinstance(model, Mapping):
        if not all(isinstance(name, str) for name in model):
            raise InvalidTypeError(f"{what}: the names of parameters must be str")
        return lambda: model.items()
    if isinstance(model, (str, bytes, np.ndarray)) or not hasattr(model, "__getitem__"):
        raise InvalidTypeError(f"{what}: {_EXPECTED}, not {type(model).__name__}")
    if all(_is_named(it) for it in model):
        return lambda: ((name, tensor) for name, tensor in model)
    return lambda: ((str(place), tensor) for place, tensor in enumerate(model))


def _is_named(it: Any) -> bool:
    return isinstance(it, tuple) and len(it) == 2 and isinstance(it[0], str)


def _view(name: str, tensor: Any) -> _View:
    if isinstance(tensor, np.ndarray):
        array: Array = tensor
    elif hasattr(tensor, "detach") and hasattr(tensor, "data_ptr"):
        return _TorchView(tensor)
    elif hasattr(tensor, "__dlpack__"):
        array = np.from_dlpack(tensor)
    else:
        try:
            array = np.asarray(memoryview(tensor))
        except TypeError:
            kind = type(tensor).__name__
            raise InvalidTypeError(f"parameter {name!r} must be an array, not {kind}") from None
    if not array.flags.writeable:
        raise InvalidArgumentError(f"parameter {name!r} is read-only, and averages are put there")
    return _View(tensor, array)


def _described(name: str, view: _View) -> tuple[tuple[int, ...], str]:
    array = view.array()
    if array.dtype.name not in _WIDE or not array.dtype.isnative:
        known = ", ".join(_WIDE)
        raise InvalidArgumentError(
            f"parameter {name!r} has the dtype {array.dtype}, which cannot be averaged; expected "
            f"one of {known}"
        )
    return array.shape, array.dtype.name


def _wide(array: Array) -> Array:
    return array.astype(_WIDE[array.dtype.name])


def flatten(values: Arrays) -> list[Array]:
    """All elements of each type one after the other: one message each, and not one a parameter."""
    flat = []
    for dtype in _types(values):
        parts = [array.reshape(-1) for array in values.values() if array.dtype == dtype]
        flat.append(np.concatenate(parts))
    return flat


def unflatten(flat: list[Array], like: Arrays) -> Arrays:
    """What `flatten` made one of, in the shapes of `like`."""
    places = dict.fromkeys(range(len(flat)), 0)
    kinds = _types(like)
    values: Arrays = {}
    for name, array in like.items():
        kind = kinds.index(array.dtype)
        begin = places[kind]
        places[kind] = begin + array.size
        values[name] = flat[kind][begin : begin + array.size].reshape(array.shape)
    return values


def _types(values: Arrays) -> list[np.dtype[Any]]:
    by_name = {array.dtype.name: array.dtype for array in values.values()}
    return [by_name[name] for name in sorted(by_name)]


def checked(state: Any, like: Arrays, what: str) -> Arrays:
    """Copies of the arrays of a state that came from elsewhere; an error if they do not fit."""
    if not isinstance(state, Mapping) or state.keys() != like.keys():
        found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise InvalidArgumentError(
            f"{what}: the state has the parameters {found}, and this replica {sorted(like)}"
        )
    values: Arrays = {}
    for name, ours in like.items():
        theirs = np.asarray(state[name])
        if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
            raise InvalidArgumentError(
                f"{what}: parameter {name!r} of the state is of shape {theirs.shape} and of "
                f"{theirs.dtype}, and here of shape {ours.shape} and of {ours.dtype}"
            )
        values[name] = theirs.copy()
    return values
