"""Helpers for tests of leaders: start them, store their input, read what they leave on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar, cast

import msgspec
import pytest
import redis

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.leader import Leader
from tambomq.chasqui.leader.promoter import Promoter
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops.leader import LeaderConfig, LockReply, lead
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import (
    decode_envelope,
    encode_envelope,
    encode_member,
    read_entry,
)
from tambomq.chasqui.wire.repeat import encode_spec
from tambomq.clock import now_ms
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tests.servers.kinds import kinds

L = TypeVar("L", bound=Leader)

LONG_AGO = 1_000
HOLDER = "tambo-one"

on_each_server = pytest.mark.parametrize("each_server", kinds(), indirect=True)
"""Valkey always, the others with `make interop`."""


def envelope(id: str, payload: bytes = b"\x01") -> bytes:
    return encode_envelope(Envelope(id, payload, 1_800_000_000_000))


def member(id: str, name: str = "", dialect: str = "page") -> bytes:
    return encode_member(name, envelope(id), dialect)


def every(interval_ms: int = 60_000, key: str = "k", **fields: Any) -> RepeatSpec:
    return RepeatSpec(key, "tick", RepeatPattern.every(interval_ms), b"\x01", **fields)


def put_spec(db: redis.Redis, keys: Keys, body: RepeatSpec | bytes, at_ms: int, key: str) -> None:
    """Store a spec as a peer would, due at any time."""
    db.hset(keys.spec(key), "spec", body if isinstance(body, bytes) else encode_spec(body))
    db.zadd(keys.repeat, {key: at_ms})


def waiting(db: redis.Redis, keys: Keys) -> list[tuple[str, str]]:
    """Id and name of each job in the stream, in order."""
    found = []
    for fields in entries(db, keys.stream):
        body, name = read_entry([part for pair in fields.items() for part in pair])
        found.append((decode_envelope(body or b"").id, name))
    return found


def entries(db: redis.Redis, stream: str) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in rows(db, stream)]


def rows(db: redis.Redis, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Id and fields of each entry."""
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", db.xrange(stream))


def members(db: redis.Redis, keys: Keys) -> list[bytes]:
    """Return the delayed jobs, the first due first."""
    return cast("list[bytes]", db.zrange(keys.delayed, 0, -1))


def letters(db: redis.Redis, keys: Keys) -> list[tuple[bytes, str, str]]:
    """Body, reason and detail of each dead letter."""
    return [
        (fields[b"d"], fields[b"reason"].decode(), fields[b"detail"].decode())
        for fields in entries(db, keys.dlq)
    ]


def emitted_events(db: redis.Redis, keys: Keys) -> list[tuple[str, str]]:
    """Return name and job id of all events, the oldest first."""
    return [(row[b"e"].decode(), row[b"id"].decode()) for row in entries(db, keys.events)]


def fired(db: redis.Redis, keys: Keys, key: str = "k") -> int:
    return int(cast("bytes | None", db.hget(keys.spec(key), "fired")) or 0)


def calls_made(db: redis.Redis) -> int:
    """Calls that clients have made of the server, except those that ask for this."""
    stats = cast("dict[str, dict[str, int]]", db.info("commandstats"))
    ours = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_zrangebyscore", "cmdstat_zrange")
    return sum(stats[name]["calls"] for name in ours if name in stats)


@asynccontextmanager
async def promoter(url: str, keys: Keys, **config: Any) -> AsyncIterator[Promoter]:
    """A promoter that does nothing by itself: a test calls its `turn`."""
    store = AsyncStore(url)
    yield Promoter(store, LeaderConfig(keys, **{"holder": HOLDER, **config}))
    await store.close()


@asynccontextmanager
async def scheduler(
    url: str, keys: Keys, tick_ms: int = 1000, **config: Any
) -> AsyncIterator[Scheduler]:
    """A scheduler that does nothing by itself: a test calls its `turn`."""
    store = AsyncStore(url)
    yield Scheduler(store, LeaderConfig(keys, **{"holder": HOLDER, **config}), tick_ms)
    await store.close()


@asynccontextmanager
async def running(leader: L) -> AsyncIterator[L]:
    """Run *leader* inside the block, and close it in order."""
    task = asyncio.create_task(leader.run())
    try:
        yield leader
        leader.close()
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Clock:
    """Fakes the server's time, and the scheduler's own: that plus *ahead*."""

    def __init__(self, patch: pytest.MonkeyPatch, now: int | None = None, ahead: int = 0) -> None:
        self.now, self.ahead = now_ms() if now is None else now, ahead
        patch.setattr("tambomq.chasqui.leader.scheduler.now_ms", lambda: self.now + self.ahead)
        patch.setattr("tambomq.chasqui.ops.leader.lead", self._lead)

    def _lead(self, config: LeaderConfig, lock: str, _: int) -> Call[LockReply]:
        call = lead(config, lock)
        decode = call.decode
        return msgspec.structs.replace(
            call, decode=lambda reply: LockReply(decode(reply).leads, self.now)
        )
