"""Redis operations of alarms: raise, clear and read them, and measure memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tambomq.alarms.keys import ALARMS
from tambomq.alarms.model import Alarm
from tambomq.store.call import Call, load_script

_RAISE = load_script("tambomq.alarms", "raise_alarms")
_READ = load_script("tambomq.alarms", "read_alarms")


class MemoryReport(msgspec.Struct, frozen=True):
    """The memory of a server, as INFO reports it."""

    used: int
    """Bytes, as the server compares them with its limit."""
    limit: int
    """``maxmemory``; 0 is none."""
    policy: str
    """``maxmemory-policy``; empty if the server does not say."""


def raise_alarms(source: str, alarms: Sequence[Alarm], ttl_ms: int) -> Call[None]:
    """Publish the alarms of *source* for *ttl_ms*, in place of those it has published before.

    An empty sequence clears them. This works also when the server's memory is full.
    """
    text = msgspec.json.encode(alarms) if alarms else b""
    return Call(_RAISE, (ALARMS,), (source, ttl_ms, text), lambda _: None, repeatable=True)


def read_alarms() -> Call[tuple[Alarm, ...]]:
    """Return the alarms that processes have published and that still hold."""
    return Call(_READ, (ALARMS,), (), _alarms, repeatable=True)


def memory() -> Call[MemoryReport]:
    """Return how much memory the server uses, and its limit."""
    return Call("INFO", ("memory",), (), _memory, repeatable=True)


def _alarms(reply: list[bytes]) -> tuple[Alarm, ...]:
    found: dict[tuple[str, str], Alarm] = {}
    for text in reply:
        # Another version may write kinds that this one does not know.
        try:
            alarms = msgspec.json.decode(text, type=tuple[Alarm, ...])
        except msgspec.MsgspecError:
            continue
        found |= {(each.kind, each.subject): each for each in alarms}
    return tuple(found.values())


def _memory(reply: Any) -> MemoryReport:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    fields = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    # Buffers of replicas and of the append-only file do not count towards the limit.
    used = _number(fields, "used_memory") - _number(fields, "mem_not_counted_for_evict")
    policy = fields.get("maxmemory_policy", "")
    return MemoryReport(max(0, used), _number(fields, "maxmemory"), policy)


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdigit() else 0
