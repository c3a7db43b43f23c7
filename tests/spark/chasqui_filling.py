"""Jobs for tables to show, and tables read as Spark's workers do it, without Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any, cast

import redis

from tambomq.chasqui.job import Envelope, RetryOverride
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.chasqui.wire.repeat import encode_spec
from tambomq.spark.core.table import ColumnBounds, Table
from tambomq.store.sync import Store

NOW = 1_800_000_000_000
KEYS = Keys("mail")


def envelope(id: str = "a", attempt: int = 0, retry: RetryOverride | None = None) -> bytes:
    """A job as it is stored."""
    return encode_envelope(Envelope(id, b"\x01", NOW, attempt, retry))


def put(db: redis.Redis, count: int, *, every_ms: int = 1, first: int = NOW) -> None:
    """Add jobs whose ids are numbers."""
    with db.pipeline(transaction=False) as pipe:
        for place in range(count):
            fields: Any = {"d": envelope(str(place)), "n": f"kind-{place % 2}"}
            pipe.xadd(KEYS.stream, fields, id=f"{first + place * every_ms}-0")
        pipe.execute()


def fill(db: redis.Redis, keys: Keys = KEYS) -> None:
    """Put one row into each table."""
    db.xadd(keys.stream, {"d": envelope()})
    db.xgroup_create(keys.stream, GROUP, "0")
    db.xreadgroup(GROUP, "ada", {keys.stream: ">"})
    db.xadd(keys.dlq, {"d": envelope(), "source_id": "1-0", "reason": "x"})
    db.xadd(keys.events, {"e": "active", "id": "a", "ts": NOW})
    db.zadd(keys.delayed, {encode_member("n", envelope(), "page"): NOW})
    recur(db, RepeatSpec("k", "n", RepeatPattern.every(5), b""), keys)
    db.set(keys.result("a"), b"\x01")


def recur(db: redis.Redis, spec: RepeatSpec, keys: Keys = KEYS) -> None:
    """Store a repeatable spec."""
    db.zadd(keys.repeat, {spec.key: NOW})
    fields: Any = {"spec": encode_spec(spec), "fired": 3}
    db.hset(keys.spec(spec.key), mapping=fields)


def dump(db: redis.Redis) -> dict[Any, Any]:
    """All that a server holds."""
    found = cast("list[bytes]", db.keys("*"))
    return {key: db.dump(key) for key in found}


def rows(
    table: Table,
    store: Store,
    bounds: ColumnBounds | None = None,
    pieces: int = 4,
    queue: str = "mail",
) -> list[dict[str, Any]]:
    """All rows, as one worker after the other reads them."""
    asked = bounds or ColumnBounds()
    # A table travels to its workers.
    there: Table = pickle.loads(pickle.dumps(table))  # noqa: S301  (it is ours)
    return [
        row
        for part in table.cut(store, queue, asked, pieces)
        for batch in there.read(store, part, asked)
        for row in batch.to_pylist()
    ]


def at(ms: int) -> datetime:
    """A moment, as Arrow gives it."""
    return datetime.fromtimestamp(ms / 1000, UTC)
