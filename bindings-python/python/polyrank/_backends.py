"""Backends that programs register: what their factories are told, and the threads on which they
run. Each rank of a group has a thread with an event loop of its own for its backend.

Methods are called there one after another. One that has to wait for other ranks while others are
called is a coroutine, or returns a future or a work.
"""

# Backends are found by their methods.
# pyright: basic

import numbers
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from polyrank import _core

__all__ = ["DistributedBackendOptions", "ProcessGroupFactory"]


class ProcessGroupFactory(Protocol):
    """What `register_backend` takes: makes the backend of this rank in a new group."""

    def __call__(
        self, store: _core.Store, rank: int, world_size: int, timeout: timedelta, /
    ) -> Any: ...


@dataclass(frozen=True)
class DistributedBackendOptions:
    """What a factory is told that is registered with `extended_api`: c10d's class."""

    store: _core.Store
    """The store of the group: no other group has these keys."""
    group_rank: int
    """This process's rank in the group."""
    group_size: int
    """The number of ranks."""
    timeout: timedelta
    """Limit of the group's operations; zero is none."""
    group_id: str
    """The group's name."""
    global_ranks_in_group: list[int] = field(default_factory=list)
    """Global ranks of the members, by rank in the group."""
    enable_reconfigure: bool = False
    """Whether the members of the group can be replaced: never."""


#: Whether the factory of a backend takes options, by the names of those that are registered.
_registered: dict[str, bool] = {}


@dataclass
class _Chosen:
    """What was chosen about the backend of a group that is being made."""

    device: Any
    #: What is wrong with that, if its factory cannot take it.
    refused: TypeError | None = None


#: By the name of the group.
_chosen: dict[str, _Chosen] = {}


def is_registered(name: str) -> bool:
    """Whether a backend of this name was registered here."""
    return name.lower() in _registered


@contextmanager
def chosen_for_group(group_name: str, device: Any) -> Iterator[None]:
    """Gives the factory of a registered backend the device for the group made meanwhile."""
    chosen = _chosen[group_name] = _Chosen(device)
    try:
        yield
    except _core.PolyrankError as error:
        if chosen.refused is not None:
            raise chosen.refused from error
        raise
    finally:
        del _chosen[group_name]


def _note_registered(name: str, extended_api: bool) -> None:
    _registered[name.lower()] = extended_api


#: The backends, by their numbers in the core.
_runners: "dict[int, _Runner]" = {}


def _deliver(task: Any, factory: Callable[..., Any], extended_api: bool) -> None:
    """Takes a task of the core, on any thread, and does not wait for it."""
    runner = _runners.get(task.instance)
    if task.method == "make":
        runner = _runners[task.instance] = _Runner(factory, extended_api)
        runner.start()
    if runner is None:
        task.end()
    elif task.method == "abort":
        # The thread may be in a method that waits: it is what ends that.
        threading.Thread(target=runner.abort, args=(task,), daemon=True).start()
    elif task.method in ("release", "forget"):
        _runners.pop(task.instance, None)
        runner.stop()
    else:
        runner.put(task)


