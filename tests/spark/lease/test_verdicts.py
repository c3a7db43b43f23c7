"""Verdicts about rows of a leased stream, written down without Spark."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pyspark.sql import Row
from pyspark.sql.streaming.datasource import ReadMaxRows

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.bulk.lease import ChasquiLeaseOps
from tambomq.errors import InvalidValue, LeaseLost, QueueError, SettingsError
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.formats.rsmq.leased import LeasedMessages
from tambomq.spark.lease import verdicts
from tambomq.spark.lease.reader import LeasedReader, LeaseOptions
from tambomq.store.sync import Store
from tests.servers import Server
from tests.spark.fake_spark import read

KEYS = Keys()
LEASE_OPS = RsmqLeaseOps(KEYS)
START = {"claim": 0, "mark": ""}


def row(word: str | None, delay_ms: int | None = None, reason: str | None = None) -> Row:
    return Row(queue="q", claim="1.m.one", id="x", verdict=word, delay_ms=delay_ms, reason=reason)


def test_verdicts_are_spelled_as_the_ledger_has_them() -> None:
    assert verdicts._encode(row("done", 5, "why")) == ""
    assert verdicts._encode(row("retry")) == "r0"
    assert verdicts._encode(row("retry", 1500)) == "r1500"
    assert (
        verdicts._encode(row("retry", 0, "no route " + "x" * 5000)) == "r0 no route " + "x" * 3991
    )
    assert verdicts._encode(row("dead")) == "d"
    assert verdicts._encode(row("dead", reason="x" * 5000)) == "d" + "x" * 4000


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (row("again"), "verdict must be one of done, retry, dead, not 'again'"),
        (row(None), "not None"),
        (row("retry", -1), "delay_ms must be from 0 to"),
        (row("retry", 10**13), "delay_ms must be from 0 to"),
    ],
    ids=["no verdict", "none at all", "the past", "beyond all time"],
)
def test_an_invalid_verdict_is_refused(bad: Row, fault: str) -> None:
    with pytest.raises(InvalidValue, match=fault):
        verdicts._encode(bad)


def test_verdicts_of_a_claim_are_written_down_and_late_ones_refused(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ids = rsmq.send_messages("q", [b"a"] * 1200)
    request = LeaseRequest("q", "l", "one")
    store = Store(server.url)
    store.run(LEASE_OPS.attach(request))
    store.follow(LEASE_OPS.claim(request, 1, "m", 1200))
    writer = verdicts.VerdictWriter(RedisTarget(server.url), "rsmq", "l", "rsmq")
    rows = [
        Row(queue="q", claim="1.m.one", id=id, verdict="dead", delay_ms=None, reason=None)
        for id in ids
    ]
    assert list(verdicts._write(writer, rows)) == [1200]
    assert db.hlen(KEYS.verdicts("q", "l")) == 1200
    assert store.follow(LEASE_OPS.acknowledge(request, 1, "m")).dead == 1200
    store.close()
    with pytest.raises(QueueError, match="its verdicts come too late"):
        list(verdicts._write(writer, rows))


def test_the_reason_of_a_retry_is_kept_if_the_protocol_stores_it(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    (id,) = rsmq.send_messages("q", [b"a"])
    request = LeaseRequest("q", "l", "one")
    store = Store(server.url)
    store.run(LEASE_OPS.attach(request))
    store.follow(LEASE_OPS.claim(request, 1, "m", 1))
    writer = verdicts.VerdictWriter(RedisTarget(server.url), "rsmq", "l", "rsmq")
    judged = Row(queue="q", claim="1.m.one", id=id, verdict="retry", delay_ms=0, reason="no route")
    assert list(verdicts._write(writer, [judged])) == [1]
    assert store.follow(LEASE_OPS.acknowledge(request, 1, "m")).retried == 1
    store.close()
    assert rsmq.receive_message("q") is not None


def test_a_job_that_has_run_often_enough_is_not_retried(server: Server) -> None:
    with BlockingQueue("q", redis_url=server.url) as queue:
        queue.add("n", 1)
        request, store = LeaseRequest("q", "l", "one"), Store(server.url)
        store.run(ChasquiLeaseOps().attach(request))
        store.follow(ChasquiLeaseOps().claim(request, 1, "m", 1))
        (member,) = store.run(ChasquiLeaseOps().members(request, 0, 1))
        writer = verdicts.VerdictWriter(RedisTarget(server.url), "chasqui", "l", "", max_attempts=1)
        judged = Row(
            queue="q",
            claim="1.m.one",
            id=member.entry,
            verdict="retry",
            delay_ms=5,
            reason="no route",
        )
        assert list(verdicts._write(writer, [judged])) == [1]
        assert store.follow(ChasquiLeaseOps().acknowledge(request, 1, "m")).dead == 1
        store.close()
        (letter,) = queue.peek_dlq()
    assert (letter.reason, letter.detail) == ("retries_exhausted", "no route")


# ── crashes and replaced queries ─────────────────────────────────────────────


def reader(server: Server) -> LeasedReader:
    """A query on queue ``q``."""
    target = RedisTarget(server.url)
    return LeasedReader(LeasedMessages(KEYS), target, "q", "l", LeaseOptions(lease_s=3600))


def judge(server: Server, rows: list[dict[str, Any]], verdict: str) -> None:
    """Write *verdict* on *rows*, as a task of `settle` does."""
    writer = verdicts.VerdictWriter(RedisTarget(server.url), "rsmq", "l", "rsmq")
    judged = [Row(**each, verdict=verdict, delay_ms=None, reason=None) for each in rows]
    assert list(verdicts._write(writer, judged)) == [len(rows)]


def test_a_replaced_query_cannot_write_verdicts(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    rsmq.send_message("q", b"a")
    zombie, heir = reader(server), reader(server)
    end = zombie.latestOffset(zombie.initialOffset(), ReadMaxRows(1))
    rows = read(zombie, START, end)
    db.hset(KEYS.ledger("q", "l"), "until", 1)
    assert len(read(heir, START, end)) == 1
    with pytest.raises(LeaseLost, match=r"is lost: process \d+ on .* has it now"):
        judge(server, rows, "dead")
    heir.commit(end)
    for each in (zombie, heir):
        each.stop()
    assert rsmq.peek_messages("q") == []
    assert "q-dead" not in rsmq.list_queues()


def test_a_batch_that_is_run_again_starts_without_verdicts(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("q")
    rsmq.send_messages("q", [b"a", b"b"])
    first = reader(server)
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(2))
    judge(server, read(first, START, end), "dead")
    first.stop()
    again = reader(server)
    # This time the first row is done; as in most queries, only the others are settled.
    _, dead = read(again, START, end)
    judge(server, [dead], "dead")
    again.partitions(START, end)
    again.commit(end)
    again.stop()
    assert [message.id for message in rsmq.peek_messages("q-dead", 9)] == [dead["id"]]
    assert rsmq.peek_messages("q") == []


def test_the_verdicts_of_a_committed_batch_outlive_its_query(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("q")
    rsmq.send_message("q", b"a")
    first = reader(server)
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(1))
    judge(server, read(first, START, end), "dead")
    first.stop()
    # Spark has committed the batch, so its next driver asks for the following one.
    second = reader(server)
    assert second.latestOffset(end, ReadMaxRows(1)) == end
    second.stop()
    assert len(rsmq.peek_messages("q-dead", 9)) == 1


def test_gomq_has_no_verdicts_and_says_what_to_do_instead() -> None:
    with pytest.raises(SettingsError, match=r"neither retries nor dead letters: .* write it"):
        verdicts.settle(None, lease="l", source="gomq")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="source must be one of rsmq, chasqui, not 'x'"):
        verdicts.settle(None, lease="l", source="x")  # type: ignore[arg-type]
