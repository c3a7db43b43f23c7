"""Rows that are written are in the journal, too: as often as in the queue, or in neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import redis

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import JournalFull, SettingsError, StoreError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tests.chasqui.stored import delayed, jobs
from tests.journal.looking import commit_all, records, state
from tests.pipeline.dying import dies_after
from tests.servers import Server
from tests.servers.cluster import Cluster
from tests.spark.sinking import BODY, Context, sink, stream, table

FORMATS = ("rsmq", "chasqui", "gomq")
Pairs = list[tuple[str, bytes | None]]


def numbered(source: str, count: int) -> pa.Table:
    return table(**{BODY[source]: ([str(n) for n in range(count)], pa.string())})


@pytest.fixture
def options(rsmq: Rsmq, server: Server) -> dict[str, Any]:
    """Of a write that is recorded, to a queue that is there."""
    rsmq.create_queue("q", maxsize=-1)
    return {"url": server.url, "queue": "q", "journal": "true"}


@pytest.fixture
def held(db: redis.Redis) -> Callable[[str], Pairs]:
    """Return ids and bodies of all that is in the queue of a format, in order."""

    def look(source: str) -> Pairs:
        if source == "rsmq":
            ids: Any = db.zrange("rsmq:q", 0, -1)
            found: Any = db.hmget("rsmq:q:Q", ids) if ids else []
            return [(id.decode(), body) for id, body in zip(ids, found, strict=True)]
        if source == "chasqui":
            keys = ChasquiKeys("q")
            found = [job for _, job in jobs(db, keys)] + [job for _, job, _ in delayed(db, keys)]
            return [(job.id, job.payload) for job in found]
        elements: Any = db.lrange(gomq_keys.queue("q"), 0, -1)
        return [(each.id, each.payload) for each in map(wire.decode, elements)]

    return look


@pytest.fixture
def journalled(server: Server) -> Callable[[str], Pairs]:
    """Return ids and bodies that the journal says were sent, in order."""

    def look(source: str) -> Pairs:
        found = records(server.url, source, "q")
        assert {each.event for each in found} <= {"sent"}
        return [(each.id, each.body) for each in found]

    return look


Look = Callable[[str], Pairs]


@pytest.mark.parametrize("source", FORMATS)
def test_the_journal_says_what_was_written(
    options: dict[str, Any], held: Look, journalled: Look, source: str
) -> None:
    rows = numbered(source, 2500)
    assert stream(source, rows, **options).written == 2500
    assert journalled(source) == held(source)
    assert len(journalled(source)) == 2500
    assert stream(source, rows, **options).repeated == 2500
    assert len(journalled(source)) == 2500


@pytest.mark.parametrize("source", FORMATS)
def test_nothing_is_journalled_by_default(
    options: dict[str, Any], db: redis.Redis, source: str
) -> None:
    stream(source, numbered(source, 3), **{**options, "journal": "false"})
    assert [*db.scan_iter("{tambo:*")] == []


def test_rows_are_recorded_where_they_go(rsmq: Rsmq, server: Server) -> None:
    for queue in ("a", "b"):
        rsmq.create_queue(queue)
    rows = table(body=["one", "two", "three"], queue=["a", "b", "a"])
    stream("rsmq", rows, url=server.url, journal="true")
    assert [each.body for each in records(server.url, "rsmq", "a")] == [b"one", b"three"]
    assert [each.body for each in records(server.url, "rsmq", "b")] == [b"two"]


def test_a_namespace_has_journals_of_its_own(server: Server) -> None:
    with Rsmq(server.url, ns="x") as other:
        other.create_queue("q")
    stream("rsmq", table(body=["a"]), url=server.url, queue="q", ns="x", journal="true")
    assert len(records(server.url, "rsmq", "x:q")) == 1


def test_delays_and_names_are_recorded(options: dict[str, Any], server: Server) -> None:
    stream("rsmq", table(body=["now", "late"], delay_s=[0, 60]), **options)
    assert [each.delay_ms for each in records(server.url, "rsmq", "q")] == [None, 60_000]
    stream("chasqui", table(data=[1, 2], name=["a", ""], delay_ms=[0, 60_000]), **options)
    first, second = records(server.url, "chasqui", "q")
    assert (first.name, first.body, first.delay_ms) == ("a", encode_payload(1), None)
    assert (second.name, second.body) == ("", encode_payload(2))
    assert 50_000 < (second.delay_ms or 0) <= 60_000


def test_an_id_that_counts_once_is_recorded_once(
    options: dict[str, Any], held: Look, journalled: Look
) -> None:
    rows = table(data=[1, 2, 3, 4], id=["x", "x", "y", "y"], delay_ms=[0, 0, 60_000, 60_000])
    stream("chasqui", rows, **options)
    assert journalled("chasqui") == held("chasqui") == [("x", b"\x01"), ("y", b"\x03")]


@pytest.mark.parametrize("source", FORMATS)
def test_a_full_journal_refuses_the_whole_chunk_until_it_has_space(
    options: dict[str, Any], server: Server, held: Look, journalled: Look, source: str
) -> None:
    rows, options = numbered(source, 1500), {**options, "journalMaxEntries": "1400"}
    with pytest.raises(JournalFull, match="journal of queue 'q' is full: 1400 entries"):
        stream(source, rows, **options)
    before = journalled(source)
    assert (before, len(before)) == (held(source), 1000)
    found = state(server.url, source, "q")
    assert found is not None
    assert found.refused == 500
    commit_all(server.url, source, "q")
    done = stream(source, rows, **options)
    assert (done.written, done.repeated) == (500, 1000)
    assert before + journalled(source)[1:] == held(source)


def test_bytes_are_bounded_too(options: dict[str, Any], held: Look) -> None:
    with pytest.raises(JournalFull):
        stream("rsmq", table(body=["x" * 2000]), **options, journalMaxBytes="2048")
    assert held("rsmq") == []


@pytest.mark.parametrize("source", FORMATS)
def test_a_task_that_is_killed_anywhere_is_recorded_once(
    options: dict[str, Any], db: redis.Redis, held: Look, journalled: Look, source: str
) -> None:
    rows = numbered(source, 2500)
    for trips in range(10):
        db.delete(JournalKeys(source, "q").journal, JournalKeys(source, "q").state)
        context = Context(query=f"query-{trips}")
        work = partial(stream, source, rows, context, **options)
        before = len(held(source))
        killed = dies_after(trips, work)
        assert journalled(source) == held(source)[before:], trips
        work()
        assert journalled(source) == held(source)[before:], trips
        assert len(journalled(source)) == 2500, trips
        if not killed:
            assert trips > 1
            return
    pytest.fail("it takes more trips than are tried")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"journal": "perhaps"}, "journal must be true or false, not 'perhaps'"),
        ({"journal": "true", "journalMaxEntries": "1"}, "journalMaxEntries must be a whole number"),
        ({"journal": "true", "journalMaxBytes": "1"}, "journalMaxBytes must be a whole number"),
        ({"journalMaxEntries": "10"}, "journalMaxEntries must be left out unless journal is true"),
    ],
)
@pytest.mark.parametrize("source", FORMATS)
def test_invalid_options_are_reported(source: str, given: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        sink(source, numbered(source, 1), queue="q", **given)


def test_a_journal_itself_is_not_recorded() -> None:
    with pytest.raises(SettingsError, match="no option journal"):
        sink("tambo", numbered("tambo", 1), queue="q", journal="true")


def test_a_cluster_is_refused_in_one_line(cluster: Cluster) -> None:
    options: dict[str, Any] = {"url": cluster.nodes[0].url, "queue": "q", "journal": "true"}
    with Rsmq(options["url"], ns="{x}") as client:
        client.create_queue("q")
        for source, more in (("rsmq", {"ns": "{x}"}), ("chasqui", {})):
            with pytest.raises(StoreError, match="a journal cannot be kept on a cluster"):
                stream(source, numbered(source, 3), **{**options, **more})
        assert client.get_queue_attributes("q").msgs == 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started
