"""Read-only calls about a job's queue: its group, limiter, leader, and the jobs ahead of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tambomq.chasqui.keys import GROUP, Keys
from tambomq.store.call import Call, Plan, load_script, results

MAX_AHEAD: Final = 5_000
"""Jobs that are counted before another one."""

_AHEAD = load_script("tambomq.chasqui.bulk", "ahead")


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer of the group."""

    name: str
    pending: int
    idle_ms: int


class LimiterState(msgspec.Struct, frozen=True):
    """The window of the rate limiter."""

    started: int
    ends_ms: int


def consumers(keys: Keys, group: str = GROUP) -> Call[list[ConsumerInfo]]:
    """Return the consumers of the group; the error is NOGROUP or NOKEY if there is none."""
    verb = ("XINFO", "CONSUMERS")
    return Call(verb, (keys.stream,), (group,), _consumers, repeatable=True)


def last_delivered(keys: Keys, group: str = GROUP) -> Call[str | None]:
    """Return the last entry that the group has delivered; `None` if there is no such group."""

    def decode(rows: list[Any]) -> str | None:
        groups = [_fields(row) for row in rows]
        found = next((each for each in groups if each.get(b"name") == group.encode()), None)
        return None if found is None else found[b"last-delivered-id"].decode()

    return Call(("XINFO", "GROUPS"), (keys.stream,), (), decode, repeatable=True)


def is_paused(keys: Keys) -> Call[bool]:
    """Whether the queue is paused."""
    return Call("EXISTS", (keys.paused,), (), bool, repeatable=True)


def promoter(keys: Keys) -> Call[str]:
    """Return the process that promotes delayed jobs; '' if there is none."""
    return Call("GET", (keys.promoter_lock,), (), _text, repeatable=True)


def limiter(keys: Keys) -> Call[LimiterState | None]:
    """Return the limiter's window; `None` if no job has started in one of late."""

    def decode(reply: list[bytes | None]) -> LimiterState | None:
        started, ends = (int(value) if value and value.isdigit() else None for value in reply)
        return None if started is None or ends is None else LimiterState(started, ends)

    return Call("HMGET", (keys.limiter,), ("started", "ends"), decode, repeatable=True)


def result_size(keys: Keys, id: str) -> Call[int]:
    """Return the size of a job's result; 0 if there is none."""
    return Call("STRLEN", (keys.result(id),), (), int, repeatable=True)


def result_head(keys: Keys, id: str, size: int) -> Call[bytes]:
    """Return the first bytes of a job's result; none if there is none."""
    return Call("GETRANGE", (keys.result(id),), (0, size - 1), bytes, repeatable=True)


def count_ahead(keys: Keys, after: str, before: str) -> Plan[tuple[int, bool]]:
    """Return how many entries are between two others, and whether that is all of them.

    More than about `MAX_AHEAD` are not counted.
    """
    counted = 0
    while counted < MAX_AHEAD:
        call = Call(_AHEAD, (keys.stream,), (after, before), list, repeatable=True)
        some, last = results((yield (call,)))[0]
        counted += some
        if not last:
            return counted, True
        after = last.decode()
    return counted, False


def _consumers(rows: list[Any]) -> list[ConsumerInfo]:
    found = [_fields(row) for row in rows]
    return [
        ConsumerInfo(each[b"name"].decode("utf-8", "replace"), each[b"pending"], each[b"idle"])
        for each in found
    ]


def _fields(row: list[Any]) -> dict[bytes, Any]:
    return dict(zip(row[::2], row[1::2], strict=False))


def _text(reply: bytes | None) -> str:
    return (reply or b"").decode("utf-8", "replace")
