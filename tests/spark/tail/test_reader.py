"""A tail, called as Spark calls it: every entry once, whatever happens to its stream meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tambomq.errors import InvalidFormat, QueueError, SettingsError, WrongType
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.stream_cuts import number
from tambomq.spark.formats.chasqui.streams import StreamTable
from tambomq.spark.tail.offsets import StreamOffset
from tambomq.spark.tail.options import OPTIONS
from tambomq.spark.tail.reader import TailReader, tail_reader
from tests.servers import Server
from tests.spark.tailing import JOURNAL, Query, bodies, column, fill, key, reader, spread

Follow = Callable[..., TailReader]


@pytest.fixture
def url(each_server: Server) -> str:
    return each_server.url


@pytest.fixture
def db(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def follow(url: str) -> Iterator[Follow]:
    """A function that returns a reader; all hang up in the end, as Spark lets them."""
    made: list[TailReader] = []

    def make(*queues: str, **how: Any) -> TailReader:
        made.append(reader(url, *queues, **how))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def texts(numbers: range) -> list[str]:
    return [str(number) for number in numbers]


def test_every_entry_comes_once_and_in_order(follow: Follow, db: redis.Redis) -> None:
    query = Query(follow("q", partition_count=1))
    fill(db, "q", range(2500))
    assert bodies(query.batch() or []) == texts(range(2500))
    assert query.batch() is None
    fill(db, "q", range(2500, 2510))
    assert bodies(query.batch() or []) == texts(range(2500, 2510))


def test_a_stream_that_is_not_there_yet_is_waited_for(follow: Follow, db: redis.Redis) -> None:
    query = Query(follow("q"))
    assert query.batch() == []
    assert query.batch() is None
    fill(db, "q", [1])
    assert bodies(query.batch() or []) == ["1"]


def test_tasks_share_a_batch_and_no_row_is_in_two(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(5000), ids=spread(1_000, 7))
    query = Query(follow("q", partition_count=4))
    rows = bodies(query.batch() or [])
    assert sorted(rows, key=int) == texts(range(5000))
    partition_count = query.source.partitions(*query.batches[-1])
    sizes = [len(bodies(query.source.read(part))) for part in partition_count]
    assert len(sizes) == 4
    assert max(sizes) < 2 * min(sizes)


def test_a_batch_that_is_read_again_has_the_same_rows(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(3000))
    query = Query(follow("q", partition_count=3))
    first = sorted(bodies(query.batch() or []), key=int)
    fill(db, "q", range(3000, 3100))
    assert sorted(bodies(query.again(-1)), key=int) == first


def test_a_pattern_finds_queues_that_appear_later(follow: Follow, db: redis.Redis) -> None:
    fill(db, "in:a", ["a1"])
    fill(db, "other", ["x"])
    query = Query(follow("in:*", "named"))
    assert bodies(query.batch() or []) == ["a1"]
    fill(db, "in:b", ["b1", "b2"])
    fill(db, "named", ["n1"])
    rows = query.batch() or []
    assert sorted(zip(column(rows, "queue"), bodies(rows), strict=True)) == [
        ("in:b", "b1"),
        ("in:b", "b2"),
        ("named", "n1"),
    ]


def test_too_many_queues_are_refused(
    follow: Follow, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.spark.tail.reader.MAX_QUEUES", 3)
    for queue in "abcd":
        fill(db, queue, [1])
    with pytest.raises(SettingsError, match="more than 3"):
        follow("*").reportLatestOffset()


# ── how much ─────────────────────────────────────────────────────────────────


def test_with_exact_rows_each_batch_has_the_exact_number(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(2750))
    query = Query(follow("q", max_rows=1100, exact_rows=True, partition_count=1))
    assert [bodies(rows) for rows in query.all()] == [
        texts(range(1100)),
        texts(range(1100, 2200)),
        texts(range(2200, 2750)),
    ]


def test_a_limit_of_rows_holds_about(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(10_000), ids=spread(1_000, 3))
    query = Query(follow("q", max_rows=1000, partition_count=1))
    found = [bodies(rows) for rows in query.all()]
    assert [each for rows in found for each in rows] == texts(range(10_000))
    assert max(map(len, found)) <= 1100
    assert len(found) <= 15


def test_a_limit_of_rows_holds_about_where_traffic_comes_in_bursts(
    follow: Follow, db: redis.Redis
) -> None:
    for burst in range(5):
        fill(
            db,
            "q",
            range(burst * 2000, burst * 2000 + 2000),
            ids=spread((burst + 1) * 3_600_000, 1),
        )
    query = Query(follow("q", max_rows=1000, partition_count=1))
    found = [bodies(rows) for rows in query.all()]
    assert [each for rows in found for each in rows] == texts(range(10_000))
    assert max(map(len, found)) <= 2000


def test_a_limit_of_rows_is_shared_by_all_queues(follow: Follow, db: redis.Redis) -> None:
    for queue in ("a", "b", "c"):
        fill(db, queue, range(500))
    query = Query(follow("a", "b", "c", max_rows=300, exact_rows=True))
    first = column(query.batch() or [], "queue")
    assert {queue: first.count(queue) for queue in "abc"} == {"a": 100, "b": 100, "c": 100}
    assert sum(len(bodies(rows)) for rows in query.all()) == 1200


def test_a_trigger_may_ask_for_all_in_spite_of_the_limit(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(500))
    source = follow("q", max_rows=10)
    assert source.getDefaultReadLimit() == ReadMaxRows(10)
    assert len(bodies(Query(source).batch(ReadAllAvailable()) or [])) == 500


def test_available_now_ends_with_what_was_there(follow: Follow, db: redis.Redis) -> None:
    fill(db, "a", range(50))
    source = follow("*", max_rows=20, exact_rows=True)
    source.prepareForTriggerAvailableNow()
    query = Query(source)
    rows = bodies(query.batch() or [])
    fill(db, "a", range(50, 100))
    fill(db, "late", range(100))
    for more in query.all():
        rows += bodies(more)
    assert rows == texts(range(50))
    # The next run goes on from there.
    then = query.restarted(follow("*"))
    then.source.prepareForTriggerAvailableNow()
    assert sum(len(bodies(rows)) for rows in then.all()) == 150


def test_the_latest_offset_shows_how_much_is_left(follow: Follow, db: redis.Redis) -> None:
    ids = fill(db, "q", range(30))
    query = Query(follow("q", max_rows=10, exact_rows=True))
    query.batch()
    latest = query.source.reportLatestOffset()
    assert latest == {"q": {"id": ids[-1], "added": 30}}
    assert number(query.offset["q"]["id"]) < number(latest["q"]["id"])


# ── where to begin ───────────────────────────────────────────────────────────


def test_latest_skips_what_is_there_and_nothing_that_comes(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(10))
    query = Query(follow("q", starting="latest"))
    fill(db, "q", range(10, 20))
    assert query.batch() == []
    assert bodies(query.batch() or []) == texts(range(10, 20))


def test_latest_survives_a_crash_in_the_first_batch(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(10))
    query = Query(follow("q", starting="latest"))
    query.batch()
    fill(db, "q", range(10, 20))
    # The first batch was written down and never done: Spark asks anew where to begin.
    again = Query(follow("q", starting="latest"))
    again.batches = [(again.offset, query.batches[0][1])]
    again.offset = again.batches[0][1]
    assert again.again(-1) == []
    assert bodies(again.batch() or []) == texts(range(10, 20))


def test_a_query_begins_behind_the_ids_it_is_given(follow: Follow, db: redis.Redis) -> None:
    ids = fill(db, "a", range(10))
    fill(db, "b", range(10))
    fill(db, "c", range(10))
    begin = {"a": StreamOffset(number(ids[6])), "b": "latest"}
    query = Query(follow("a", "b", "c", starting=begin))
    query.batch()
    rows = query.batch() or []
    assert column(rows, "queue").count("a") == 3
    assert column(rows, "queue").count("b") == 0
    assert column(rows, "queue").count("c") == 10


def test_a_query_may_start_at_an_id_that_does_not_exist(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(10), ids=spread(1_000, 10))
    for id, left in (("1-0", 10), ("1055-7", 4), ("1090-0", 0), ("9000-0", 0)):
        query = Query(follow("q", starting={"q": StreamOffset(number(id))}))
        assert query.batch() == []
        assert len(bodies(query.batch() or [])) == left


# ── what is gone ─────────────────────────────────────────────────────────────


def test_trimming_read_entries_is_not_counted_as_a_loss(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(100))
    query = Query(follow("q"))
    query.batch()
    db.xtrim(key("q"), maxlen=0, approximate=False)
    assert query.batch() is None
    fill(db, "q", range(100, 110))
    assert len(bodies(query.batch() or [])) == 10


@pytest.mark.parametrize("exact", [True, False])
def test_trimming_up_to_the_offset_of_a_limited_batch_is_not_a_loss(
    follow: Follow, db: redis.Redis, exact: bool
) -> None:
    fill(db, "q", range(2000), ids=spread(1_000, 1))
    query = Query(follow("q", max_rows=100, exact_rows=exact, partition_count=1))
    rows: list[str] = []
    while (batch := query.batch()) is not None:
        rows += bodies(batch)
        db.xtrim(key("q"), minid=query.offset["q"]["id"], approximate=False)
    assert rows == texts(range(2000))


def test_entries_that_were_trimmed_unread_are_an_error(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(100))
    query = Query(follow("q"))
    query.batch()
    fill(db, "q", range(100, 150))
    db.xtrim(key("q"), maxlen=20, approximate=False)
    with pytest.raises(QueueError, match=r"at least 30 entries .* failOnDataLoss"):
        query.batch()


def test_entries_that_were_trimmed_unread_can_be_counted(
    follow: Follow, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    fill(db, "q", range(100))
    query = Query(follow("q", fail_on_loss=False))
    query.batch()
    fill(db, "q", range(100, 150))
    db.xtrim(key("q"), maxlen=20, approximate=False)
    with caplog.at_level(logging.WARNING):
        assert bodies(query.batch() or []) == texts(range(130, 150))
    assert query.offset["q"]["lost"] == 30
    assert len(caplog.records) == 1
    fill(db, "q", [150])
    query.batch()
    assert query.offset["q"]["lost"] == 30
    # Who counted it once may go on with care.
    careful = query.restarted(follow("q"))
    assert len(bodies(careful.again(-2))) == 20


def test_a_batch_that_was_trimmed_between_two_tries_is_an_error(
    follow: Follow, db: redis.Redis
) -> None:
    fill(db, "q", range(10))
    query = Query(follow("q"))
    query.batch()
    fill(db, "q", range(10, 30))
    query.batch()
    db.xtrim(key("q"), maxlen=15, approximate=False)
    with pytest.raises(QueueError, match="at least 5 entries"):
        query.again(-1)


def test_entries_that_are_trimmed_while_they_are_read_are_an_error(
    follow: Follow, db: redis.Redis
) -> None:
    fill(db, "q", range(10))
    query = Query(follow("q", partition_count=1))
    query.batch()
    fill(db, "q", range(10, 3010))
    query.batch()
    [part] = query.source.partitions(*query.batches[-1])
    pages = query.source.read(part)
    next(pages)
    db.xtrim(key("q"), maxlen=10, approximate=False)
    with pytest.raises(QueueError, match="while they were read"):
        list(pages)


def test_a_deleted_and_recreated_stream_is_read_further(follow: Follow, db: redis.Redis) -> None:
    fill(db, "q", range(10))
    query = Query(follow("q"))
    query.batch()
    db.delete(key("q"))
    assert query.batch() is None
    # The server's clock must have moved on, or an id would be given twice.
    past = time.time_ns() // 1_000_000
    while int(db.time()[0]) * 1000 + int(db.time()[1]) // 1000 <= past:
        pass
    fill(db, "q", range(10, 13))
    assert bodies(query.batch() or []) == ["10", "11", "12"]


# ── other tables, other input ────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["events", "dlq"])
def test_streams_of_chasqui_are_followed_too(follow: Follow, db: redis.Redis, kind: str) -> None:
    table = StreamTable(kind)
    query = Query(follow("emails", table=table, partition_count=1))
    for redis_target in range(1500):
        db.xadd(
            table.key("emails"), {"e": "waiting", "id": f"j{redis_target}", "ts": "5", "d": "x"}
        )
    ids = column(query.batch() or [], table.columns.arrow.names[1])
    assert len(set(ids)) == 1500
    assert query.batch() is None


def test_a_key_of_another_type_is_an_error(follow: Follow, db: redis.Redis) -> None:
    db.set(key("q"), "x")
    with pytest.raises(WrongType):
        Query(follow("q")).batch()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest, or JSON"),
        ({"startingOffsets": '{"other": "1-0"}'}, "of queues that are followed, not 'other'"),
        ({"maxRowsPerBatch": "-5"}, "maxRowsPerBatch must be"),
        ({"exactRows": "perhaps"}, "exactRows must be true or false"),
        ({"failOnDataLoss": "2"}, "failOnDataLoss must be true or false"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], said: str) -> None:
    given = SourceOptions(
        "tambo", {"queue": "q", **options}, ("url", "queue", "partitions", *OPTIONS)
    )
    with pytest.raises(SettingsError, match=said):
        tail_reader(given, JOURNAL)


def test_a_name_that_no_queue_can_have_is_refused(follow: Follow) -> None:
    with pytest.raises(InvalidFormat):
        follow("\ud800").reportLatestOffset()


def test_a_server_that_restarts_is_found_again(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        fill(db, "q", range(100))
        source = reader(private_server.url, "q")
        query = Query(source)
        assert len(bodies(query.batch() or [])) == 100
        private_server.kill()
        private_server.restart()
        fill(db, "q", range(100, 150))
        assert bodies(query.batch() or []) == texts(range(100, 150))
        source.stop()
