"""The audit log: a bounded stream in Redis, and a line in the process's log for each entry."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import msgspec

from tambomq.console.actions.model import AuditEntry
from tambomq.console.http.keys import AUDIT, ENTRY
from tambomq.console.http.login.limit import TokenBucket
from tambomq.errors import TamboError
from tambomq.log import mask_url
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

MAX_ENTRIES: Final = 10_000
"""Entries that are kept in Redis, about: whole nodes of the stream are trimmed."""
MAX_REFUSALS: Final = 60
"""Refused requests that are recorded at once; then one more a second.

Without it, a caller without rights could push everything else out of the log.
"""
_MAX_TEXT: Final = 500

_log = logging.getLogger(__name__)


class RedisAuditLog:
    """The audit log in Redis."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._refusals = TokenBucket(MAX_REFUSALS, 1.0, MAX_REFUSALS, time.monotonic())

    async def record(self, entry: AuditEntry) -> None:
        """Log *entry*, and add it to the stream; if Redis does not take it, only log it."""
        if entry.outcome == "refused":
            now_s = time.monotonic()
            if self._refusals.wait_s(now_s):
                return
            self._refusals.take(now_s)
        entry = _cut(entry)
        write_log(entry)
        try:
            await self._store.run(_add(entry))
        except TamboError as error:
            _log.warning("the audit log in Redis does not have this entry: %s", error)

    async def entries(self, limit: int) -> list[AuditEntry]:
        """Return the latest *limit* entries, newest first. Raises `StoreError`."""
        return await self._store.run(_latest(limit))


def write_log(entry: AuditEntry) -> None:
    """Write *entry* as a line of the process's log, which escapes what could forge a line."""
    # The fields of AuditEntry, under names that no record has.
    fields = {f"audit_{name}": value for name, value in msgspec.structs.asdict(entry).items()}
    _log.info(
        "console: %s (%s, %s) %s %s: %s%s",
        entry.user,
        entry.role,
        entry.address,
        entry.verb,
        entry.target,
        entry.outcome,
        f": {entry.detail}" if entry.detail else "",
        extra=fields,
    )


def _add(entry: AuditEntry) -> Call[bytes]:
    args = ("MAXLEN", "~", MAX_ENTRIES, "*", ENTRY, msgspec.json.encode(entry))
    return Call("XADD", (AUDIT,), args, bytes)


def _latest(limit: int) -> Call[list[AuditEntry]]:
    return Call("XREVRANGE", (AUDIT,), ("+", "-", "COUNT", limit), _decode, repeatable=True)


def _decode(reply: Any) -> list[AuditEntry]:
    found = (_entry(dict(zip(fields[::2], fields[1::2], strict=False))) for _, fields in reply)
    return [each for each in found if each is not None]


def _entry(fields: dict[bytes, bytes]) -> AuditEntry | None:
    try:
        return msgspec.json.decode(fields.get(ENTRY.encode(), b""), type=AuditEntry)
    except msgspec.DecodeError:
        # Written by another version, or by hand.
        return None


def _cut(entry: AuditEntry) -> AuditEntry:
    """Shorten texts that came from a caller or a queue, and make them fit for JSON."""
    return msgspec.structs.replace(entry, target=_text(entry.target), detail=_text(entry.detail))


def _text(text: str) -> str:
    shown = mask_url(text.encode("utf-8", "backslashreplace").decode())
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"
