"""The state of the Redis server: its clock, its memory, and how fast it answers."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tambomq.alarms.model import Alarm
from tambomq.alarms.ops import read_alarms
from tambomq.console.model import RedisStatus
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call


class ServerState(msgspec.Struct, frozen=True):
    """The server at one moment."""

    now_ms: int
    """By its own clock."""
    status: RedisStatus
    read_at_s: float = 0.0
    """By the monotonic clock of this process."""

    def clock_ms(self) -> int:
        """Return what the server's clock shows by now."""
        return self.now_ms + round((time.monotonic() - self.read_at_s) * 1000)


async def read_server(store: AsyncStore) -> ServerState:
    """Return the state of the server. Raises `StoreError`."""
    read_at_s, began = time.monotonic(), time.perf_counter()
    clock, memory, server, alarms = await store.outcomes(
        (
            Call("TIME", (), (), _milliseconds, repeatable=True),
            Call("INFO", (), ("memory",), _fields, repeatable=True),
            Call("INFO", (), ("server",), _fields, repeatable=True),
            read_alarms(),
        )
    )
    latency_ms = (time.perf_counter() - began) * 1000
    if isinstance(clock, TamboError):
        raise clock
    for outcome in (memory, server, alarms):
        if isinstance(outcome, StoreUnavailable):
            raise outcome
    # An ACL may forbid INFO: the queues can be read all the same.
    info: dict[str, str] = {}
    for outcome in (memory, server):
        info |= {} if isinstance(outcome, TamboError) else outcome
    status = RedisStatus(
        ok=True,
        url=str(store.endpoint),
        version=version_of(info),
        latency_ms=latency_ms,
        memory_bytes=_whole(info.get("used_memory")),
        max_memory_bytes=_whole(info.get("maxmemory")),
        policy=info.get("maxmemory_policy", ""),
        alarms=[] if isinstance(alarms, TamboError) else [_sentence(each) for each in alarms],
    )
    return ServerState(clock, status, read_at_s)


def version_of(info: dict[str, str]) -> str:
    """Return name and version of the server: ``Valkey 9.1.2``, ``Redis 8.6.0``."""
    if version := info.get("valkey_version"):
        return f"Valkey {version}"
    return f"Redis {info['redis_version']}" if "redis_version" in info else ""


def _sentence(alarm: Alarm) -> str:
    return f"{alarm.text}. Producers are stopped: {alarm.advice}"


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _fields(reply: Any) -> dict[str, str]:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
