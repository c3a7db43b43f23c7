"""Arbitrary input to a sink: a row is written once, or refused with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest
import redis

from tambomq.chasqui.job import MAX_DELAY_S
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import LocalProtocolError, StoreRefused, StoreUnavailable, WrongType
from tambomq.gomq import keys as gomq_keys
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.sink.writer import StreamWriter
from tambomq.store.sync import Store
from tests.chasqui.stored import delayed, jobs
from tests.servers import Server, binaries
from tests.spark.sinking import BODY, SINKS, Context, batches, sink, stream, table

LARGE = 16 << 20
STORED = {
    "rsmq": RsmqKeys().of("q")[0],
    "chasqui": ChasquiKeys("q").stream,
    "gomq": gomq_keys.queue("q"),
    "tambo": JournalKeys("rsmq", "q").journal,
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a server."""
    monkeypatch.setattr("tambomq.spark.core.options.Store", partial(Store, patience_s=0.2))


def make(url: str) -> None:
    """Only RSMQ's queues must be there before."""
    with Rsmq(url) as rsmq:
        rsmq.create_queue("q", maxsize=-1)


def count(db: redis.Redis, source: str) -> int:
    """How many rows are in the queue."""
    size = {"rsmq": db.zcard, "gomq": db.llen}.get(source, db.xlen)
    found: int = cast("Any", size)(STORED[source])
    return found


def numbered(source: str, amount: int) -> pa.Table:
    return table(**{BODY[source]: [f"row {n}" for n in range(amount)]})


# ── rows ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", ["rsmq", "chasqui", "gomq"])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_row_without_a_body_is_reported(
    server: Server, db: redis.Redis, source: str, kind: pa.DataType
) -> None:
    make(server.url)
    rows = table(**{BODY[source]: ([b"\x01", None], kind)})
    with pytest.raises(LocalProtocolError, match=f"row 1: {BODY[source]} is null; nothing of its"):
        stream(source, rows, url=server.url, queue="q")
    assert count(db, source) == 0


@pytest.mark.parametrize("source", SINKS)
def test_a_body_of_16_mib_is_written_beside_others(
    server: Server, db: redis.Redis, source: str
) -> None:
    make(server.url)
    rows = table(**{BODY[source]: ["a", "x" * LARGE, "b"]})
    options: dict[str, Any] = {"maxMessageBytes": str(2 * LARGE)} if source == "gomq" else {}
    assert stream(source, rows, url=server.url, queue="q", **options).written == 3
    assert count(db, source) == 3


@pytest.mark.parametrize("source", ["rsmq", "gomq"])
def test_a_body_that_its_queue_refuses_is_reported_with_its_row(
    server: Server, db: redis.Redis, source: str
) -> None:
    with Rsmq(server.url) as rsmq:
        rsmq.create_queue("q", maxsize=65536)
    rows = table(**{BODY[source]: ["x"] * 1500 + ["x" * LARGE]})
    with pytest.raises(LocalProtocolError, match=rf"row 1500: a message of {LARGE} bytes .* 1 row"):
        stream(source, rows, url=server.url, queue="q")
    # Those in chunks before its own are written, and are not written again.
    assert count(db, source) == 1500
    done = stream(source, rows, url=server.url, queue="q", onError="skip")
    assert (done.written, done.repeated, done.skipped) == (0, 1500, 1)
    assert count(db, source) == 1500


JOBS = [
    ({"id": ["a", ""]}, "row 1: job_id '' is not valid"),
    ({"id": ["a", "  "]}, "row 1: job_id '  ' is not valid"),
    ({"name": ["n", "n" * 300]}, "row 1: job name 'n{20}…' is not valid"),
    ({"delay_ms": [1, -1]}, "row 1: delay_ms must be finite, non-negative"),
    ({"delay_ms": [1, 2**63 - 1]}, "row 1: delay must be within max_delay_secs"),
    ({"run_at": ([0, 2**62], pa.timestamp("us", tz="UTC"))}, "row 1: delay must be within"),
    ({"attempts": [1, -1]}, "row 1: attempts must be non-negative"),
    ({"attempts": [1, 2**40]}, "row 1: attempts must be between 0 and"),
    ({"backoff": [1, -1]}, "row 1: .*non-negative"),
    ({"backoff": [{"kind": "fixed", "delay": 1}, None]}, "row 0: .*delay"),
]


