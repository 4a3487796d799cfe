"""LocalSGD and DiLoCo: replicas that train by themselves, and average once in many steps.

They stand on `polyrank.Manager`, so that replicas may come and go. Parameters are NumPy arrays, or
those of any library that has memory; PyTorch is not needed, and its modules and optimizers are
taken as `torchft.local_sgd` takes them. What averages need on the way is computed with NumPy.
"""

# Models and optimizers are of any library.
# pyright: basic

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

try:
    import numpy as np
except ImportError as _error:
    raise ImportError("polyrank.local_sgd needs NumPy: pip install numpy") from _error

from polyrank._core import (
    GroupHints,
    InvalidArgumentError,
    InvalidTypeError,
    Manager,
    QuorumError,
    ReduceOp,
)
from polyrank._outer_optimizers import (
    FragmentOptimizer,
    OuterOptimizer,
    OuterSGD,
    check_optimizer,
    load_state,
    state_of,
)
from polyrank._parameters import Array, Arrays, Parameters, checked, flatten, unflatten

#: What the state is called at the manager. There is one layer at a manager: replicas that join must
#: not land in the average of another one.
_KEY = "local_sgd"

__all__ = ["DiLoCo", "LocalSGD", "OuterOptimizer", "OuterSGD"]


class _Average:
    """The average of arrays over the replicas that count, on its way."""

    def __init__(
        self, manager: Manager, values: Arrays, counts: bool, compress: str | None = None
    ) -> None:
        self._manager, self._like = manager, values
        self._flat = flatten(values)
        self._count = np.full(1, counts, np.int32)
        if not counts:
            for array in self._flat:
                array[...] = 0
        with _compressed(manager, compress):
            works = [manager.allreduce(array) for array in self._flat]
        works.append(manager.allreduce(self._count, ReduceOp.SUM))
        self._works = works

    def wait(self) -> Arrays | None:
        """None if no replica counted. If anything failed, it may be anything: the vote says so."""
        for work in self._works:
            work.wait()
        count, participants = int(self._count[0]), self._manager.num_participants()
        if count == 0:
            return None
        if count != participants:
            # The sum was divided by all, of whom some gave zeros.
            for array in self._flat:
                array *= array.dtype.type(participants / count)
        return unflatten(self._flat, self._like)


@contextmanager
def _compressed(manager: Manager, compress: str | None) -> Generator[None, None, None]:
    """All replicas issue the same between these two hints; other operations of the group have what
    they had."""
    if compress is None:
        yield
        return
    group = manager.group()
    before = group.hints
    group.set_hints(GroupHints(compress=compress))
    try:
        yield
    finally:
        group.set_hints(before)


class _Layer:
    """What both have alike: when they begin, who counts, and how they end."""

    def __init__(self, manager: Manager, optimizer: Any) -> None:
        name = type(self).__name__
        if not isinstance(manager, Manager):
            kind = type(manager).__name__
            raise InvalidTypeError(f"{name}: manager must be a polyrank.Manager, not {kind}")
        if optimizer is not None and not hasattr(optimizer, "register_step_post_hook"):
            raise InvalidTypeError(
                f"{name}: an inner optimizer has register_step_post_hook, as those of torch; "
                f"{type(optimizer).__name__} has not: pass None, and call step() after each step"
            )
        self._manager, self._optimizer = manager, optimizer
        self._hook: Any = None
        self._is_entered = False
        self._is_joining = False
        # Whether a state was taken in this round: what it replaced is no part of an average.
        self._has_healed = False
        # Whether an outer step has failed here that the others have made.
        self._is_lost = False
        self._local_step = 0

    def __enter__(self) -> Self:
        """Joins the others: waits until they average, takes what they have, and begins with them.

        The first of all replicas wait for each other, and begin with what one of them has. Raises
        `QuorumError` if there is no quorum in time.
        """
        if self._is_entered:
            raise InvalidArgumentError(f"{type(self).__name__}: it is entered already")
        self._check_parameters()
        self._is_joining = True
        try:
            while not self._join():
                pass
        finally:
            self._is_joining = False
        self._local_step = 0
        self._is_entered = True
        if self._optimizer is not None:
            self._hook = self._optimizer.register_step_post_hook(self._after_step)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_entered = False
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if exc_type is None:
            self._end()

    def step(self) -> bool | None:
        """Call it after each inner step, unless the optimizer does. True if replicas averaged, and
        the result was committed; False if that was lost, and `manager.errored()` says why; None if
        it was not time for it."""
        self._check("step")
        self._local_step += 1
        return self._stepped()

    def state_dict(self) -> dict[str, Any]:
        """What all replicas have alike, for a checkpoint: with the manager's own `state_dict`."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there: the parameters become what was committed last."""
        raise NotImplementedError

    def _check(self, method: str) -> None:
        name = type(self).__name__
        if not self._is_entered:
            raise InvalidArgumentError(f"{name}: {method}() is called in its with block")
        self._check_parameters()

    def _check_parameters(self) -> None:
        if self._is_lost:
            raise InvalidArgumentError(
                f"{type(self).__name__}: an outer step that all others have committed has failed "
                "here, so that this replica has other parameters than they; one that is started "
                "anew takes theirs"
            )

    def _register(self) -> None:
        self._manager.register_state_dict_fn(_KEY, self._heal, self.state_dict)

    def _heal(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)
        self._has_healed = True
        self._is_lost = False

    def _after_step(self, *_: Any) -> None:
        self.step()

    def _begin_round(self) -> bool:
        """Whether there is a quorum. If not, the round is lost, as by any other failure."""
        self._has_healed = False
        try:
            self._manager.start_quorum()
            # Also if it comes while a program computes: which step it is, and so which fragment, is
            # not known before.
            self._manager.wait_quorum()
        except QuorumError:
            if self._is_joining:
                raise
            return False
        return True

    def _counts(self) -> bool:
        return not (self._is_joining or self._has_healed)

    def _join(self) -> bool:
        raise NotImplementedError

    def _stepped(self) -> bool | None:
        raise NotImplementedError

    def _end(self) -> None:
        """The program leaves in order."""


