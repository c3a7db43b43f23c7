"""A read is planned, dealt out to tasks, and read: without Spark."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
import redis
from pyspark.sql.datasource import EqualTo, In

from tambomq.chasqui.wire.envelope import encode_fresh
from tambomq.errors import QueueNotFound, StoreUnavailable
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.batch import MAX_PLANNED, BatchPartition, BatchReader, PushdownReader
from tambomq.spark.core.columns import LONG, TEXT, Column, Columns
from tambomq.spark.core.options import QueueSelector, RedisTarget
from tambomq.spark.core.paging import MAX_BYTES
from tambomq.spark.core.payload import PayloadDecoder
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.formats.chasqui.streams import StreamTable
from tambomq.spark.formats.rsmq.tables import MessageTable, QueueTable
from tambomq.store.sync import Store
from tests.servers import Server

NOWHERE = RedisTarget("redis://127.0.0.1:1")


@dataclass
class Made:
    """A table of so many rows in each queue."""

    sizes: dict[str, int]
    deleted: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    columns = Columns(Column("place", TEXT, "queue"), Column("n", LONG, "number"))

    def names(self, _: Store) -> Iterator[str]:
        yield from self.sizes

    def cut(self, _: Store, queue: str, __: ColumnBounds, pieces: int) -> list[Range]:
        self.asked.append(queue)
        if queue in self.deleted or queue not in self.sizes:
            raise QueueNotFound(queue)
        size = self.sizes[queue]
        step = max(1, -(-size // pieces))
        return [Range(queue, n, min(n + step, size)) for n in range(0, size, step)]

    def read(self, _: Store, part: Range, __: ColumnBounds) -> Iterator[pa.RecordBatch]:
        numbers = list(range(part.low, part.high))
        yield self.columns.batch(place=[part.queue] * len(numbers), n=numbers)


def reader(
    table: Any, *patterns: str, partition_count: int = 4, redis_target: RedisTarget = NOWHERE
) -> BatchReader:
    return BatchReader(table, redis_target, QueueSelector(patterns), partition_count)


def read(reading: BatchReader) -> list[list[tuple[Any, ...]]]:
    """The rows of each task, planned and read as Spark does: by copies."""
    tasks = []
    for part in reading.partitions():
        copy, its = pickle.loads(pickle.dumps((reading, part)))  # noqa: S301  (our own)
        batches = list(copy.read(its))
        tasks.append([tuple(row.values()) for batch in batches for row in batch.to_pylist()])
    return tasks


def rows_of(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted((name, n) for name, size in sizes.items() for n in range(size))


def flat(tasks: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return sorted(row for task in tasks for row in task)


def test_every_row_is_read_once() -> None:
    sizes = {"a": 10, "b": 1, "c": 0}
    assert flat(read(reader(Made(sizes), "*"))) == rows_of(sizes)
    assert flat(read(reader(Made(sizes), "a", "b"))) == rows_of({"a": 10, "b": 1})
    assert flat(read(reader(Made(sizes), "a", "*"))) == rows_of(sizes)


def test_a_large_queue_beside_small_ones_is_shared_by_all_tasks() -> None:
    tasks = read(reader(Made({"large": 1000, "x": 1, "y": 1, "z": 1}), "*"))
    assert [len(task) for task in tasks] == [251, 251, 251, 250]


def test_there_are_no_more_tasks_than_pieces_and_at_least_one() -> None:
    assert len(read(reader(Made({"a": 2}), "a", partition_count=8))) == 2
    assert read(reader(Made({"a": 0}), "a")) == [[]]
    assert read(reader(Made({}), "*")) == [[]]


def test_a_named_queue_must_be_there_one_that_matches_may_go() -> None:
    with pytest.raises(QueueNotFound):
        reader(Made({"a": 1}), "b").partitions()
    with pytest.raises(QueueNotFound):
        reader(Made({"a": 1}), "*", "b").partitions()
    assert flat(read(reader(Made({"a": 1, "b": 1}, deleted=("b",)), "*"))) == [("a", 0)]


def test_queues_that_are_filtered_out_are_not_even_cut() -> None:
    table = Made({"a": 1, "b": 1, "c": 1})
    reading = PushdownReader(table, NOWHERE, QueueSelector(("*", "a")), 4)
    filters = [In(("place",), ("a", "b")), EqualTo(("place",), "b")]
    assert list(reading.pushFilters(list(filters))) == filters
    assert len(reading.partitions()) == 1
    assert table.asked == ["b"]


class Twice(Made):
    """A table that lists each name twice."""

    def names(self, store: Store) -> Iterator[str]:
        yield from [*super().names(store)] * 2


def test_names_that_come_twice_are_read_once() -> None:
    sizes = {"a": 3, "b": 2}
    assert flat(read(reader(Twice(sizes), "*"))) == rows_of(sizes)


def test_too_many_queues_to_name_are_found_by_the_tasks() -> None:
    sizes = {f"q{n}": n % 3 for n in range(MAX_PLANNED * 5)}
    reading = reader(Made(sizes), "q*", "no*")
    parts: list[Any] = list(reading.partitions())
    assert [part.share for part in parts] == [(n, 4) for n in range(4)]
    assert all(len(pickle.dumps(part)) < 200 for part in parts)
    copies = [list(reading.read(part)) for part in parts]
    tasks = [[row["place"] for b in task for row in b.to_pylist()] for task in copies]
    assert sorted(name for task in tasks for name in task) == [name for name, _ in rows_of(sizes)]
    assert max(map(len, tasks)) < 1.3 * min(map(len, tasks))


def test_tens_of_thousands_of_queues_need_little_memory() -> None:
    class Endless(Made):
        def names(self, _: Store) -> Iterator[str]:
            yield from (f"queue-{n}" for n in range(20_000))

        def cut(self, _: Store, queue: str, __: ColumnBounds, pieces: int) -> list[Range]:  # noqa: ARG002  (as the others)
            return [Range(queue, 0, 1)] if queue.endswith("0000") else []

    reading = reader(Endless({}), "*")
    tracemalloc.start()
    try:
        parts = reading.partitions()
        rows = sum(batch.num_rows for part in parts for batch in reading.read(part))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 1
    assert peak < 1 << 20


@pytest.mark.slow
def test_more_real_queues_than_are_planned_are_all_read(server: Server, db: redis.Redis) -> None:
    pipe = db.pipeline(transaction=False)
    names = [f"q{n}" for n in range(1500)]
    pipe.sadd("rsmq:QUEUES", *names, "gone")
    for name in names:
        pipe.hset(f"rsmq:{name}:Q", mapping={"vt": 30, "delay": 0, "maxsize": -1, name: "body"})
        pipe.zadd(f"rsmq:{name}", {name: 1})
    pipe.execute()
    found = flat(
        read(reader(MessageTable(Keys()), "q*", "gone*", redis_target=RedisTarget(server.url)))
    )
    assert [row[0] for row in found] == sorted(names)
    assert {row[2] for row in found} == {b"body"}


# Every thousandth has a message: to read them all would take minutes.
_MILLION = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local data = 'rsmq:q' .. n .. ':Q'
  redis.call('SADD', 'rsmq:QUEUES', 'q' .. n)
  redis.call('HSET', data, 'vt', 30, 'delay', 0, 'maxsize', -1)
  if n % 1000 == 0 then
    redis.call('ZADD', 'rsmq:q' .. n, 1, 'id')
    redis.call('HSET', data, 'id', n)
  end
end"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_matching_queues_need_little_memory(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        for first in range(0, 1_000_000, 5000):
            db.eval(_MILLION, 0, first, first + 5000)
    reading = reader(
        MessageTable(Keys()),
        "q*",
        partition_count=2000,
        redis_target=RedisTarget(private_server.url),
    )
    tracemalloc.start()
    try:
        parts = reading.partitions()
        assert len(pickle.dumps(parts)) < 1 << 20
        rows = [row for batch in reading.read(parts[7]) for row in batch.to_pylist()]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    mine = [n for n in range(0, 1_000_000, 1000) if crc32(f"q{n}".encode()) % 2000 == 7]
    assert sorted(int(row["body"]) for row in rows) == mine
    assert peak < 4 << 20


@pytest.mark.slow
def test_bodies_of_sixteen_megabytes_come_one_by_one(server: Server, db: redis.Redis) -> None:
    bodies = [*[b"x"] * 2000, *(bytes([n]) * (16 << 20) for n in range(6)), b"y"]
    for n, body in enumerate(bodies):
        db.xadd("{chasqui:large}:stream", {"d": encode_fresh(str(n), body, n)})
    reading = reader(
        StreamTable("jobs"), "large", partition_count=1, redis_target=RedisTarget(server.url)
    )
    seen = 0
    for batch in reading.read(*reading.partitions()):
        assert batch.num_rows == 1 or batch.nbytes <= MAX_BYTES
        for row in batch.to_pylist():
            assert row["payload"] == bodies[seen]
            seen += 1
    assert seen == len(bodies)


def test_rows_are_decoded_before_spark_gets_them(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("q")
    rsmq.send_messages("q", ["[1]", "{"])
    payload = PayloadDecoder("json", column="body")
    table = MessageTable(Keys())
    reading = BatchReader(table, RedisTarget(server.url), QueueSelector(("q",)), 1, payload.apply)
    (task,) = read(reading)
    assert [row[-2] for row in task] == ["[1]", None]
    assert [row[-1] is None for row in task] == [True, False]


def test_a_wrong_option_is_reported_in_one_line(server: Server, rsmq: Rsmq) -> None:
    reading = reader(QueueTable(Keys()), "unknown", redis_target=RedisTarget(server.url))
    with pytest.raises(QueueNotFound, match="unknown") as failed:
        reading.partitions()
    assert failed.value.__cause__ is None
    assert not hasattr(sys, "tracebacklimit")  # other errors of this process keep their traceback


def test_a_process_of_spark_shows_no_traceback_of_a_wrong_option(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = ModuleType("__main__")
    planner.__spec__ = ModuleSpec("pyspark.sql.worker.plan_data_source_read", None)
    monkeypatch.setitem(sys.modules, "__main__", planner)
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    reading = reader(QueueTable(Keys()), "unknown", redis_target=RedisTarget(server.url))
    with pytest.raises(QueueNotFound, match="unknown"):
        reading.partitions()
    assert sys.tracebacklimit == 0


def test_no_connection_is_left_open(server: Server, rsmq: Rsmq, db: redis.Redis) -> None:
    rsmq.create_queue("q")
    rsmq.send_messages("q", ["x"] * 100)
    before = len(db.client_list())
    reading = reader(MessageTable(Keys()), "*", redis_target=RedisTarget(server.url))
    (part,) = reading.partitions()
    begun = reading.read(part)
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert len(db.client_list()) <= before


def test_a_partition_can_be_pickled() -> None:
    part: Any = pickle.loads(pickle.dumps(BatchPartition([Range("q", 1, 2)])))  # noqa: S301  (our own)
    assert (part.ranges, part.share) == ((Range("q", 1, 2),), None)


def test_a_server_that_dies_mid_read_is_an_error_not_less_rows(private_server: Server) -> None:
    with Rsmq(private_server.url) as client:
        client.create_queue("q")
        client.send_messages("q", ["x"] * 100)

    class Impatient(RedisTarget):
        def open(self) -> Store:
            return Store(self.url, patience_s=0.2)

    reading = reader(MessageTable(Keys()), "q", redis_target=Impatient(private_server.url))
    (part,) = reading.partitions()
    begun = reading.read(part)
    assert next(begun).num_rows == 4
    private_server.kill()
    with pytest.raises(StoreUnavailable):
        list(begun)
