"""Verdicts about rows of a leased stream, written down without Spark."""

from __future__ import annotations

import pytest
import redis
from pyspark.sql import Row

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui import lease_ops as chasqui_ops
from tambomq.chasqui.lease_ops import Group
from tambomq.errors import InvalidValue, QueueError, SettingsError
from tambomq.rsmq import Rsmq, lease_ops
from tambomq.rsmq.keys import Keys
from tambomq.spark import verdict
from tambomq.spark.options import Place
from tambomq.store.ledger import Term
from tambomq.store.sync import Store
from tests.servers import Server

KEYS = Keys()


def row(word: str | None, delay_ms: int | None = None, reason: str | None = None) -> Row:
    return Row(queue="q", claim=1, id="x", verdict=word, delay_ms=delay_ms, reason=reason)


def test_verdicts_are_spelled_as_the_ledger_has_them() -> None:
    assert verdict._spelled(row("done", 5, "why")) == ""
    assert verdict._spelled(row("retry")) == "r0"
    assert verdict._spelled(row("retry", 1500)) == "r1500"
    assert (
        verdict._spelled(row("retry", 0, "no route " + "x" * 5000)) == "r0 no route " + "x" * 3991
    )
    assert verdict._spelled(row("dead")) == "d"
    assert verdict._spelled(row("dead", reason="x" * 5000)) == "d" + "x" * 4000


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (row("again"), "verdict must be one of done, retry, dead, not 'again'"),
        (row(None), "not None"),
        (row("retry", -1), "delay_ms must be from 0 to"),
        (row("retry", 10**13), "delay_ms must be from 0 to"),
    ],
    ids=["no verdict", "none at all", "the past", "beyond all time"],
)
def test_what_is_no_verdict_is_refused(bad: Row, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        verdict._spelled(bad)


def test_verdicts_of_a_claim_are_written_down_and_late_ones_refused(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ids = rsmq.send_messages("q", [b"a"] * 1200)
    term = Term("q", "l", "one")
    store = Store(server.url)
    store.run(lease_ops.attach(KEYS, term))
    store.follow(lease_ops.claim(KEYS, term, 1, "m", 1200))
    bench = verdict._Bench(Place(server.url), "rsmq", "l", "rsmq")
    rows = [
        Row(queue="q", claim=1, id=id, verdict="dead", delay_ms=None, reason=None) for id in ids
    ]
    assert list(verdict._written(bench, rows)) == [1200]
    assert db.hlen(KEYS.verdicts("q", "l")) == 1200
    assert store.follow(lease_ops.acknowledge(KEYS, term, 1, "m")).dead == 1200
    store.close()
    with pytest.raises(QueueError, match="its verdicts come too late"):
        list(verdict._written(bench, rows))


def test_why_a_message_is_tried_again_is_kept_where_there_is_a_place_for_it(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    (id,) = rsmq.send_messages("q", [b"a"])
    term = Term("q", "l", "one")
    store = Store(server.url)
    store.run(lease_ops.attach(KEYS, term))
    store.follow(lease_ops.claim(KEYS, term, 1, "m", 1))
    bench = verdict._Bench(Place(server.url), "rsmq", "l", "rsmq")
    judged = Row(queue="q", claim=1, id=id, verdict="retry", delay_ms=0, reason="no route")
    assert list(verdict._written(bench, [judged])) == [1]
    assert store.follow(lease_ops.acknowledge(KEYS, term, 1, "m")).retried == 1
    store.close()
    assert rsmq.receive_message("q") is not None


def test_a_job_that_has_run_often_enough_is_not_retried(server: Server) -> None:
    with BlockingQueue("q", redis_url=server.url) as queue:
        queue.add("n", 1)
        term, store = Term("q", "l", "one"), Store(server.url)
        store.run(chasqui_ops.attach(Group(), term))
        store.follow(chasqui_ops.claim(Group(), term, 1, "m", 1))
        (member,) = store.run(chasqui_ops.members(term, 0, 1))
        bench = verdict._Bench(Place(server.url), "chasqui", "l", "", max_attempts=1)
        judged = Row(
            queue="q", claim=1, id=member.entry, verdict="retry", delay_ms=5, reason="no route"
        )
        assert list(verdict._written(bench, [judged])) == [1]
        assert store.follow(chasqui_ops.acknowledge(Group(), term, 1, "m")).dead == 1
        store.close()
        (letter,) = queue.peek_dlq()
    assert (letter.reason, letter.detail) == ("retries_exhausted", "no route")


def test_gomq_has_no_verdicts_and_says_what_to_do_instead() -> None:
    with pytest.raises(SettingsError, match=r"neither retries nor dead letters: .* write it"):
        verdict.settle(None, lease="l", source="gomq")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="source must be one of rsmq, chasqui, not 'x'"):
        verdict.settle(None, lease="l", source="x")  # type: ignore[arg-type]
