"""Dead letters with known contents, and readers of a queue, for tests of redrives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload

JOBS = Keys("orders")


def add_dead_letters(
    db: redis.Redis,
    count: int,
    *,
    name: str = "email",
    reason: str = "retries_exhausted",
    first: int = 0,
    attempt: int = 3,
) -> list[dict[bytes, bytes]]:
    """Add dead letters as a worker would; return their fields."""
    letters_before = []
    pipe = db.pipeline(transaction=False)
    for n in range(first, first + count):
        body = encode_envelope(Envelope(f"job-{n}", encode_payload({"n": n}), 1000 + n, attempt))
        fields: dict[Any, Any] = {
            b"d": body,
            b"n": name.encode(),
            b"source_id": b"%d-0" % (n + 1),
            b"reason": reason.encode(),
            b"detail": b"ValueError: order %d of 'shop' failed" % n,
        }
        pipe.xadd(JOBS.dlq, fields)
        letters_before.append(fields)
    pipe.execute()
    return letters_before


def dead(db: redis.Redis) -> list[dict[bytes, bytes]]:
    """Return the dead letters, the oldest first."""
    rows: Any = db.xrange(JOBS.dlq)
    return [fields for _, fields in rows]


def waiting(db: redis.Redis) -> list[tuple[str, Any, int]]:
    """Return id, data and attempts of the jobs in the stream, in their order."""
    rows: Any = db.xrange(JOBS.stream)
    jobs = [decode_envelope(fields[b"d"]) for _, fields in rows]
    return [(job.id, decode_payload(job.payload), job.attempt) for job in jobs]


def ids(letters: Iterable[dict[bytes, bytes]]) -> list[str]:
    """Return the ids of the jobs that *letters* are of."""
    return [decode_envelope(each[b"d"]).id for each in letters]
