"""The streams that are followed, and their entries as rows of bronze."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_fresh
from tambomq.errors import SettingsError
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import JournalRecord
from tambomq.pipeline.ingest.sources import FollowedStreams, Stream, select_queues
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.tail.reader import TailReader
from tambomq.store.sync import Store
from tests.servers import Server

NAME = "a:b/ü 007"


def rows(store: Store, stream: str) -> list[dict[str, Any]]:
    table = FollowedStreams(select_queues(()))
    found = table.read(store, Range(stream, "-", "+"), ColumnBounds())
    return [row for batch in found for row in batch.to_pylist()]


def test_a_pattern_selects_all_streams_of_a_queue() -> None:
    assert select_queues(["chasqui:orders", "rsmq:a*"]).patterns == (
        "chasqui:events:orders",
        "chasqui:dlq:orders",
        "chasqui:journal:orders",
        "rsmq:journal:a*",
    )


@pytest.mark.parametrize("patterns", [(), ("*",), ("rsmq:*", "chasqui:*", "gomq:*", "kqueue:*")])
def test_without_patterns_all_is_followed(patterns: tuple[str, ...]) -> None:
    wanted = select_queues(patterns)
    for each in ("chasqui:events:x", "chasqui:dlq:x:y", "gomq:journal:x", "kqueue:journal:x"):
        assert wanted.includes(each)


@pytest.mark.parametrize("pattern", ["orders", "nats:orders", "rsmq:", ":x", ""])
def test_a_pattern_that_can_match_no_queue_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match=r"can match no queue: write rsmq:NAME, "):
        select_queues([pattern])


def test_a_queue_may_have_any_name() -> None:
    stream = Stream("chasqui", "dlq", NAME)
    assert Stream.parse(str(stream)) == stream


def test_streams_are_found_by_what_is_in_redis(store: Store, db: redis.Redis) -> None:
    db.xadd(Keys(NAME).events, {"e": "waiting", "id": "x", "ts": "1"})
    for protocol in ("rsmq", "kqueue"):
        store.follow(ops.append(JournalKeys(protocol, NAME), [JournalRecord(1, b"body")]))
    assert sorted(FollowedStreams(select_queues(())).names(store)) == [
        f"chasqui:dlq:{NAME}",
        f"chasqui:events:{NAME}",
        f"kqueue:journal:{NAME}",
        f"rsmq:journal:{NAME}",
    ]
    assert [*FollowedStreams(select_queues(["kqueue:*"])).names(store)] == [
        f"kqueue:journal:{NAME}"
    ]


def test_no_field_of_an_event_is_lost(store: Store, db: redis.Redis) -> None:
    fields: Any = {"e": "progress", "id": "j", "ts": "1700000000000", "n": "mail", "progress": "7"}
    db.xadd(Keys(NAME).events, {**fields, "colour": "red"})
    (row,) = rows(store, f"chasqui:events:{NAME}")
    assert (row["protocol"], row["source"], row["queue"]) == ("chasqui", "events", NAME)
    assert (row["event"], row["id"], row["name"]) == ("progress", "j", "mail")
    assert row["at"].timestamp() == 1_700_000_000
    assert msgspec.json.decode(row["others"]) == {"percent": 7, "colour": "red"}


def test_a_dead_letter_keeps_its_body_and_all_that_is_known_of_it(
    store: Store, db: redis.Redis
) -> None:
    letter: Any = {
        "source_id": "5-0",
        "reason": "unrecoverable",
        "detail": "no such user",
        "n": "mail",
    }
    db.xadd(Keys(NAME).dlq, {"d": encode_fresh("j", b"\x2a", 1234), **letter})
    db.xadd(Keys(NAME).dlq, {"d": b"garbage", "source_id": "6-0", "reason": "decode_failed"})
    good, bad = rows(store, f"chasqui:dlq:{NAME}")
    assert (good["event"], good["id"], good["reason"]) == ("dlq", "j", "unrecoverable")
    assert (good["detail"], good["body"]) == ("no such user", b"\x2a")
    assert bad["detail"] is None
    assert msgspec.json.decode(good["others"]) == {"source_id": "5-0", "created_ms": 1234}
    assert (bad["id"], bad["body"]) == (None, b"garbage")
    assert "error" in msgspec.json.decode(bad["others"])


def test_a_dead_letter_keeps_the_type_and_the_traceback_of_its_error(
    store: Store, db: redis.Redis
) -> None:
    raised: Any = {"detail": "'to'", "error_type": "KeyError", "traceback": "Traceback …"}
    db.xadd(Keys(NAME).dlq, {"d": encode_fresh("j", b"\x2a", 1234), "reason": "x", **raised})
    [row] = rows(store, f"chasqui:dlq:{NAME}")
    others = msgspec.json.decode(row["others"])
    assert (row["detail"], others["error_type"]) == ("'to'", "KeyError")
    assert others["traceback"] == "Traceback …"


def test_a_record_of_a_journal_keeps_its_body(store: Store) -> None:
    records = [JournalRecord(5000, b"\x00\xff", id="m", name="n", delay_ms=3)]
    store.follow(ops.append(JournalKeys("rsmq", NAME), records))
    (row,) = rows(store, f"rsmq:journal:{NAME}")
    assert (row["event"], row["id"], row["name"]) == ("sent", "m", "n")
    assert (row["body"], row["delay_ms"]) == (b"\x00\xff", 3)


def test_a_journal_record_has_the_attempt_and_the_reason_of_death(store: Store) -> None:
    records = [
        JournalRecord(5000, event="received", id="m", attempt=2),
        JournalRecord(6000, event="dead", id="m", reason="received too often"),
    ]
    store.follow(ops.append(JournalKeys("rsmq", NAME), records))
    received, dead = rows(store, f"rsmq:journal:{NAME}")
    assert received["attempt"] == 2
    assert dead["reason"] == "received too often"


def test_a_tail_over_all_streams_gives_every_entry_once(
    server: Server, store: Store, db: redis.Redis
) -> None:
    for place in range(20):
        db.xadd(Keys("q").events, {"e": "waiting", "id": str(place), "ts": "1"})
    store.follow(ops.append(JournalKeys("kqueue", "q"), [JournalRecord(1, b"x")] * 5))
    wanted = select_queues(())
    reader = TailReader(FollowedStreams(wanted), RedisTarget(server.url), wanted)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    assert set(end) == {"chasqui:events:q", "kqueue:journal:q"}
    parts = reader.partitions({}, end)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 25
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()