class LocalSGD(_Layer):
    """Averages parameters every `sync_every` steps of the optimizer (Stich, arXiv 1805.09767).

    `with LocalSGD(manager, model, optimizer, sync_every):` around the training loop. Each inner
    step changes the parameters in place; after each, `step()` is called, by the program or by the
    optimizer. A replica that is killed costs the others no more than one average, and no inner
    step: if an average is lost, all go on from the parameters that they have, as torchft has it,
    and the next one holds all that was trained meanwhile. A replica that is new takes the last
    average that was committed. The optimizer's own memory stays where it is.

    - `manager`: of this layer alone: each of its steps is an average. With a quorum that comes
      before or while it computes. Its `timeout`s, and `join_timeout` of the lighthouse, must be
      longer than replicas may be apart after `sync_every` steps.
    - `model`: a mapping of names to arrays, a sequence of arrays or of (name, array), or a
      `torch.nn.Module`: real or complex floats, of 16 bits and more. They are not registered with
      the manager by the program.
    - `optimizer`: one of torch, after whose steps `step()` is called; none: the program calls it.
    - `sync_every`: how many inner steps there are between two averages.
    """

    def __init__(
        self,
        manager: Manager,
        model: Any,
        optimizer: Any = None,
        sync_every: int = 1,
    ) -> None:
        super().__init__(manager, optimizer)
        self._sync_every = _at_least("LocalSGD: sync_every", sync_every, 1)
        self._parameters = Parameters(model, "LocalSGD")
        self._kept = self._parameters.read_wide()
        self._register()

    def state_dict(self) -> dict[str, Any]:
        """The last average that was committed."""
        return {"parameters": dict(self._kept)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there: the parameters become that average."""
        self._kept = checked(_part(state_dict, "parameters"), self._kept, "LocalSGD")
        self._parameters.write(self._kept)

    def sync(self) -> bool:
        """Averages now, as all replicas must at the same place; whether that was committed."""
        self._check("sync")
        return self._sync()

    def _sync(self) -> bool:
        self._local_step = 0
        if not self._begin_round():
            return self._manager.should_commit()
        average = _Average(self._manager, self._parameters.read_wide(), self._counts()).wait()
        if not self._manager.should_commit():
            return False
        if average is not None:
            self._kept = average
            self._parameters.write(average)
        return True

    def _join(self) -> bool:
        return self._sync()

    def _stepped(self) -> bool | None:
        return self._sync() if self._local_step >= self._sync_every else None


class _Fragment:
    """A part of the model: its own parameters, and those that replicas share."""

    def __init__(self, number: int, model: Any, optimizer: Any) -> None:
        self.name = f"DiLoCo: fragment {number}"
        self.parameters = Parameters(model, self.name)
        self._optimizer = FragmentOptimizer(optimizer, self.parameters, f"{number}/")
        self.kept = self.parameters.read_wide()

    def copy(self) -> Arrays:
        """The shared parameters, which outer steps change in place."""
        return {name: array.copy() for name, array in self.kept.items()}

    def change(self) -> Arrays:
        """How far the inner steps have gone, backwards: the gradient of the outer step."""
        local = self.parameters.read_wide()
        # Without what was lost when the inner steps began with fewer bits.
        begun = self.parameters.rounded(self.kept)
        return {name: np.asarray(begun[name] - array) for name, array in local.items()}

    def commit(self, gradient: Arrays, local: Arrays | None, alpha: float) -> None:
        """The outer step. `local` is what the parameters were, of which `alpha` remains."""
        self._optimizer.step(self.kept, gradient)
        if local is None or alpha == 0:
            self.parameters.write(self.kept)
            return
        self.parameters.write(
            {name: _mixed(array, local[name], alpha) for name, array in self.kept.items()}
        )

    def restore(self) -> None:
        """The inner steps are lost."""
        self.parameters.write(self.kept)


def _mixed(kept: Array, local: Array, alpha: float) -> Array:
    return np.asarray(kept + (local - kept) * kept.dtype.type(alpha))


class DiLoCo(_Layer):
    """An outer optimizer steps by the average of what replicas changed in many inner steps (DiLoCo,
    arXiv 2311.08105), a part of the model at a time (Streaming DiLoCo, arXiv 2501.18512).

    `with DiLoCo(manager, [model], optimizer, sync_every=...):` around the training loop. Each inner
    step changes the parameters in place; after each, `step()` is called, by the program or by the
    optimizer. All replicas keep the same shared parameters, to the last bit. If an outer step is
    lost, the fragment is put back to those, so that no replica trains ever farther from the others.
    One that is new takes them, and what the outer optimizer remembers; it counts from its first own
    inner step on.

    - `manager`: of this layer alone: each of its steps is an average. With a quorum that comes
      before or while it computes. Its `timeout`s, and `join_timeout` of the lighthouse, must be
      longer than replicas may be apart after `sync_every` steps.
    - `model_fragments`: parts of the model, each as `LocalSGD` takes one. One after the other is
      averaged, all of them once in `sync_every` inner steps.
    - `inner_optimizer`: one of torch, after whose steps `step()` is called; none: the program calls
      it. Its memory stays where it is.
    - `outer_optimizer`: an `OuterSGD`, which is the default, one of your own, or one of torch; or a
      list of them, one for each fragment.
    - `sync_every`: how many inner steps there are between two outer steps of a fragment: a multiple
      of the number of fragments.
    - `should_quantize`: whether changes travel as 8 bit integers, with a scale for each 256.
    - `fragment_sync_delay`: how many inner steps are made while a fragment is averaged.
    - `fragment_update_alpha`: how much remains of a replica's own parameters when the shared ones
      come: 0 is nothing, 1 all.
    - `backup_device`: kept for torchft: shared parameters are in memory of the host.

    Parameters of 16 bits are shared in 32.
    """

    def __init__(
        self,
        manager: Manager,
        model_fragments: Sequence[Any],
        inner_optimizer: Any = None,
        outer_optimizer: Any = None,
        sync_every: int = 1,
        backup_device: Any = None,
        should_quantize: bool = False,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
    ) -> None:
        super().__init__(manager, inner_optimizer)
        if str(backup_device) not in ("None", "cpu"):
            raise InvalidArgumentError(
                f"DiLoCo: shared parameters are in memory of the host; backup_device must be None "
                f"or 'cpu', not {backup_device!r}"
            )
        models = _listed(model_fragments)
        self._interval = _interval(sync_every, len(models), fragment_sync_delay)
        self._delay = fragment_sync_delay
        if not 0 <= fragment_update_alpha <= 1:
            raise InvalidArgumentError(
                f"DiLoCo: fragment_update_alpha must be from 0 to 1, not {fragment_update_alpha}"
            )
        self._alpha = fragment_update_alpha
        self._outer = _outer_of(outer_optimizer, len(models))
        optimizers = self._outer * len(models) if len(self._outer) == 1 else self._outer
        pairs = enumerate(zip(models, optimizers, strict=True))
        self._fragments = [_Fragment(number, model, outer) for number, (model, outer) in pairs]
        self._compress = "int8" if should_quantize else None
        self._check_fragments()
        self._current = 0
        self._is_begun = False
        self._average: _Average | None = None
        self._register()

    def state_dict(self) -> dict[str, Any]:
        """The shared parameters of all fragments, and what the outer optimizers remember."""
        return {
            "parameters": [fragment.copy() for fragment in self._fragments],
            "outer": [state_of(optimizer) for optimizer in self._outer],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there: the parameters become the shared ones."""
        parameters, outer = _part(state_dict, "parameters"), _part(state_dict, "outer")
        expected = (len(self._fragments), len(self._outer))
        if (len(parameters), len(outer)) != expected:
            raise InvalidArgumentError(
                f"DiLoCo: the state has {len(parameters)} fragments and {len(outer)} outer "
                f"optimizers, and this replica {expected[0]} and {expected[1]}"
            )
        pairs = list(zip(self._fragments, parameters, strict=True))
        kept = [checked(found, fragment.kept, fragment.name) for fragment, found in pairs]
        for optimizer, found in zip(self._outer, outer, strict=True):
            load_state(optimizer, found)
        for fragment, values in zip(self._fragments, kept, strict=True):
            fragment.kept = values
            fragment.restore()

    def _stepped(self) -> bool | None:
        if not self._is_begun and self._local_step >= self._interval - self._delay:
            self._begin()
        if self._local_step < self._interval:
            return None
        return self._finish()

    def _join(self) -> bool:
        self._begin()
        return self._finish()

    def _end(self) -> None:
        if self._is_begun:
            # The others wait for nobody, but what was averaged would be lost here.
            self._finish()

    def _begin(self) -> None:
        self._average = None
        has_quorum = self._begin_round()
        # All are at the same step, and so at the same fragment. If its outer step is lost, it is
        # the next one again.
        self._current = self._manager.current_step() % len(self._fragments)
        if has_quorum:
            change = self._fragments[self._current].change()
            self._average = _Average(self._manager, change, self._counts(), self._compress)
        self._is_begun = True

    def _finish(self) -> bool:
        self._local_step, self._is_begun = 0, False
        fragment, average = self._fragments[self._current], self._average
        self._average = None
        gradient = average.wait() if average is not None else None
        local = fragment.parameters.read_wide()
        if not self._manager.should_commit():
            fragment.restore()
            return False
        if gradient is not None:
            self._is_lost = True
            # Who has taken a state by now has nothing of its own.
            fragment.commit(gradient, local if self._counts() else None, self._alpha)
            self._is_lost = False
        return True

    def _check_fragments(self) -> None:
        known: dict[int, str] = {}
        for fragment in self._fragments:
            for address, name in fragment.parameters.addresses().items():
                described = f"{name!r} of {fragment.name.removeprefix('DiLoCo: ')}"
                if address in known:
                    raise InvalidArgumentError(
                        f"DiLoCo: {known[address]} and {described} are the same parameter"
                    )
                known[address] = described
            wide = {array.dtype.kind for array in fragment.kept.values()}
            if self._compress is not None and "c" in wide:
                raise InvalidArgumentError(
                    f"{fragment.name} has complex parameters, which should_quantize does not take"
                )


def _at_least(what: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"{what} must be int, not {type(value).__name__}")
    if value < least:
        raise InvalidArgumentError(f"{what} must be at least {least}, not {value}")
    return value


def _interval(sync_every: int, fragments: int, delay: int) -> int:
    """How many inner steps there are from one fragment's outer step to the next one's."""
    _at_least("DiLoCo: sync_every", sync_every, 1)
    _at_least("DiLoCo: fragment_sync_delay", delay, 0)
    if sync_every % fragments != 0:
        raise InvalidArgumentError(
            f"DiLoCo: sync_every must be a multiple of the number of fragments, {fragments}, of "
            f"which one at a time is averaged; not {sync_every}"
        )
    interval = sync_every // fragments
    if delay >= interval:
        raise InvalidArgumentError(
            f"DiLoCo: fragment_sync_delay must be less than {interval}, the inner steps between "
            f"two fragments, not {delay}: a fragment has come before the next one goes"
        )
    return interval


def _outer_of(given: Any, fragments: int) -> list[Any]:
    if given is None:
        return [OuterSGD()]
    optimizers = list(given) if isinstance(given, (list, tuple)) else [given]
    for optimizer in optimizers:
        check_optimizer(optimizer)
    if isinstance(given, (list, tuple)) and len(optimizers) != fragments:
        raise InvalidArgumentError(
            f"DiLoCo: {len(optimizers)} outer optimizers for {fragments} fragments: pass one for "
            "each, or one for all"
        )
    return optimizers


def _listed(model_fragments: Any) -> list[Any]:
    is_list = isinstance(model_fragments, (list, tuple))
    if not is_list or any(isinstance(it, np.ndarray) for it in model_fragments):
        raise InvalidTypeError(
            "DiLoCo: model_fragments must be a list of models, each a mapping of names to arrays, "
            f"a sequence of arrays, or a torch.nn.Module, not {type(model_fragments).__name__}"
            + (" of arrays" if is_list else "")
        )
    if not model_fragments:
        raise InvalidArgumentError("DiLoCo: model_fragments is empty")
    return list(model_fragments)


def _part(state: Any, name: str) -> Any:
    if not isinstance(state, dict) or name not in state:
        raise InvalidTypeError(f"the state has no {name!r}: it is not of this kind")
    return state[name]
