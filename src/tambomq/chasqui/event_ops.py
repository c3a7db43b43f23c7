"""What those who listen ask of Redis, as calls nobody has made yet."""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire_records import read_event
from tambomq.store.call import Call


def last_id(keys: Keys) -> Call[str]:
    """Return the place of the last event: what comes later is new."""
    args = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.events,), args, _last, repeatable=True)


def read(keys: Keys, after: str, count: int, block_ms: int) -> Call[list[QueueEvent]]:
    """Return events later than *after*; waits for the first up to *block_ms*."""
    verb = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS")
    return Call(verb, (keys.events,), (after,), _events, repeatable=True)


def _last(reply: list[Any]) -> str:
    return reply[0][0].decode() if reply else "0-0"


def _events(reply: Any) -> list[QueueEvent]:
    return [read_event(id, fields) for id, fields in reply[0][1]] if reply else []
