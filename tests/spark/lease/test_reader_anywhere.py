"""Wherever drivers die, each message is delivered once: for all protocols alike."""

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
from tambomq.chasqui.lease_ops import Group
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.gomq.model import Options
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.lease import Leased
from tambomq.spark.leased import LeasedReader, Limits
from tambomq.spark.leased_chasqui import LeasedJobs
from tambomq.spark.leased_gomq import LeasedKey
from tambomq.spark.leased_rsmq import LeasedMessages
from tests.servers import Server
from tests.spark.fake_spark import Checkpoint, Died, Life, MortalPlace, die, run_until_empty


@dataclass(frozen=True)
class Kind:
    """A protocol: how to fill its queue ``q``, and what is left there."""

    source: Leased
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
    who = gomq_keys.lessee("l")
    lists = db.llen(gomq_keys.queue("q")) + db.llen(gomq_keys.messages("q", who, who))
    return int(lists + db.exists(gomq_keys.handed(who, who)))


KINDS = {
    "rsmq": Kind(
        LeasedMessages(RsmqKeys()),
        RsmqKeys().ledger("q", "l"),
        _fill_rsmq,
        lambda db: db.zcard(RsmqKeys().messages("q")),
    ),
    "chasqui": Kind(
        LeasedJobs(Group()),
        ChasquiKeys("q").ledger("l"),
        _fill_chasqui,
        lambda db: db.xlen(ChasquiKeys("q").stream),
    ),
    "gomq": Kind(LeasedKey(Options()), gomq_keys.ledger("q", "l"), _fill_gomq, _left_in_gomq),
}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lives=st.lists(st.tuples(st.integers(1, 45), st.booleans()), max_size=6),
    messages=st.integers(0, 25),
    most=st.integers(1, 12),
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_wherever_drivers_die_each_message_is_delivered_once(
    server: Server,
    db: redis.Redis,
    kind: Kind,
    lives: list[tuple[int, bool]],
    messages: int,
    most: int,
) -> None:
    db.flushall()
    sent = kind.fill(server.url, messages)
    checkpoint = Checkpoint()
    for steps, does_the_last in [*lives, (1_000_000, True)]:
        life = Life(steps, does_the_last)
        place: Any = MortalPlace(server.url, life)
        reader = LeasedReader(kind.source, place, "q", "l", Limits(lease_s=3600))
        try:
            run_until_empty(reader, checkpoint, life, most)
        except Died:
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