class _Runner:
    """The thread of a backend."""

    def __init__(self, factory: Callable[..., Any], extended_api: bool) -> None:
        import asyncio

        self._factory, self._extended_api = factory, extended_api
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="polyrank-backend", daemon=True)
        self._tasks: set[Any] = set()
        self._backend: Any = None
        self._size = 0

    def start(self) -> None:
        self._thread.start()

    def put(self, task: Any) -> None:
        self._loop.call_soon_threadsafe(self._begin, task)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._leave)

    def abort(self, task: Any) -> None:
        abort = getattr(self._backend, "abort", None)
        try:
            if callable(abort):
                abort()
        except BaseException as error:
            task.fail(error, _text(error))
        else:
            task.end()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _leave(self) -> None:
        """Ends the loop. What still runs is cancelled in its last round."""
        for running in self._tasks:
            running.cancel()
        self._loop.call_soon(self._loop.stop)

    def _begin(self, task: Any) -> None:
        """Calls the method of a task. What it returns may have to be awaited."""
        try:
            returned = self._made(task) if task.method == "make" else _called(self._backend, task)
        except BaseException as error:
            self._fail(task, error)
        else:
            if returned is None and task.method != "make":
                task.end()
                return
            running = self._loop.create_task(self._finish(task, returned))
            # The loop keeps tasks weakly.
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)

    def _made(self, task: Any) -> Any:
        context = task.context
        self._size = context["group_size"]
        chosen = _chosen.get(context["group_id"], _Chosen(None))
        if self._extended_api:
            return self._factory(DistributedBackendOptions(**context), task.options)
        names = ("store", "group_rank", "group_size", "timeout")
        arguments = [context[name] for name in names]
        if _takes_device(self._factory):
            arguments.append(chosen.device)
        options = _keywords(task.options)
        if not _takes_options(self._factory, arguments, options):
            chosen.refused = TypeError(
                f"the factory of the backend '{task.backend}' takes no options {options!r}: "
                "register one with these as keywords, or with extended_api"
            )
            raise chosen.refused
        return self._factory(*arguments, **options)

    async def _finish(self, task: Any, returned: Any) -> None:
        try:
            if task.method == "make":
                self._backend = await _awaited(returned) if _can_await(returned) else returned
                if self._backend is None:
                    raise TypeError("the factory returned None, not a backend")
                task.end()
            else:
                task.end(await _outcome(task, returned, self._size))
        except BaseException as error:
            self._fail(task, error)

    def _fail(self, task: Any, error: BaseException) -> None:
        """Ends a task with what was raised."""
        if _says_lacking(error, getattr(self._backend, task.method, None)):
            task.lack()
        else:
            task.fail(error, _text(error))


class _LackingError(Exception):
    """The backend has no such method."""


def _called(backend: Any, task: Any) -> Any:
    """What a method returns."""
    method = getattr(backend, task.method, None)
    if not callable(method):
        if task.method == "shutdown":
            return None
        raise _LackingError
    return method(*_ARGUMENTS[task.method](task))


def _says_lacking(error: BaseException, method: Any) -> bool:
    """Whether this means that the backend has no such method: as c10d's base class says it, by a
    `NotImplementedError` of the method itself, and not of something that it called."""
    import inspect

    if isinstance(error, _LackingError):
        return True
    trace = error.__traceback__
    if not isinstance(error, NotImplementedError) or not callable(method) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    function = inspect.unwrap(getattr(method, "__func__", method))
    return trace.tb_frame.f_code is getattr(function, "__code__", None)


def _takes_device(factory: Callable[..., Any]) -> bool:
    """Whether this is a factory as those of `_dist2`: with the device after the limit."""
    import inspect

    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    fifth = [it for it in parameters if it.kind in by_place][4:5]
    return any(it.name == "device" or it.default is inspect.Parameter.empty for it in fifth)


def _keywords(options: Any) -> Any:
    """What a factory without `extended_api` gets of a group's options: those of all groups are in
    its arguments."""
    is_of_all_groups = type(options) in (_core.BackendOptions, _core.NcclOptions)
    return {} if options is None or is_of_all_groups else options


def _takes_options(factory: Callable[..., Any], arguments: list[Any], options: Any) -> bool:
    """Whether a factory can be given these options as keywords."""
    import inspect

    if not isinstance(options, dict):
        return False
    if not options:
        return True
    try:
        inspect.signature(factory).bind(*arguments, **options)
    except (TypeError, ValueError):
        return False
    return True


async def _outcome(task: Any, returned: Any, size: int) -> int | None:
    """Waits for what a method returned; the rank that sent what was received, if it says that."""
    import inspect

    is_coroutine = inspect.iscoroutine(returned)
    if is_coroutine:
        # What it returns is what the method returns: that may have to be awaited in its turn.
        returned = await returned
    can_say_sender = task.method == "recv_anysource"
    if returned is None:
        return None
    if can_say_sender and _is_rank(returned):
        return _in_group(task, returned, size)
    if _can_await(returned) or callable(getattr(returned, "wait", None)):
        value = await _awaited(returned)
        # A future of something else says what that says, as `True`.
        return _sender(task, returned, value, size) if can_say_sender else None
    what = "the rank that sent" if can_say_sender else "nothing"
    raise _core.InvalidTypeError(
        f"{task.method} of a backend returned {returned!r}, which cannot be waited for; expected "
        f"{what}, a work, a coroutine or a future. Results are written to the tensors"
    )


