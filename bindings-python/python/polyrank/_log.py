"""Hands what the core logs to the `logging` module. Knows nothing of what is logged.

It is imported with the package: lines arrive by a thread, and a child that is forked while that
thread imports would have half a module.
"""

import logging

from polyrank import _core

__all__: list[str] = []

TRACE = 5
"""The level of single operations, below `logging.DEBUG`."""


def take(
    what: tuple[str, int, str],
    facts: tuple[float, int | None, str | None],
    of: tuple[str | None, int | None, str | None],
) -> bool:
    """Handles a record: its logger, level and message; the time; and as attributes of the record
    the rank and group of which it is, and the operation, with its number and its user's name for
    it. False if there is no handler: it goes to standard error then.
    """
    (target, level, message), (created, rank, group) = what, facts
    logger = logging.getLogger(target.replace("::", "."))
    if not logger.isEnabledFor(level):
        return True
    if not logger.hasHandlers():
        return False
    operation, sequence, comm_name = of
    extra = {
        "rank": rank,
        "group": group,
        "operation": operation,
        "sequence": sequence,
        "comm_name": comm_name,
    }
    record = logger.makeRecord(logger.name, level, "polyrank", 0, message, (), None, extra=extra)
    record.created, record.msecs = created, created % 1 * 1000
    logger.handle(record)
    return True


def _prepare() -> None:
    if logging.getLevelName(TRACE) == f"Level {TRACE}":
        logging.addLevelName(TRACE, "TRACE")
    if getattr(_core, "_is_log_set")():
        # The environment says what is wanted, and the core leaves out the rest.
        logging.getLogger("polyrank").setLevel(TRACE)
    getattr(_core, "_set_log_reader")(take)


_prepare()
