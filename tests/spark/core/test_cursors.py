"""Finding queues: by whatever is left of them, and on every master of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tambomq.chasqui.keys import Keys
from tambomq.errors import StoreUnavailable
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.core.batch import BatchReader
from tambomq.spark.core.cursors import pages
from tambomq.spark.core.options import QueueSelector, RedisTarget
from tambomq.spark.formats.chasqui.streams import StreamTable
from tambomq.spark.formats.rsmq.tables import MessageTable
from tambomq.spark.formats.tambo.tables import JournalTable
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.servers import Server
from tests.servers.cluster import Cluster


@pytest.fixture(scope="module")
def formed() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def everywhere(formed: Cluster) -> Iterator[redis.RedisCluster]:
    """A client of the whole cluster, with nothing in it."""
    for node in range(3):
        formed.ask(node, "FLUSHALL")
    with redis.RedisCluster.from_url(formed.nodes[0].url) as client:
        yield client


def test_a_queue_is_found_once_by_whatever_is_left_of_it(store: Store, db: redis.Redis) -> None:
    for place, name in enumerate(("stream", "delayed", "repeat", "dlq", "events")):
        key = Keys(f"only-{name}").traces[place]
        if name in ("delayed", "repeat"):
            db.zadd(key, {"m": 1})
        else:
            db.xadd(key, {"d": "x"})
    for key in Keys("all").traces:
        db.set(key, "of whichever type")
    db.set(Keys("gone").paused, "1")
    db.set(Keys("gone").result("id"), "1")
    assert sorted(StreamTable("jobs").names(store)) == [
        *("all", "only-delayed", "only-dlq", "only-events", "only-repeat", "only-stream"),
    ]


def test_dead_letters_alone_are_found_by_a_pattern(server: Server, db: redis.Redis) -> None:
    db.xadd(Keys("mail-old").dlq, {"d": "x", "reason": "malformed"})
    reader = BatchReader(StreamTable("dlq"), RedisTarget(server.url), QueueSelector(("mail-*",)), 1)
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert [(row["queue"], row["reason"]) for row in rows] == [("mail-old", "malformed")]


def test_queues_are_found_on_every_master(formed: Cluster, everywhere: redis.RedisCluster) -> None:
    names = [f"q{n}" for n in range(40)]
    for name in names:
        everywhere.xadd(Keys(name).stream, {"d": "x"})
        everywhere.xadd(Keys(name).events, {"e": "waiting"})
        everywhere.xadd(JournalKeys("kqueue", name).journal, {"e": "sent"})
    sizes = [formed.ask(node, "DBSIZE") for node in range(3)]
    assert min(sizes) > 0
    for node in formed.nodes:
        store = Store(node.url)
        assert sorted(StreamTable("events").names(store)) == sorted(names)
        assert sorted(JournalTable("kqueue").names(store)) == sorted(names)
        store.close()


def test_rows_of_all_masters_are_one_table(formed: Cluster, everywhere: redis.RedisCluster) -> None:
    for n in range(20):
        everywhere.xadd(Keys(f"q{n}").stream, {"d": "x"})
    reader = BatchReader(
        StreamTable("jobs"), RedisTarget(formed.nodes[2].url), QueueSelector(("q*",)), 3
    )
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert {row["queue"] for row in rows} == {f"q{n}" for n in range(20)}
    assert len(rows) == 20


def test_a_namespace_with_a_tag_is_read_on_a_cluster(
    formed: Cluster, everywhere: redis.RedisCluster
) -> None:
    with Rsmq(formed.nodes[0].url, ns="{mail}") as client:
        client.create_queue("q")
        client.send_messages("q", ["a", "b"])
    table = MessageTable(RsmqKeys("{mail}"))
    reader = BatchReader(table, RedisTarget(formed.nodes[1].url), QueueSelector(("*",)), 2)
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert [row["body"] for row in rows] == [b"a", b"b"]


def test_an_unreachable_server_is_reported_and_not_taken_for_a_standalone_one() -> None:
    store = Store("redis://127.0.0.1:1", patience_s=0)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        next(pages(store, lambda cursor: Call("SCAN", (), (cursor,), tuple)))
