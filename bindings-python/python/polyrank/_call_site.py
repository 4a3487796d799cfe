"""Where the program stands, and which lines have called, for those who ask why a job hangs. Knows
nothing of who asks.

It is imported with the package, as `_log` is.
"""

import os
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from types import FrameType

from polyrank import _core

__all__: list[str] = []

_MAX_FRAMES = 32

_ELSEWHERE = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (os.path.dirname(__file__), os.path.dirname(os.__file__))
)

# What `_own_path` has found: as many as the program has files. By hand, as checkers of stubs take a
# function that is cached for one of any arguments.
_own_paths: dict[str, str | None] = {}


def call_site() -> str | None:
    """The innermost line of the program that runs: `train.py:88 in step`. That of the main thread,
    unless that waits for others.
    """
    frames: dict[int, FrameType] = getattr(sys, "_current_frames")()
    frames.pop(threading.get_ident(), None)
    main = frames.pop(threading.main_thread().ident or 0, None)
    waits = main is not None and main.f_code.co_filename == threading.__file__
    others = list(frames.values())
    for frame in [*others, main] if waits else [main, *others]:
        site = site_of(frame)
        if site is not None:
            return site
    return None


def call_frames() -> list[tuple[str, str, int]]:
    """The lines of the program that have led here, the innermost first: function, file, line."""
    try:
        first: FrameType = getattr(sys, "_getframe")(1)
    except ValueError:
        # A thread that Python has not started.
        return []
    own = islice(_own(first), _MAX_FRAMES)
    return [(frame.f_code.co_name, path, frame.f_lineno) for frame, path in own]


def site_of(frame: FrameType | None) -> str | None:
    """The innermost line of the program in this thread, if it has one."""
    for own, path in _own(frame):
        shown = path.removeprefix(os.path.join(os.getcwd(), ""))
        return f"{shown}:{own.f_lineno} in {own.f_code.co_name}"
    return None


def _own(frame: FrameType | None) -> Iterator[tuple[FrameType, str]]:
    """The frames of the program, from this one outwards, with their files."""
    while frame is not None:
        path = _own_path(frame.f_code.co_filename)
        if path is not None:
            yield frame, path
        frame = frame.f_back


def _own_path(name: str) -> str | None:
    """Where a file of the program is; none if it is polyrank's, or Python's own."""
    if name not in _own_paths:
        _own_paths[name] = _found(name)
    return _own_paths[name]


def _found(name: str) -> str | None:
    """What `_own_path` remembers of a file: its links are followed once."""
    path = os.path.realpath(name)
    if _is_elsewhere(name, path):
        return None
    return path if os.path.exists(path) else name


def _is_elsewhere(name: str, path: str) -> bool:
    """Whether a file is polyrank's, or Python's own."""
    is_installed = "site-packages" in path and not path.startswith(_ELSEWHERE[0])
    return name.startswith("<frozen") or (path.startswith(_ELSEWHERE) and not is_installed)


getattr(_core, "_set_call_site_sources")(call_site, call_frames)
