"""Rows of a lake become messages again: those that SQL chooses, in the order of their time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import replay as pipeline_replay
from tambomq.pipeline.lake import tables
from tambomq.pipeline.lake.lake import BRONZE, Lake
from tambomq.pipeline.lake.log import LogEntry
from tests.cli.transcript import Done, call
from tests.journal.looking import bodies as recorded
from tests.servers import Server

Run = Callable[..., Done]
START = datetime(2026, 1, 1, 10, tzinfo=UTC)
COUNT = 1200


def _row(n: int, protocol: str, event: str = "sent", **others: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=n)
    row: dict[str, Any] = dict.fromkeys(column.name for column in tables.TAILED)
    body = encode_payload({"n": n}) if protocol == "chasqui" else b"body %d" % n
    row |= {"protocol": protocol, "queue": "orders", "source": "journal", "event": event}
    row |= {"entry_id": f"{n + 1}-0", "recorded_at": at, "at": at, "id": f"old-{n}", "body": body}
    return {**row, **others}


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with messages, jobs, dead letters, and events that have no bodies."""
    lake = Lake.make(tmp_path_factory.mktemp("replayed") / "lake")
    rows = [_row(n, "rsmq") for n in reversed(range(COUNT))]
    rows += [_row(n, "chasqui", name="mail") for n in range(5)]
    rows += [_row(n, "chasqui", "dlq", source="dlq", reason="unrecoverable") for n in range(3)]
    rows += [_row(n, "rsmq", "deleted", body=None, source="events") for n in range(5)]
    names = [column.name for column in tables.TAILED]
    found = spark.createDataFrame(
        [[row[name] for name in names] for row in rows], tables.TAILED.ddl
    )
    with lake.staged() as home:
        dated = found.withColumn("date", F.to_date("recorded_at"))
        dated.write.partitionBy("protocol", "queue", "date").parquet(str(home))
        files = lake.adopt(BRONZE, home)
    lake.log.commit(LogEntry(at_ms=1, by="query", add={BRONZE: files}))
    return lake


@pytest.fixture
def replay(
    spark: SparkSession, server: Server, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The command, with the session of all tests."""
    monkeypatch.setattr(pipeline_replay, "open_spark", lambda *_: spark)
    words = ("pipeline", "replay", "--from", str(filled.path))
    return partial(call, tambo, "tambo", *words, url=server.url)


def test_a_window_is_sent_again_and_only_once(replay: Run, db: redis.Redis) -> None:
    condition = ("--where", "protocol = 'rsmq' AND id NOT IN ('old-0', 'old-1')")
    planned = replay("--to", "rsmq:b", *condition, "--dry-run")
    assert planned.out == f"would send {COUNT - 2} messages to rsmq:b\n"
    done = json.loads(replay("--to", "rsmq:b", *condition, "--id", "one", "--json").out)
    assert (done["sent"], done["sent_before"]) == (COUNT - 2, 0)
    again = replay("--to", "rsmq:b", *condition, "--id", "one")
    assert "sent 0 messages" in again.out
    ids: Any = db.zrange("rsmq:b", 0, -1)
    bodies: Any = db.hmget("rsmq:b:Q", ids)
    assert bodies == [b"body %d" % n for n in range(2, COUNT)]
    assert db.hget(done["origins"], ids[0]) == b"old-2"


def test_jobs_and_dead_letters_are_distinguished(replay: Run, db: redis.Redis) -> None:
    condition = ("--where", "protocol = 'chasqui'")
    assert replay("--to", "chasqui:b", *condition).code == 0
    assert replay("--to", "chasqui:c", *condition, "--what", "dead").code == 0
    assert replay("--to", "chasqui:d", *condition, "--what", "all").code == 0
    sizes = [db.xlen(ChasquiKeys(queue).stream) for queue in "bcd"]
    assert sizes == [5, 3, 8]
    rows: Any = db.xrange(ChasquiKeys("b").stream)
    jobs = [decode_envelope(fields[b"d"]) for _, fields in rows]
    assert [decode_payload(job.payload) for job in jobs] == [{"n": n} for n in range(5)]
    assert all(job.id.startswith(f"old-{n}~") for n, job in enumerate(jobs))


def test_a_pace_is_kept(replay: Run, db: redis.Redis) -> None:
    condition = ("--where", "protocol = 'chasqui'")
    assert replay("--to", "gomq:b", *condition, "--speed", "100x").code == 0
    assert db.llen("QUEUE_b") == 5


def test_replayed_messages_are_recorded_with_the_journal_option(
    replay: Run, server: Server
) -> None:
    condition = ("--where", "protocol = 'chasqui'")
    assert replay("--to", "gomq:b", *condition, "--journal").code == 0
    assert len(recorded(server.url, "gomq", "b")) == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--to", "rsmq:b", "--where", "queue = 'nope'"), 3, "the lake has no bodies that queue"),
        (("--to", "rsmq:b", "--where", "queue ="), 2, "SQL: "),
        (("--to", "rsmq:b", "--where", "que = 'x'"), 2, "`que` cannot be resolved"),
        (("--to", "kqueue:b"), 2, "names no queue"),
        (("--to", "rsmq:b", "--speed", "2"), 2, "a speed is written like"),
        (("--to", "rsmq:b", "--id", "a b"), 2, "--id: "),
    ],
)
def test_impossible_requests_are_reported(
    replay: Run, db: redis.Redis, words: tuple[str, ...], code: int, said: str
) -> None:
    done = replay(*words)
    last = done.err.splitlines()[-1]
    assert (done.code, said in last) == (code, True), done
    assert db.exists("rsmq:b", "rsmq:b:Q", "rsmq:QUEUES") == 0