@pytest.mark.parametrize(("columns", "fault"), JOBS)
def test_an_invalid_job_is_reported_and_on_request_the_others_are_added(
    server: Server, db: redis.Redis, columns: dict[str, Any], fault: str
) -> None:
    rows = table(payload=["a", "b"], **columns)
    with pytest.raises(LocalProtocolError, match=fault):
        stream("chasqui", rows, url=server.url, queue="q")
    assert db.keys() == []
    done = stream("chasqui", rows, url=server.url, queue="q", onError="skip")
    assert (done.written, done.skipped) == (1, 1)
    keys = ChasquiKeys("q")
    assert len(jobs(db, keys)) + len(delayed(db, keys)) == 1


def test_the_longest_delays_are_taken(server: Server, db: redis.Redis) -> None:
    make(server.url)
    rows = table(payload=["a"], delay_ms=[MAX_DELAY_S * 1000])
    assert stream("chasqui", rows, url=server.url, queue="q").written == 1
    assert len(delayed(db, ChasquiKeys("q"))) == 1
    for delay, fault in ((9_999_999, None), (10_000_000, "delay_s must be between 0 and 9999999")):
        rows = table(body=["a"], delay_s=[delay])
        context = Context(batch=delay)
        if fault is None:
            assert stream("rsmq", rows, context, url=server.url, queue="q").written == 1
        else:
            with pytest.raises(LocalProtocolError, match=fault):
                stream("rsmq", rows, context, url=server.url, queue="q")


def test_an_id_that_is_there_twice_counts_once(server: Server, db: redis.Redis) -> None:
    ids = [f"job {n % 900}" for n in range(1800)]
    assert stream("chasqui", table(payload=ids, id=ids), url=server.url, queue="q").written == 1800
    assert [job.id for _, job in jobs(db, ChasquiKeys("q"))] == ids[:900]


def test_delayed_jobs_are_added_in_smaller_chunks(server: Server, db: redis.Redis) -> None:
    rows = table(payload=[str(n) for n in range(1000)], delay_ms=[60_000] * 1000)
    assert stream("chasqui", rows, url=server.url, queue="q").written == 1000
    assert db.hlen(ChasquiKeys("q").fence("query")) == 3
    assert len(delayed(db, ChasquiKeys("q"))) == 1000


# ── servers ──────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("source", SINKS)
def test_a_lost_server_ends_the_task_and_the_next_task_resumes(
    private_server: Server, source: str
) -> None:
    make(private_server.url)
    rows = numbered(source, 4500)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(rows.slice(0, 2500), 500)
        private_server.kill()
        yield from batches(rows.slice(2500), 500)

    with pytest.raises(StoreUnavailable):
        stream(source, rows, handed=broken(), url=private_server.url, queue="q")
    with pytest.raises(StoreUnavailable, match="cannot reach"):
        stream(source, rows, url=private_server.url, queue="q")
    private_server.restart()
    with redis.Redis.from_url(private_server.url) as db:
        before = count(db, source)
        assert before % 1000 == 0
        done = stream(source, rows, url=private_server.url, queue="q")
        assert (done.written, done.repeated) == (4500 - before, before)
        assert count(db, source) == 4500


@pytest.mark.parametrize("source", SINKS)
def test_a_password_that_is_wrong_does_not_show(source: str) -> None:
    with Server(binaries.valkey(), password="right") as server:
        url = f"redis://:hush-hush@127.0.0.1:{server.port}"
        rows = numbered(source, 1)
        made = sink(source, rows, url=url, queue="q")
        with pytest.raises(StoreRefused) as error:
            StreamWriter(made, Context()).write(iter(batches(rows, 1)))
    assert "hush" not in str(error.value) + repr(error.value) + repr(made)


@pytest.mark.parametrize("source", SINKS)
def test_a_key_of_another_type_is_reported_and_unchanged(
    server: Server, db: redis.Redis, source: str
) -> None:
    make(server.url)
    db.delete(STORED[source])
    db.set(STORED[source], "mine")
    with pytest.raises(WrongType, match="q"):
        stream(source, numbered(source, 3), url=server.url, queue="q")
    assert db.get(STORED[source]) == b"mine"
