"""Where the program stands, for those who ask why a job hangs. Knows nothing of who asks.

It is imported with the package, as `_log` is.
"""

import os
import sys
import threading
from types import FrameType

from polyrank import _core

__all__: list[str] = []

_ELSEWHERE = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (os.path.dirname(__file__), os.path.dirname(os.__file__))
)


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
        site = _of(frame)
        if site is not None:
            return site
    return None


def _of(frame: FrameType | None) -> str | None:
    """The innermost line of the program in this thread, if it has one."""
    while frame is not None:
        code = frame.f_code
        path = os.path.realpath(code.co_filename)
        if not _is_elsewhere(code.co_filename, path):
            shown = path if os.path.exists(path) else code.co_filename
            shown = shown.removeprefix(os.path.join(os.getcwd(), ""))
            return f"{shown}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return None


def _is_elsewhere(name: str, path: str) -> bool:
    """Whether a file is polyrank's, or Python's own."""
    is_installed = "site-packages" in path and not path.startswith(_ELSEWHERE[0])
    return name.startswith("<frozen") or (path.startswith(_ELSEWHERE) and not is_installed)


getattr(_core, "_set_call_site_source")(call_site)