async def _awaited(returned: Any) -> Any:
    """The value of a work, a future, something that can be awaited."""
    import asyncio
    import concurrent.futures
    import inspect

    if inspect.isawaitable(returned):
        return await returned
    if isinstance(returned, concurrent.futures.Future):
        return await asyncio.wrap_future(returned)
    value = await _on_thread(returned.wait)
    # It may be a coroutine itself.
    return await value if inspect.isawaitable(value) else value


def _can_await(returned: Any) -> bool:
    import concurrent.futures
    import inspect

    return inspect.isawaitable(returned) or isinstance(returned, concurrent.futures.Future)


def _on_thread(wait: Callable[[], Any]) -> Any:
    """A future of what `wait` returns, which may block. No thread of it keeps the process alive."""
    import asyncio
    import concurrent.futures

    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(wait())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="polyrank-backend-wait", daemon=True).start()
    return asyncio.wrap_future(outcome)


def _sender(task: Any, returned: Any, value: Any, size: int) -> int | None:
    """The rank that sent what was received, if the work or its value says it."""
    if _is_rank(value):
        return _in_group(task, value, size)
    for name in ("source_rank", "_source_rank"):
        method = getattr(returned, name, None)
        source: Any = method() if callable(method) else None
        if _is_rank(source):
            return _in_group(task, source, size)
    return None


def _is_rank(value: Any) -> bool:
    """Whether this is a whole number, also one of NumPy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _in_group(task: Any, rank: Any, size: int) -> int:
    """A rank of the group."""
    if not 0 <= rank < size:
        raise _core.InvalidArgumentError(
            f"{task.method} of a backend says that rank {rank} sent; the group has the ranks 0 to "
            f"{size - 1}"
        )
    return int(rank)


def _text(error: BaseException) -> str:
    try:
        said = str(error)
    except BaseException as second:
        said = f"(its __str__ raised {type(second).__name__})"
    return f"{type(error).__name__}: {said}"


def _reducing(options: Any) -> Callable[[Any], Any]:
    return lambda task: options(reduce_op=task.reduce_op, timeout=task.timeout)


def _rooted(options: Any) -> Callable[[Any], Any]:
    return lambda task: options(root_rank=task.root, timeout=task.timeout)


def _plain(options: Any) -> Callable[[Any], Any]:
    return lambda task: options(timeout=task.timeout)


def _in_place(options: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda task: (task.outputs, options(task))


def _lists(blocks: list[Any]) -> list[list[Any]]:
    """The blocks of one tensor list, or none where this rank has none."""
    return [blocks] if blocks else []


#: What a method is called with: c10d's arguments, for one tensor of each rank.
_ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "allreduce": _in_place(_reducing(_core.AllreduceOptions)),
    "scan": _in_place(_reducing(_core.AllreduceOptions)),
    "exscan": _in_place(_reducing(_core.AllreduceOptions)),
    "reduce": _in_place(
        lambda task: _core.ReduceOptions(
            reduce_op=task.reduce_op, root_rank=task.root, timeout=task.timeout
        )
    ),
    "broadcast": _in_place(_rooted(_core.BroadcastOptions)),
    "allgather": lambda task: (
        _lists(task.outputs),
        task.inputs,
        _plain(_core.AllgatherOptions)(task),
    ),
    "gather": lambda task: (
        _lists(task.outputs),
        task.inputs,
        _rooted(_core.GatherOptions)(task),
    ),
    "scatter": lambda task: (
        task.outputs,
        _lists(task.inputs),
        _rooted(_core.ScatterOptions)(task),
    ),
    "reduce_scatter": lambda task: (
        task.outputs,
        _lists(task.inputs),
        _reducing(_core.ReduceScatterOptions)(task),
    ),
    "alltoall": lambda task: (task.outputs, task.inputs, _plain(_core.AllToAllOptions)(task)),
    "barrier": lambda task: (_plain(_core.BarrierOptions)(task),),
    "send": lambda task: (task.inputs, task.peer, task.tag),
    "recv": lambda task: (task.outputs, task.peer, task.tag),
    "recv_anysource": lambda task: (task.outputs, task.tag),
    "shutdown": lambda task: (),
}
