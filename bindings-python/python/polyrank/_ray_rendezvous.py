"""How ranks that Ray has started meet: in a store of rank 0, whose address goes through Ray.

Rank 0 waits until all others have said in the store that they are there, and tells them how it
ended. Knows nothing of groups and backends.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from polyrank import _core
from polyrank._core import (
    DistNetworkError,
    RendezvousError,
    RendezvousTimeoutError,
    StoreTimeoutError,
    TCPStore,
)

__all__ = ["Deadline", "Notice", "Place", "lead", "meet", "open_store", "refuse"]

_log = logging.getLogger("polyrank.ray")
#: After how long it is said who is missing, s; 0 for never.
_stall_report_s: Callable[[], float] = getattr(_core, "_stall_report_s")
#: Between two looks at what Ray keeps, s: at first, and at most.
_LOOKS_S = (0.001, 0.05)
#: For one connection to a store that may be gone, s.
_CONNECTING_S = 2.0
#: For those who wait to hear why they do not meet, s.
_HEARING_S = 5.0
#: What rank 0 puts into its store.
_NONCE, _WORLD_SIZE, _OUTCOME = "ray/nonce", "ray/world_size", "ray/outcome"


class Deadline:
    """The end of all waiting; there is none if `seconds` is 0."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """As stores take it: above 0, or 0 for no limit."""
        return max(self._end - time.monotonic(), 0.001) if self.seconds else 0.0

    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.seconds != 0 and time.monotonic() >= self._end


class _LateReport:
    """Says who has not come where others wait for long: again after twice as long, and when all
    have come.
    """

    def __init__(self, name: str, world_size: int) -> None:
        self._name = name
        self._world_size = world_size
        self._began = time.monotonic()
        self._pause_s = _stall_report_s()
        self._next = self._began + self._pause_s
        self._has_said = False

    def left(self) -> float:
        """The time until something is to be said; 0 if nothing ever is."""
        return max(self._next - time.monotonic(), 0.001) if self._pause_s else 0.0

    def say_if_due(self, missing: list[int]) -> None:
        """Says that these are missing, if it is time."""
        now = time.monotonic()
        if self._pause_s == 0 or now < self._next:
            return
        has = f"{_ranks(missing)} of {self._world_size} {'has' if len(missing) == 1 else 'have'}"
        text = "group '%s': %s not come to the rendezvous; waited for %.3g s"
        _log.warning(text, self._name, has, now - self._began)
        self._has_said = True
        self._pause_s *= 2
        self._next = now + self._pause_s

    def end(self) -> None:
        """Says that all have come, if it was said that some had not."""
        if self._has_said:
            waited = time.monotonic() - self._began
            _log.warning("the rendezvous waits no longer, after %.3g s", waited)


class Place(NamedTuple):
    """A store: its address, and what tells it from another that has the address later."""

    host: str
    port: int
    nonce: str


class Notice:
    """What Ray's control service keeps for all its processes: the place where a group meets."""

    def __init__(self, ray: Any, name: str) -> None:
        self._kept: Any = ray.experimental.internal_kv
        namespace: str = ray.get_runtime_context().namespace
        self._key = json.dumps(["polyrank", namespace, name])

    def put(self, place: Place) -> None:
        """Replaces that of a rank 0 which has ended since."""
        self._kept._internal_kv_put(self._key, json.dumps(place))

    def get(self) -> Place | None:
        """The last one that was put, and not taken down."""
        found: bytes | None = self._kept._internal_kv_get(self._key)
        return Place(*json.loads(found)) if found else None

    def take_down(self, place: Place) -> None:
        """Nobody is to come to this place any more."""
        if self.get() == place:
            self._kept._internal_kv_del(self._key)


def open_store(ray: Any, world_size: int, seconds: float) -> tuple[TCPStore, Place]:
    """A store of this process, rank 0 of so many, which the nodes of the cluster reach."""
    host: str = ray.util.get_node_ip_address()
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=seconds)
    place = Place(host, store.port, uuid.uuid4().hex)
    store.set(_WORLD_SIZE, str(world_size))
    store.set(_NONCE, place.nonce)
    return store, place


def lead(store: TCPStore, name: str, world_size: int, deadline: Deadline) -> None:
    """Rank 0: waits for the others, and lets them go on if all may."""
    others = [_came(rank) for rank in range(1, world_size)]
    outcome: dict[str, Any] = {"members": {}}
    if _wait_for(others, store, deadline, _LateReport(name, world_size)):
        for rank in range(1, world_size):
            said = json.loads(store.get(_came(rank)))
            outcome["members"][str(rank)] = said.get("token")
            outcome.update({"refused": said["refused"]} if "refused" in said else {})
    else:
        outcome["missing"] = _absent(store, world_size)
    store.set(_OUTCOME, json.dumps(outcome))
    if "missing" in outcome or "refused" in outcome:
        _wait_until_heard(store, world_size)
    _raise_unless_met(outcome, name, 0, deadline)


