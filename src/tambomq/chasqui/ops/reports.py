"""Calls that store what a running handler reports: its job's progress and log lines.

A number from 0 to 100 is stored in decimal, as the engine's users know it. Any other value is
stored as JSON, so that readers in every language understand it; a number is JSON, too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tambomq.chasqui.job import check_whole
from tambomq.chasqui.keys import Keys, check_job_id
from tambomq.chasqui.ops.worker import as_text
from tambomq.errors import InvalidFormat, InvalidPayload, InvalidValue
from tambomq.store.call import Call

PROGRESS_TTL_S = 3600
"""The default, as for results."""
MAX_PROGRESS_BYTES = 8192
LOG_LINES = 1000
"""Lines that are kept of one job's log."""
MAX_LINE_BYTES = 4096
_CUT = " […]".encode()


def encode_progress(value: Any) -> bytes:
    """Return *value* as it is stored; raises `InvalidValue` or `InvalidPayload`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(check_whole("percent", value, 100)).encode()
    try:
        stored = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(value, error) from None
    if len(stored) > MAX_PROGRESS_BYTES:
        raise InvalidValue("progress", f"{len(stored)} bytes", f"≤ {MAX_PROGRESS_BYTES} of JSON")
    return stored


def decode_progress(stored: bytes | None) -> Any:
    """Return a stored progress; `None` if there is none, or if it is not JSON."""
    if stored is None or stored.isdigit():
        return None if stored is None else int(stored)
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return None


def progress(keys: Keys, job_id: str) -> Call[Any]:
    """Return a job's progress; `None` if its handler has not reported any."""
    key = keys.progress(check_job_id(job_id))
    return Call("GET", (key,), (), decode_progress, repeatable=True)


def set_progress(keys: Keys, id: str, stored: bytes, ttl_s: int | None = None) -> Call[Any]:
    """Store the progress of a job, as `encode_progress` returns it."""
    args = (stored, "EX", ttl_s or PROGRESS_TTL_S)
    return Call("SET", (keys.progress(id),), args, bool, repeatable=True)


def log_line(keys: Keys, id: str, line: str, ttl_s: int | None = None) -> tuple[Call[Any], ...]:
    """Append a line to a job's log, and keep the log for *ttl_s*; raises `InvalidFormat`.

    A line that is too long is cut, with a mark at its end.
    """
    if not isinstance(line, str):
        raise InvalidFormat("line", line, "text")
    stored = as_text(line)
    if len(stored) > MAX_LINE_BYTES:
        whole = stored[: MAX_LINE_BYTES - len(_CUT)].decode("utf-8", "ignore")
        stored = whole.encode() + _CUT
    args = ("MAXLEN", LOG_LINES, "*", "line", stored)
    expire = Call("EXPIRE", (keys.log(id),), (ttl_s or PROGRESS_TTL_S,), bool, repeatable=True)
    return Call("XADD", (keys.log(id),), args, bytes), expire
