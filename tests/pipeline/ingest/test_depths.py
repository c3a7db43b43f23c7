"""How much is in the queues themselves: snapshots, gold's backlog, and what the report says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui import BlockingQueue
from tambomq.cli.main import tambo
from tambomq.gomq import ops as gomq_ops
from tambomq.gomq.model import Options
from tambomq.pipeline import depths, sources
from tambomq.pipeline.depths import Depth
from tambomq.pipeline.figures import Counts, Line, Spread, with_depths
from tambomq.pipeline.lake import DEPTHS, Lake
from tambomq.pipeline.page import html, unfollowed
from tambomq.pipeline.report import figures
from tambomq.pipeline.run import Pipeline, Plan
from tambomq.pipeline.snapshots import Snapshots
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.servers import Server

ALL = sources.chosen(())


@pytest.fixture
def queues(server: Server, db: redis.Redis) -> Iterator[Rsmq]:
    """Jobs that nobody announced, messages without a journal, and some with one."""
    with BlockingQueue("mail", redis_url=server.url) as queue:
        queue.add_bulk([{"name": "send", "data": n} for n in range(5)])
        queue.add("send", 6, delay_ms=3_600_000)
    with Rsmq(server.url, journal=("told",)) as rsmq:
        rsmq.create_queue("orders")
        rsmq.create_queue("told")
        rsmq.create_queue("empty")
        rsmq.send_messages("orders", [b"1", b"2", b"3"])
        rsmq.receive_message("orders")
        rsmq.send_message("told", b"1")
        yield rsmq


def test_every_queue_is_counted(queues: Rsmq, store: Store) -> None:
    store.run(gomq_ops.push("news", [b"1", b"2"]))
    store.run(gomq_ops.subscribe("news", "a", "a:1", Options()))
    store.run(gomq_ops.subscribe("news", "b", "b:1", Options()))
    store.run(gomq_ops.dispatch("news"))
    store.run(gomq_ops.push("news", [b"3"]))
    assert sorted(depths.taken(store, ALL)) == [
        Depth("chasqui", "mail", 6, followed=True),
        Depth("gomq", "news", 3, followed=False),
        Depth("rsmq", "empty", 0, followed=False),
        Depth("rsmq", "orders", 3, followed=False),
        Depth("rsmq", "told", 1, followed=True),
    ]
    chosen = depths.taken(store, sources.chosen(["rsmq:o*"]))
    assert chosen == [Depth("rsmq", "orders", 3, followed=False)]


def test_what_is_of_another_type_is_left_out(store: Store, db: redis.Redis) -> None:
    db.set("{chasqui:odd}:stream", "no stream")
    db.sadd("rsmq:QUEUES", "odd", "fine")
    db.set("rsmq:odd", "no set")
    db.set("QUEUE_odd", "no list")
    assert depths.taken(store, ALL) == [Depth("rsmq", "fine", 0, followed=False)]


def test_a_snapshot_alone_is_entered_if_something_changed(
    queues: Rsmq, server: Server, lake: Lake
) -> None:
    snapshots = Snapshots(lake, server.url, ALL)
    assert snapshots.enter() is not None
    assert snapshots.enter() is None
    # Another process knows what the last one has noted.
    again = Snapshots(Lake.open(lake.path), server.url, ALL)
    assert again.enter() is None
    queues.delete_queue("orders")
    assert again.enter() is not None
    files = [lake.path / file.path for file in Lake.open(lake.path).log.version().of(DEPTHS)]
    assert len(files) == 2
    assert Depth("rsmq", "orders", 0, followed=False) in depths.latest(files)
    assert not [*(lake.path / "staging").iterdir()]


def test_a_server_that_is_away_is_no_failure(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    snapshots = Snapshots(lake, "redis://127.0.0.1:1", ALL)
    assert snapshots.enter() is None
    assert "not known" in caplog.text


def test_lines_add_up_to_what_is_in_the_queue() -> None:
    def line(name: str, backlog: int, entered: int = 1) -> Line:
        return Line("chasqui", "q", name, Counts(entered), backlog, 7, Spread(), Spread())

    lines = [line("a", 2), line("b", 5), line("", 1)]
    place = ("chasqui", "q")

    def backlogs(depth: int) -> dict[str, int]:
        return {each.name: each.backlog for each in with_depths(lines, {place: depth})}

    assert backlogs(8) == {"a": 2, "b": 5, "": 1}
    assert backlogs(500) == {"a": 2, "b": 5, "": 493}
    assert backlogs(6) == {"a": 2, "b": 4, "": 0}
    assert backlogs(0) == {"a": 0, "b": 0, "": 0}
    (alone,) = with_depths([], {("rsmq", "orders"): 3, ("rsmq", "empty"): 0})
    assert (alone.queue, alone.name, alone.backlog, alone.oldest_age_s) == ("orders", "", 3, None)


def test_run_says_what_is_not_followed(queues: Rsmq, server: Server, tmp_path: Path) -> None:
    asked = ("run", "--once", "--queue", "gomq:*", "--queue", "rsmq:orders")
    done = call(tambo, "tambo", "pipeline", *asked, "--lake", str(tmp_path / "l"), url=server.url)
    assert "1 queue without a journal is only counted, not followed: rsmq:orders" in done.err


@pytest.mark.slow
def test_the_reports_backlog_is_what_the_queues_have(
    spark: SparkSession, queues: Rsmq, server: Server, lake: Lake
) -> None:
    for _ in Pipeline(spark, lake, Plan(server.url, once=True)).follow(lambda: False):
        pass
    found = figures(spark, lake)
    # Of the jobs only the one that is delayed was announced.
    waiting = {("mail", "send", 1), ("mail", "", 5), ("orders", "", 3), ("told", "", 1)}
    assert {(line.queue, line.name, line.backlog) for line in found.lines} == waiting
    assert (found.backlog, found.points[-1].backlog) == (10, 10)
    assert [each.queue for each in found.unfollowed] == ["orders", "empty"]
    assert "rsmq:orders (3)" in unfollowed(found)
    assert "rsmq:orders (3)" in html(found)
    gold = lake.read(spark, "gold").select("queue", "name", "backlog").collect()
    assert {tuple(row) for row in gold if row.backlog} == waiting
    # What is gone without a word is gone from the report too.
    queues.delete_queue("orders")
    queues.receive_message("told", vt=0)
    for _ in Pipeline(spark, lake, Plan(server.url, once=True)).follow(lambda: False):
        pass
    assert figures(spark, lake).backlog == 7
