"""Queue depths: snapshots, and the backlog in gold and in the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui import BlockingQueue
from tambomq.cli.main import tambo
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as gomq_ops
from tambomq.pipeline.ingest import depths, sources
from tambomq.pipeline.ingest.depths import Depth, DepthSnapshot
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.ingest.snapshots import Snapshots
from tambomq.pipeline.lake.lake import DEPTHS, Lake
from tambomq.pipeline.lake.log import LogEntry
from tambomq.pipeline.report.figures import Counts, FigureRow, Spread, with_depths
from tambomq.pipeline.report.page import html, unfollowed
from tambomq.pipeline.report.report import figures
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.servers import Server

ALL = sources.select_queues(())


@pytest.fixture
def queues(server: Server, db: redis.Redis) -> Iterator[Rsmq]:
    """Jobs without events, messages without a journal, and some with one."""
    with BlockingQueue("mail", redis_url=server.url) as queue:
        queue.add_bulk([{"name": "send", "data": n} for n in range(5)])
        queue.add("send", 6, delay_ms=3_600_000)
    with Rsmq(server.url, journal=("tracked",)) as rsmq:
        rsmq.create_queue("orders")
        rsmq.create_queue("tracked")
        rsmq.create_queue("empty")
        rsmq.send_messages("orders", [b"1", b"2", b"3"])
        rsmq.receive_message("orders")
        rsmq.send_message("tracked", b"1")
        yield rsmq


def test_every_queue_is_counted(queues: Rsmq, store: Store) -> None:
    store.run(gomq_ops.push("news", [b"1", b"2"]))
    store.run(gomq_ops.subscribe("news", "a", "a:1", Options()))
    store.run(gomq_ops.subscribe("news", "b", "b:1", Options()))
    store.run(gomq_ops.dispatch("news"))
    store.run(gomq_ops.push("news", [b"3"]))
    assert sorted(depths.queue_depths(store, ALL)) == [
        Depth("chasqui", "mail", 6, followed=True),
        Depth("gomq", "news", 3, followed=False),
        Depth("rsmq", "empty", 0, followed=False),
        Depth("rsmq", "orders", 3, followed=False),
        Depth("rsmq", "tracked", 1, followed=True),
    ]
    chosen = depths.queue_depths(store, sources.select_queues(["rsmq:o*"]))
    assert chosen == [Depth("rsmq", "orders", 3, followed=False)]


def test_keys_of_protocols_that_are_not_selected_are_not_touched(
    queues: Rsmq, store: Store, db: redis.Redis
) -> None:
    db.config_resetstat()
    assert depths.queue_depths(store, sources.select_queues(["gomq:*"])) == []
    called: Any = db.info("commandstats")
    assert not {"cmdstat_zcard", "cmdstat_xlen"} & set(called)


def test_keys_of_another_type_are_not_counted(store: Store, db: redis.Redis) -> None:
    db.set("{chasqui:odd}:stream", "no stream")
    db.sadd("rsmq:QUEUES", "odd", "fine")
    db.set("rsmq:odd", "no set")
    db.set("QUEUE_odd", "no list")
    assert depths.queue_depths(store, ALL) == [Depth("rsmq", "fine", 0, followed=False)]


def test_a_snapshot_alone_is_entered_if_something_changed(
    queues: Rsmq, server: Server, lake: Lake
) -> None:
    snapshots = Snapshots(lake, server.url, ALL)
    assert snapshots.commit_alone() is not None
    assert snapshots.commit_alone() is None
    # Another process reads what the last one has stored.
    again = Snapshots(Lake.open(lake.path), server.url, ALL)
    assert again.commit_alone() is None
    queues.delete_queue("orders")
    assert again.commit_alone() is not None
    files = [lake.path / file.path for file in Lake.open(lake.path).log.version().of(DEPTHS)]
    assert len(files) == 2
    assert Depth("rsmq", "orders", 0, followed=False) in depths.latest_depths(files)
    assert not [*(lake.path / "staging").iterdir()]


def newest(lake: Lake) -> dict[str, int]:
    """Return the backlogs in the newest snapshot."""
    files = [lake.path / file.path for file in Lake.open(lake.path).log.version().of(DEPTHS)]
    return {each.queue: each.backlog for each in depths.latest_depths(files)}


def test_a_queue_that_cannot_be_counted_does_not_become_empty_until_it_is_deleted(
    queues: Rsmq, server: Server, lake: Lake, db: redis.Redis
) -> None:
    snapshots = Snapshots(lake, server.url, ALL)
    assert snapshots.commit_alone() is not None
    db.rename("rsmq:orders", "elsewhere")
    db.set("rsmq:orders", "no set")
    assert snapshots.commit_alone() is None
    queues.send_message("tracked", b"2")
    assert snapshots.commit_alone() is not None
    assert newest(lake) == {"mail": 6, "tracked": 2, "empty": 0}
    db.delete("rsmq:orders")
    db.srem("rsmq:QUEUES", "orders")
    assert snapshots.commit_alone() is not None
    assert newest(lake)["orders"] == 0


def test_queues_beyond_the_limit_do_not_become_empty(
    queues: Rsmq, server: Server, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(lake, server.url, ALL)
    assert snapshots.commit_alone() is not None
    monkeypatch.setattr(depths, "MAX_QUEUES", 2)
    queues.send_message("orders", b"4")
    assert snapshots.commit_alone() is not None
    # Counted are the first by name, the same ones each time.
    assert newest(lake) == {"mail": 6, "empty": 0, "orders": 4}


def test_a_snapshot_that_is_committed_after_a_newer_one_is_not_the_last(
    queues: Rsmq, server: Server, lake: Lake
) -> None:
    snapshots = Snapshots(lake, server.url, ALL)
    assert snapshots.commit_alone() is not None
    # A batch has taken a snapshot, and commits it after another was committed alone.
    of_batch = DepthSnapshot(1, [], [])
    snapshots.committed(of_batch)
    assert snapshots.commit_alone() is None


def test_a_queue_that_is_no_longer_selected_does_not_become_empty(
    queues: Rsmq, server: Server, lake: Lake
) -> None:
    assert Snapshots(lake, server.url, ALL).commit_alone() is not None
    queues.send_message("orders", b"4")
    fewer = Snapshots(Lake.open(lake.path), server.url, sources.select_queues(["rsmq:*"]))
    assert fewer.commit_alone() is not None
    files = [lake.path / file.path for file in Lake.open(lake.path).log.version().of(DEPTHS)]
    assert "mail" not in {each.queue for each in depths.latest_depths(files)}


def test_a_snapshot_with_a_batch_that_the_lake_has_already_is_not_taken_for_written(
    queues: Rsmq, server: Server, lake: Lake
) -> None:
    (lake.checkpoint / "offsets").mkdir(parents=True)
    (lake.checkpoint / "metadata").write_text('{"id": "query"}')
    (lake.checkpoint / "offsets" / "7").write_text("v1\n{}\n{}")
    lake.log.commit(LogEntry(at_ms=1, by="query", batch=7))
    unused: Any = None
    pipeline = Pipeline(unused, lake, PipelineOptions(server.url))
    # Spark repeats a batch whose commit it has missed; nothing of it is written again.
    pipeline._write_batch(unused, 7)
    assert lake.log.version().of(DEPTHS) == []
    assert pipeline._snapshots is not None
    assert pipeline._snapshots.commit_alone() is not None
    assert lake.log.version().of(DEPTHS)


def test_an_unreachable_server_only_logs_a_warning(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = Snapshots(lake, "redis://127.0.0.1:1", ALL)
    assert snapshots.commit_alone() is None
    assert "could not be counted" in caplog.text


def test_lines_add_up_to_what_is_in_the_queue() -> None:
    def line(name: str, backlog: int, entered: int = 1) -> FigureRow:
        return FigureRow("chasqui", "q", name, Counts(entered), backlog, 7, Spread(), Spread())

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


def test_run_reports_queues_that_are_not_followed(
    queues: Rsmq, server: Server, tmp_path: Path
) -> None:
    asked = ("run", "--once", "--queue", "gomq:*", "--queue", "rsmq:orders")
    done = call(tambo, "tambo", "pipeline", *asked, "--lake", str(tmp_path / "l"), url=server.url)
    assert "1 queue without a journal is only counted, not followed: rsmq:orders" in done.err


@pytest.mark.slow
def test_the_reports_backlog_is_what_the_queues_have(
    spark: SparkSession, queues: Rsmq, server: Server, lake: Lake
) -> None:
    for _ in Pipeline(spark, lake, PipelineOptions(server.url, once=True)).follow(lambda: False):
        pass
    found = figures(spark, lake)
    # Of the jobs only the one that is delayed was announced.
    waiting = {("mail", "send", 1), ("mail", "", 5), ("orders", "", 3), ("tracked", "", 1)}
    assert {(line.queue, line.name, line.backlog) for line in found.lines} == waiting
    assert (found.backlog, found.points[-1].backlog) == (10, 10)
    assert [each.queue for each in found.unfollowed] == ["orders", "empty"]
    assert "rsmq:orders (3)" in unfollowed(found)
    assert "rsmq:orders (3)" in html(found)
    gold = lake.read(spark, "gold").select("queue", "name", "backlog").collect()
    assert {tuple(row) for row in gold if row.backlog} == waiting
    # What is gone without a word is gone from the report too.
    queues.delete_queue("orders")
    queues.receive_message("tracked", vt=0)
    for _ in Pipeline(spark, lake, PipelineOptions(server.url, once=True)).follow(lambda: False):
        pass
    assert figures(spark, lake).backlog == 7
