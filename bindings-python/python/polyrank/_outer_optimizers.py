"""What changes the parameters that replicas share, once in many steps."""

# Optimizers and tensors of torch are of no type that is known here.
# pyright: basic

import importlib
import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyrank._core import InvalidArgumentError, InvalidTypeError
from polyrank._parameters import Arrays, Parameters, checked

__all__ = ["OuterOptimizer", "OuterSGD"]


@runtime_checkable
class OuterOptimizer(Protocol):
    """Changes parameters by the average of what replicas changed them: one of your own has these.

    All replicas must do the same to the last bit: their parameters are the same, and are not
    compared.
    """

    def step(self, parameters: Arrays, gradients: Arrays) -> None:
        """Changes `parameters` in place. `gradients` has the same names, and may be overwritten.
        What is remembered from step to step is remembered by these names."""

    def state_dict(self) -> dict[str, Any]:
        """What is remembered: plain values and arrays. It is given to replicas that are new."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Becomes what `state_dict` of another replica gave."""


class OuterSGD:
    """Gradient descent with momentum, of Nesterov unless told otherwise: as `torch.optim.SGD`
    computes it. The defaults are those of the DiLoCo paper."""

    def __init__(self, lr: float = 0.7, momentum: float = 0.9, nesterov: bool = True) -> None:
        for what, value in (("lr", lr), ("momentum", momentum)):
            if not isinstance(value, (int, float)):
                kind = type(value).__name__
                raise InvalidTypeError(f"OuterSGD: {what} must be a number, not {kind}")
        if not 0 <= lr < math.inf or not 0 <= momentum < 1:
            raise InvalidArgumentError(
                f"OuterSGD: lr must be 0 or more, and momentum from 0 to less than 1, not {lr} "
                f"and {momentum}"
            )
        if nesterov and momentum == 0:
            raise InvalidArgumentError("OuterSGD: nesterov needs a momentum of more than 0")
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self._velocities: Arrays = {}

    def step(self, parameters: Arrays, gradients: Arrays) -> None:
        """Changes `parameters` in place; `gradients` is overwritten."""
        for name, gradient in gradients.items():
            # Numbers of Python do not widen arrays, and each operation is rounded by itself: all
            # processors have the same bits.
            if self.momentum > 0:
                velocity = self._velocities.setdefault(name, np.zeros_like(gradient))
                if velocity.shape != gradient.shape:
                    raise InvalidArgumentError(
                        f"OuterSGD: the momentum of {name!r} is of shape {velocity.shape}, and its "
                        f"gradient of {gradient.shape}: it was loaded from another model"
                    )
                velocity *= self.momentum
                velocity += gradient
                if self.nesterov:
                    gradient += self.momentum * velocity
                else:
                    gradient[...] = velocity
            gradient *= self.lr
            parameters[name] -= gradient

    def state_dict(self) -> dict[str, Any]:
        """The momentum, by the names of parameters."""
        return {"velocities": {name: it.copy() for name, it in self._velocities.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there."""
        found = state_dict.get("velocities") if isinstance(state_dict, Mapping) else None
        if not isinstance(found, Mapping):
            raise InvalidTypeError("OuterSGD: the state has no velocities")
        like = {str(name): np.asarray(it) for name, it in found.items()}
        self._velocities = checked(found, like, "OuterSGD")


class FragmentOptimizer:
    """An outer optimizer as one fragment sees it. `prefix` tells its names from others'."""

    def __init__(self, optimizer: Any, parameters: Parameters, prefix: str) -> None:
        self._optimizer, self._parameters, self._prefix = optimizer, parameters, prefix

    def step(self, kept: Arrays, gradients: Arrays) -> None:
        """Changes what is kept. The parameters may be anything afterwards."""
        if is_of_torch(self._optimizer):
            self._step_of_torch(kept, gradients)
            return
        given = {self._prefix + name: array for name, array in kept.items()}
        self._optimizer.step(given, {self._prefix + name: it for name, it in gradients.items()})
        # One of a user may have put another array in the place of what it was to change. What all
        # replicas have stays of its type.
        for name, array in kept.items():
            array[...] = given[self._prefix + name]

    def _step_of_torch(self, kept: Arrays, gradients: Arrays) -> None:
        torch: Any = importlib.import_module("torch")
        # The gradients of the inner steps, also of other fragments, are none of this step.
        groups = self._optimizer.param_groups
        known = [tensor for group in groups for tensor in group["params"]]
        before = [tensor.grad for tensor in known]
        self._parameters.write(kept)
        for tensor in known:
            tensor.grad = None
        for name, tensor in self._parameters.as_they_are().items():
            gradient = torch.from_numpy(np.ascontiguousarray(gradients[name]))
            tensor.grad = gradient.to(device=tensor.device, dtype=tensor.dtype)
        self._optimizer.step()
        kept.update(self._parameters.read_wide())
        for tensor, gradient in zip(known, before, strict=True):
            tensor.grad = gradient


def is_of_torch(optimizer: Any) -> bool:
    """Whether it steps by the gradients that its own parameters have."""
    return hasattr(optimizer, "param_groups") and hasattr(optimizer, "zero_grad")


def check_optimizer(optimizer: Any) -> None:
    """Raises `InvalidTypeError` unless it can be an outer optimizer."""
    is_one = is_of_torch(optimizer) or isinstance(optimizer, OuterOptimizer)
    if isinstance(optimizer, type) or not is_one:
        raise InvalidTypeError(
            "outer_optimizer must have step(parameters, gradients), state_dict and "
            f"load_state_dict, as OuterSGD, or be one of torch, not {type(optimizer).__name__}"
        )


def state_of(optimizer: Any) -> Any:
    """Its state as plain values and arrays."""
    return _plain(optimizer.state_dict())


def load_state(optimizer: Any, state: Any) -> None:
    """Has it go on from what `state_of` gave elsewhere."""
    optimizer.load_state_dict(_as_of_torch(state) if is_of_torch(optimizer) else state)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(it) for key, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(it) for it in value]
    if hasattr(value, "detach") and hasattr(value, "data_ptr"):
        on_host = value.detach().cpu()
        # What is loaded takes the type of its parameter.
        is_known = str(on_host.dtype) != "torch.bfloat16"
        return (on_host if is_known else on_host.float()).numpy().copy()
    return value


def _as_of_torch(value: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    if isinstance(value, Mapping):
        return {key: _as_of_torch(it) for key, it in value.items()}
    if isinstance(value, list):
        return [_as_of_torch(it) for it in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.from_numpy(np.array(value))
    return value
