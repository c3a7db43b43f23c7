"""Calls that store what a running handler reports: its job's progress and log lines."""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.job import check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.worker import as_text
from tambomq.errors import InvalidFormat
from tambomq.store.call import Call

PROGRESS_TTL_S = 3600
"""The default, as for results."""
LOG_LINES = 1000
"""Lines that are kept of one job's log, approximately."""


def set_progress(keys: Keys, id: str, percent: int, ttl_s: int | None = None) -> Call[Any]:
    """Store the progress of a job; raises `InvalidValue` unless *percent* is 0 to 100."""
    args = (check_whole("percent", percent, 100), "EX", ttl_s or PROGRESS_TTL_S)
    return Call("SET", (keys.progress(id),), args, bool, repeatable=True)


def log_line(keys: Keys, id: str, line: str, ttl_s: int | None = None) -> tuple[Call[Any], ...]:
    """Append a line to a job's log, and keep the log for *ttl_s*; raises `InvalidFormat`."""
    if not isinstance(line, str):
        raise InvalidFormat("line", line, "text")
    args = ("MAXLEN", "~", LOG_LINES, "*", "line", as_text(line))
    expire = Call("EXPIRE", (keys.log(id),), (ttl_s or PROGRESS_TTL_S,), bool, repeatable=True)
    return Call("XADD", (keys.log(id),), args, bytes), expire
