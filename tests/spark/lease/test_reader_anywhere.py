"""Drivers that crash at any step: each message is delivered once, in all protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.formats.chasqui.leased import LeasedJobs
from tambomq.spark.formats.gomq.leased import LeasedKey
from tambomq.spark.formats.rsmq.leased import LeasedMessages
from tambomq.spark.lease.leased_source import LeasedSource
from tambomq.spark.lease.reader import LeasedReader, LeaseOptions
from tests.servers import Server
from tests.spark.fake_spark import (
    Checkpoint,
    CrashingTarget,
    DriverCrash,
    StepsUntilCrash,
    die,
    run_until_empty,
)


@dataclass(frozen=True)
class ProtocolCase:
    """A protocol: how to fill its queue ``q``, and what is left there."""

    source: LeasedSource
    ledger: str
    fill: Callable[[str, int], Sequence[str]]
    left: Callable[[Any], int]


def _fill_rsmq(url: str, count: int) -> Sequence[str]:
    with Rsmq(url) as client:
        client.create_queue("q")
        return client.send_messages("q", [b"%d" % number for number in range(count)])


def _fill_chasqui(url: str, count: int) -> Sequence[str]:
    with BlockingQueue("q", redis_url=url) as queue:
        jobs = [{"name": "n", "data": number} for number in range(count)]
        return [job.id for job in queue.add_bulk(jobs)]


def _fill_gomq(url: str, count: int) -> Sequence[str]:
    ids = [f"{number:020}" for number in range(count)]
    with redis.Redis.from_url(url) as db:
        for id in ids:
            db.rpush(gomq_keys.queue("q"), wire.encode(id, "", b"x"))
    return ids


def _left_in_gomq(db: Any) -> int:
    lessee = gomq_keys.lessee("l")
    lists = db.llen(gomq_keys.queue("q")) + db.llen(gomq_keys.messages("q", lessee, lessee))
    return int(lists + db.exists(gomq_keys.handed(lessee, lessee)))


KINDS = {
    "rsmq": ProtocolCase(
        LeasedMessages(RsmqKeys()),
        RsmqKeys().ledger("q", "l"),
        _fill_rsmq,
        lambda db: db.zcard(RsmqKeys().messages("q")),
    ),
    "chasqui": ProtocolCase(
        LeasedJobs(),
        ChasquiKeys("q").ledger("l"),
        _fill_chasqui,
        lambda db: db.xlen(ChasquiKeys("q").stream),
    ),
    "gomq": ProtocolCase(LeasedKey(), gomq_keys.ledger("q", "l"), _fill_gomq, _left_in_gomq),
}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lifetimes=st.lists(st.tuples(st.integers(1, 45), st.booleans()), max_size=6),
    messages=st.integers(0, 25),
    max_count=st.integers(1, 12),
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_wherever_drivers_die_each_message_is_delivered_once(
    server: Server,
    db: redis.Redis,
    kind: ProtocolCase,
    lifetimes: list[tuple[int, bool]],
    messages: int,
    max_count: int,
) -> None:
    db.flushall()
    sent = kind.fill(server.url, messages)
    checkpoint = Checkpoint()
    for steps, does_the_last in [*lifetimes, (1_000_000, True)]:
        crash = StepsUntilCrash(steps, does_the_last)
        redis_target: Any = CrashingTarget(server.url, crash)
        reader = LeasedReader(kind.source, redis_target, "q", "l", LeaseOptions(lease_s=3600))
        try:
            run_until_empty(reader, checkpoint, crash, max_count)
        except DriverCrash:
            pass
        finally:
            die(reader)
        db.hset(kind.ledger, "until", 1)
        known = Counter(row["id"] for row in checkpoint.rows)
        assert set(known) <= set(sent)
        assert set(known.values()) <= {1}
        assert len(known) + kind.left(db) >= len(sent) or kind.left(db)
    assert sorted(row["id"] for row in checkpoint.rows) == sorted(sent)
    assert kind.left(db) == 0
