"""Writers write each row once, whatever is run again, and half a chunk never."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest
import redis
from pyspark.sql.pandas.types import from_arrow_schema

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import (
    InvalidFormat,
    LocalProtocolError,
    SettingsError,
    StoreUnavailable,
    TamboError,
)
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark.sink.writer import StreamWriter, WriteResult
from tambomq.store.sync import Store
from tests.chasqui.stored import delayed, jobs
from tests.servers import Server
from tests.spark.sinking import (
    BODY,
    NEEDED,
    SINKS,
    Context,
    batch,
    batches,
    sink,
    stream,
    table,
)

KEYS = Keys()
FENCE = KEYS.fence("q", "query")


@pytest.fixture
def queues(rsmq: Rsmq) -> Rsmq:
    """A client of a server with two queues; one takes short messages only."""
    rsmq.create_queue("q", maxsize=-1)
    rsmq.create_queue("short", maxsize=1024)
    return rsmq


def bodies(client: Rsmq, queue: str = "q") -> list[bytes]:
    return [message.body for message in client.peek_messages(queue, 100_000)]


def numbered(count: int) -> pa.Table:
    return table(body=([str(n) for n in range(count)], pa.string()))


# ── once ─────────────────────────────────────────────────────────────────────


def test_rows_become_messages_in_their_order(queues: Rsmq, server: Server) -> None:
    done = stream("rsmq", numbered(2500), url=server.url, queue="q")
    assert (done.written, done.repeated, done.skipped, done.queues) == (2500, 0, 0, {"q"})
    assert bodies(queues) == [b"%d" % n for n in range(2500)]


def test_a_task_that_is_run_again_writes_nothing_again(queues: Rsmq, server: Server) -> None:
    stream("rsmq", numbered(2500), url=server.url, queue="q")
    again = batches(numbered(2500), 700)
    done = stream("rsmq", numbered(2500), handed=again, url=server.url, queue="q")
    assert (done.written, done.repeated) == (0, 2500)
    assert len(bodies(queues)) == 2500


def test_an_interrupted_task_resumes_at_its_position(queues: Rsmq, server: Server) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(numbered(1500), 1500)
        raise OSError("the worker is gone")

    with pytest.raises(OSError, match="the worker is gone"):
        stream("rsmq", numbered(2500), handed=broken(), url=server.url, queue="q")
    assert len(bodies(queues)) <= 1000
    stream("rsmq", numbered(2500), url=server.url, queue="q")
    assert bodies(queues) == [b"%d" % n for n in range(2500)]


def test_other_partitions_batches_and_queries_write_their_own(queues: Rsmq, server: Server) -> None:
    for context in (Context(), Context(partition=1), Context(batch=1), Context(query="other")):
        assert stream("rsmq", numbered(3), context, url=server.url, queue="q").written == 3
    assert len(bodies(queues)) == 12


def test_rows_that_come_in_another_order_are_refused_not_lost(queues: Rsmq, server: Server) -> None:
    stream("rsmq", table(body=["a", "b"]), url=server.url, queue="q")
    with pytest.raises(LocalProtocolError, match="in another order"):
        stream("rsmq", table(body=["b", "a"]), url=server.url, queue="q")
    assert bodies(queues) == [b"a", b"b"]


def test_a_commit_forgets_the_batches_before_it(
    queues: Rsmq, server: Server, db: redis.Redis
) -> None:
    options: dict[str, Any] = {"url": server.url, "queue": "q"}
    for number in range(3):
        context = Context(batch=number)
        done = stream("rsmq", numbered(2), context, **options)
        StreamWriter(sink("rsmq", numbered(2), **options), context).commit([done, None], number)
    kept = cast("dict[bytes, bytes]", db.hgetall(FENCE))
    assert set(kept) == {b"2/0/0", b"floor"}
    assert stream("rsmq", numbered(2), Context(batch=2), **options).repeated == 2
    with pytest.raises(LocalProtocolError, match="batch 1 is closed"):
        stream("rsmq", numbered(2), Context(batch=1), **options)
    assert len(bodies(queues)) == 6


def test_an_aborted_batch_keeps_its_fences(queues: Rsmq, server: Server) -> None:
    options: dict[str, Any] = {"url": server.url, "queue": "q"}
    done = stream("rsmq", numbered(2), **options)
    StreamWriter(sink("rsmq", numbered(2), **options), Context()).abort([done, None], 0)
    assert stream("rsmq", numbered(2), **options).repeated == 2
    assert len(bodies(queues)) == 2


def test_tasks_of_one_batch_write_share_its_fence_and_the_next_write_has_another(
    queues: Rsmq, server: Server, db: redis.Redis
) -> None:
    options: dict[str, Any] = {"url": server.url, "queue": "q"}
    writer, done = batch("rsmq", numbered(3), **options)
    assert cast("Any", writer.write(iter(batches(numbered(3), 1)))).repeated == 3
    writer.commit([done])
    [fence] = [key for key in cast("list[bytes]", db.keys()) if b":fence:" in key]
    assert 0 < db.ttl(fence) <= 3600
    assert batch("rsmq", numbered(3), **options)[1].written == 3
    assert len(bodies(queues)) == 6


def test_a_batch_write_that_has_a_name_is_made_once(queues: Rsmq, server: Server) -> None:
    options: dict[str, Any] = {"url": server.url, "queue": "q", "run": "nightly-7"}
    for expected in (3, 0):
        writer, done = batch("rsmq", numbered(3), **options)
        writer.commit([done])
        assert done.written == expected
    assert len(bodies(queues)) == 3


def test_a_stream_refuses_the_option_run(server: Server) -> None:
    with pytest.raises(SettingsError, match="run"):
        stream("rsmq", numbered(1), url=server.url, queue="q", run="x")


# ── what cannot be written ───────────────────────────────────────────────────


FAULTS = [
    ({"body": ["a", None]}, "row 1: body is null"),
    ({"body": ["a", "b"], "queue": ["q", "none"]}, "row 1: queue 'none' does not exist"),
    ({"body": ["a", "b"], "queue": ["q", "no name"]}, "row 1: queue name 'no name' is not valid"),
    ({"body": ["a", "x" * 1025], "queue": ["q", "short"]}, "row 1: a message of 1025 bytes"),
    ({"body": ["a", "b"], "delay_s": [0.5, -1.0]}, "row 1: delay_s must be between 0 and"),
    ({"body": ["a", "b"], "delay_s": [0.5, float("nan")]}, "row 1: delay_s must be between"),
]


@pytest.mark.parametrize(("columns", "fault"), FAULTS)
def test_a_row_that_cannot_be_written_fails_its_chunk(
    queues: Rsmq, server: Server, columns: dict[str, Any], fault: str
) -> None:
    with pytest.raises(LocalProtocolError, match=fault) as refused:
        stream("rsmq", table(**columns), Context(partition=4), url=server.url, queue="q")
    assert "partition 4" in str(refused.value)
    assert "nothing of its chunk of 2 rows was written" in str(refused.value)
    assert bodies(queues) == []


@pytest.mark.parametrize(("columns", "fault"), FAULTS)
def test_with_on_error_skip_invalid_rows_are_left_out_and_counted(
    queues: Rsmq, server: Server, columns: dict[str, Any], fault: str
) -> None:
    done = stream("rsmq", table(**columns), url=server.url, queue="q", onError="skip")
    assert (done.written, done.skipped) == (1, 1)
    assert done.reasons[0].startswith(fault)
    assert bodies(queues) == [b"a"]


def test_skipped_rows_are_logged_when_the_batch_is_committed(
    queues: Rsmq, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    rows = table(body=(["a"] + [None] * 20, pa.string()))
    options: dict[str, Any] = {"url": server.url, "queue": "q", "onError": "skip"}
    done = stream("rsmq", rows, **options)
    with caplog.at_level(logging.WARNING):
        StreamWriter(sink("rsmq", rows, **options), Context()).commit([done], 0)
    [logged] = caplog.messages
    assert logged.startswith("rsmq: 20 rows were skipped, such as 'row 1: body is null; row 2")
    assert "row 6" not in logged
    assert bodies(queues) == [b"a"]


def test_rows_are_counted_from_the_first_of_their_partition(queues: Rsmq, server: Server) -> None:
    rows = table(body=([str(n) for n in range(2500)] + [None], pa.string()))
    with pytest.raises(LocalProtocolError, match=r"row 2500: .* its chunk of 501 rows"):
        stream("rsmq", rows, url=server.url, queue="q")
    assert len(bodies(queues)) == 2000


def test_a_write_to_a_queue_deleted_meanwhile_fails(queues: Rsmq, server: Server) -> None:
    def slowly() -> Iterator[pa.RecordBatch]:
        yield from batches(numbered(2001), 2001)
        queues.delete_queue("q")
        yield from batches(numbered(2001), 2001)

    with pytest.raises(TamboError, match="does not exist"):
        stream("rsmq", numbered(1), handed=slowly(), url=server.url, queue="q")


def test_an_unreachable_server_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tambomq.spark.core.options.Store", partial(Store, patience_s=0.1))
    rows = numbered(1)
    made = sink("rsmq", rows, url="redis://:secret@127.0.0.1:1", queue="q")
    assert "secret" not in repr(made)
    with pytest.raises(StoreUnavailable) as error:
        StreamWriter(made, Context()).write(iter(batches(rows, 1)))
    assert "secret" not in str(error.value)


def test_no_rows_write_nothing_and_need_no_server() -> None:
    done = stream("rsmq", numbered(0), url="redis://127.0.0.1:1", queue="q")
    assert done == WriteResult("query")


@pytest.mark.parametrize("source", SINKS)
def test_a_write_says_where_its_rows_go_and_only_appends(source: str) -> None:
    rows = table(**{BODY[source]: ["a"]})
    with pytest.raises(SettingsError, match="neither an option nor a column"):
        sink(source, rows)
    with pytest.raises(SettingsError, match="no option quue; did you mean queue"):
        sink(source, rows, quue="q")
    with pytest.raises(SettingsError, match="onError must be one of fail, skip, not 'maybe'"):
        sink(source, rows, queue="q", onError="maybe")
    given = NEEDED.get(source, {}) | {"queue": "q"}
    with pytest.raises(SettingsError, match="can only be appended"):
        SINKS[source](given, from_arrow_schema(rows.schema), overwrite=True)


@pytest.mark.usefixtures("queues")
def test_a_missing_queue_is_reported_before_anything_runs(server: Server) -> None:
    sink("rsmq", numbered(1), url=server.url, queue="q").checked()
    with pytest.raises(SettingsError, match="format 'rsmq': queue 'none' does not exist"):
        sink("rsmq", numbered(1), url=server.url, queue="none").checked()


def test_an_invalid_queue_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidFormat, match="queue name"):
        sink("rsmq", numbered(1), queue="no name")


# ── what the columns come to ─────────────────────────────────────────────────


def test_rows_go_where_they_say_and_else_to_the_one_queue(queues: Rsmq, server: Server) -> None:
    rows = table(body=[b"a", b"b", b"c", b"d"], queue=["short", None, "short", "q"])
    done = stream("rsmq", rows, url=server.url, queue="q")
    assert done.queues == {"q", "short"}
    assert (bodies(queues), bodies(queues, "short")) == ([b"b", b"d"], [b"a", b"c"])


def test_a_body_of_16_mib_is_written(queues: Rsmq, server: Server) -> None:
    rows = table(body=["a", "x" * (16 << 20), "b"])
    assert stream("rsmq", rows, url=server.url, queue="q").written == 3
    assert [len(body) for body in bodies(queues)] == [1, 16 << 20, 1]


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.decimal128(8, 3)])
def test_delays_are_the_rows_own(queues: Rsmq, server: Server, kind: pa.DataType) -> None:
    rows = table(body=["late", "now"], delay_s=([600, None], kind))
    stream("rsmq", rows, url=server.url, queue="q")
    assert [message.body for message in queues.receive_messages("q", 2)] == [b"now"]
    assert queues.get_queue_stats("q").delayed == 1


def test_rows_become_jobs(server: Server, db: redis.Redis) -> None:
    later = 4_000_000_000_000
    rows = table(
        data=[{"n": 1}, {"n": 2}, {"n": 3}],
        name=["mail", None, ""],
        id=[None, "mine", None],
        run_at=([None, None, later * 1000], pa.timestamp("us", tz="UTC")),
        attempts=([3, None, None], pa.int32()),
        backoff=[{"kind": "fixed", "delay_ms": 5, "jitter_ms": None}, None, None],
    )
    options: dict[str, Any] = {"queue": "q", "name": "other", "url": server.url, "onError": "skip"}
    done = stream("chasqui", rows, **options)
    # A job may be due in a month at most.
    assert (done.written, done.skipped) == (2, 1)
    assert "max_delay_secs" in done.reasons[0]
    first, second = jobs(db, ChasquiKeys("q"))
    assert (first[0], first[1].payload) == ("mail", b"\x81\xa1n\x01")
    assert first[1].retry is not None
    assert first[1].retry.max_attempts == 3
    assert (second[0], second[1].id, second[1].retry) == ("other", "mine", None)


def test_jobs_wait_for_their_delay(server: Server, db: redis.Redis) -> None:
    rows = table(payload=["now", "late"], delay_ms=[0, 60_000])
    assert stream("chasqui", rows, url=server.url, queue="q").written == 2
    assert stream("chasqui", rows, url=server.url, queue="q").repeated == 2
    keys = ChasquiKeys("q")
    assert [job.payload for _, job in jobs(db, keys)] == [b"\xa3now"]
    assert [job.payload for _, job, _ in delayed(db, keys)] == [b"\xa4late"]


def test_jobs_that_break_a_rule_are_reported(server: Server, db: redis.Redis) -> None:
    payloads = [b"\x01", None, b"\x92\x01", b"\x01\x01"]
    rows = table(payload=payloads, name=["n" * 257, "n", "n", "n"])
    done = stream("chasqui", rows, url=server.url, queue="q", onError="skip")
    assert (done.written, done.skipped) == (0, 4)
    expected = ("exceeds 256-byte cap", "payload is null", "no MessagePack", "no MessagePack")
    for reason, why in zip(done.reasons, expected, strict=True):
        assert why in reason
    assert db.keys() == []


def test_rows_become_gomq_messages(server: Server, db: redis.Redis) -> None:
    rows = table(payload=[b"a", b"b", b""], key=["FOO", None, "FOO"])
    options: dict[str, Any] = {"url": server.url, "key": "BAR"}
    assert stream("gomq", rows, **options).written == 3
    assert stream("gomq", rows, **options).repeated == 3
    found = {
        key: [wire.decode(each) for each in cast("Any", db.lrange(gomq_keys.queue(key), 0, -1))]
        for key in ("FOO", "BAR")
    }
    assert [each.payload for each in found["FOO"]] == [b"a", b""]
    assert [each.payload for each in found["BAR"]] == [b"b"]
    ids = {each.id for elements in found.values() for each in elements}
    assert {len(id) for id in ids} == {20}
    assert len(ids) == 3
    assert all(each.timestamp for elements in found.values() for each in elements)


def test_gomq_payloads_must_fit_in_a_reply(server: Server, db: redis.Redis) -> None:
    rows = table(payload=["x" * (1 << 16)], key=["FOO"])
    options: dict[str, Any] = {"url": server.url, "maxMessageBytes": str(1 << 16)}
    with pytest.raises(LocalProtocolError, match="a message of 65536 bytes exceeds"):
        stream("gomq", rows, **options)
    assert db.keys() == []