def meet(
    notice: Notice | None,
    place: Place | None,
    name: str,
    rank: int,
    world_size: int,
    deadline: Deadline,
) -> TCPStore:
    """Another rank: goes to the place, or looks for it until the deadline. The store there."""
    lost: Place | None = None
    late = _LateReport(name, world_size)
    look_s, longest_s = _LOOKS_S
    while True:
        found = place if notice is None else notice.get()
        if found is not None and found != lost:
            try:
                store = _connected(found, deadline)
                late.end()
                _follow(store, name, rank, world_size, deadline)
                return store
            except (DistNetworkError, StoreTimeoutError) as error:
                if notice is None:
                    raise _refused(name, rank, f"rank 0 is gone: {error}") from error
            # That rank 0 is gone. Another may come in its place.
            lost = found
        if deadline.is_over():
            raise _missed(name, rank, [0], deadline)
        late.say_if_due([0])
        time.sleep(min(look_s, deadline.left() or look_s))
        look_s = min(look_s * 2, longest_s)


def refuse(place: Place, why: str) -> None:
    """Tells all ranks that they will not meet."""
    _refuse(_connected(place, Deadline(_CONNECTING_S)), why)


def _connected(place: Place, deadline: Deadline) -> TCPStore:
    """The store at that place."""
    limit = min(_CONNECTING_S, deadline.left() or _CONNECTING_S)
    store = TCPStore(place.host, place.port, timeout=limit)
    if not store.check([_NONCE]) or store.get(_NONCE).decode() != place.nonce:
        text = f"another store is at {place.host}:{place.port} now"
        error = DistNetworkError(text)
        error.message = text
        raise error
    store.set_timeout(deadline.seconds)
    return store


def _follow(store: TCPStore, name: str, rank: int, world_size: int, deadline: Deadline) -> None:
    """Says that this rank is there, and waits for how it ends."""
    others_size = int(store.get(_WORLD_SIZE))
    if others_size != world_size:
        why = f"rank {rank} was told of {world_size} ranks, and rank 0 of {others_size}"
        _refuse(store, why)
        raise _refused(name, rank, why)
    token = uuid.uuid4().hex
    store.set(_listens(rank), b"")
    store.set(_came(rank), json.dumps({"token": token}))
    try:
        store.wait([_OUTCOME], deadline.left())
    except StoreTimeoutError:
        # Where all others are there, it is rank 0 that does not answer.
        missing = _absent(store, world_size) or [0]
        why = f"rank {rank} waited {deadline.seconds:g} s, and has gone"
        store.set(_came(rank), json.dumps({"refused": why}))
        store.set(_heard(rank), b"")
        raise _missed(name, rank, missing, deadline) from None
    outcome = json.loads(store.get(_OUTCOME))
    store.set(_heard(rank), b"")
    _raise_unless_met(outcome, name, rank, deadline)
    if outcome["members"].get(str(rank)) != token:
        raise _refused(name, rank, f"another process came as rank {rank}")


def _refuse(store: TCPStore, why: str) -> None:
    """In the place of all others, so that rank 0 waits for none of them."""
    for rank in range(1, int(store.get(_WORLD_SIZE))):
        store.set(_came(rank), json.dumps({"refused": why}))


def _raise_unless_met(outcome: dict[str, Any], name: str, rank: int, deadline: Deadline) -> None:
    if "missing" in outcome:
        raise _missed(name, rank, outcome["missing"], deadline)
    if "refused" in outcome:
        raise _refused(name, rank, outcome["refused"])


def _wait_until_heard(store: TCPStore, world_size: int) -> None:
    """The store ends with rank 0, and those who came are to hear why."""
    listening = [rank for rank in range(1, world_size) if store.check([_listens(rank)])]
    try:
        store.wait([_heard(rank) for rank in listening], _HEARING_S)
    except StoreTimeoutError:
        # Some have died.
        pass


def _wait_for(keys: list[str], store: TCPStore, deadline: Deadline, late: _LateReport) -> bool:
    """Whether all are there in time; while they are not, it is said who is missing."""
    while True:
        limits = [limit for limit in (late.left(), deadline.left()) if limit]
        try:
            store.wait(keys, min(limits, default=0.0))
            late.end()
            return True
        except StoreTimeoutError:
            if deadline.is_over():
                return False
            late.say_if_due(_absent(store, len(keys) + 1))


def _absent(store: TCPStore, world_size: int) -> list[int]:
    """The ranks other than 0 that have not come."""
    return [rank for rank in range(1, world_size) if not store.check([_came(rank)])]


def _came(rank: int) -> str:
    return f"ray/came/{rank}"


def _listens(rank: int) -> str:
    return f"ray/listens/{rank}"


def _heard(rank: int) -> str:
    return f"ray/heard/{rank}"


def _refused(name: str, rank: int, why: str) -> RendezvousError:
    text = f"rank {rank} did not get into group '{name}': {why}"
    error = RendezvousError(text)
    error.message = text
    return error


def _missed(
    name: str, rank: int, missing: list[int], deadline: Deadline
) -> RendezvousTimeoutError:
    waited = f"rank {rank} waited {deadline.seconds:g} s for the others of group '{name}'"
    text = f"{waited}: {_ranks(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    error = RendezvousTimeoutError(text)
    error.message, error.missing_ranks = text, missing
    error.rank = missing[0] if missing else rank
    return error


def _ranks(ranks: list[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
