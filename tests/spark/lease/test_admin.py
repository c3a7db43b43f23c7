"""Leases as people see them, of each protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from subprocess import Popen
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql.streaming.datasource import ReadMaxRows

from tambomq.chasqui import BlockingQueue
from tambomq.errors import EntriesLost, LeaseTaken, QueueError, SettingsError
from tambomq.gomq.ops import messages as message_ops
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.formats.chasqui.leased import LeasedJobs
from tambomq.spark.formats.gomq.leased import LeasedKey
from tambomq.spark.formats.rsmq.leased import LeasedMessages
from tambomq.spark.lease.admin import SOURCES, Leases
from tambomq.spark.lease.reader import LeasedReader, LeaseOptions
from tambomq.store.sync import Store
from tests.servers import Server
from tests.spark.fake_spark import die, read

START = {"claim": 0, "mark": ""}
LEASED: dict[str, Any] = {
    "rsmq": LeasedMessages(Keys()),
    "chasqui": LeasedJobs(),
    "gomq": LeasedKey(),
}


def fill(source: str, url: str) -> None:
    """Send three messages to the queue ``q``."""
    if source == "rsmq":
        with Rsmq(url) as client:
            client.create_queue("q")
            client.send_messages("q", ["a", "b", "c"])
    elif source == "chasqui":
        with BlockingQueue("q", redis_url=url) as queue:
            queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
    else:
        store = Store(url)
        store.run(message_ops.push("q", [b'{"id": "1"}', b'{"id": "2"}', b'{"id": "3"}']))
        store.close()


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, server: Server) -> str:
    found: str = request.param
    fill(found, server.url)
    return found


@pytest.fixture
def leases(source: str, server: Server) -> Iterator[Leases]:
    with Leases(source, server.url) as leases:
        yield leases


def reader(source: str, url: str, lease: str = "l") -> LeasedReader:
    return LeasedReader(LEASED[source], RedisTarget(url), "q", lease, LeaseOptions())


def test_the_lease_of_a_running_query_is_listed_and_cannot_be_released(
    source: str, server: Server, leases: Leases
) -> None:
    assert leases.of("q") == []
    running = reader(source, server.url)
    end = running.latestOffset(running.initialOffset(), ReadMaxRows(2))
    [seen] = leases.of("q")
    assert (seen.name, seen.state, seen.claim, seen.size, seen.acked) == ("l", "held", 1, 2, 0)
    assert seen.holder.startswith("process ")
    with pytest.raises(LeaseTaken, match="held by process"):
        leases.release("q", "l")
    with pytest.raises(LeaseTaken, match="held by process"):
        leases.forget("q", "l", give_back=True)
    assert len(read(running, START, end)) == 2
    running.stop()


def test_a_stopped_query_releases_its_messages_at_once_on_request(
    source: str, server: Server, leases: Leases
) -> None:
    stopped = reader(source, server.url)
    end = stopped.latestOffset(stopped.initialOffset(), ReadMaxRows(2))
    stopped.stop()
    assert [each.state for each in leases.of("q")] == ["away"]
    assert leases.release("q", "l") == 2
    other = reader(source, server.url, "other")
    theirs = other.latestOffset(other.initialOffset(), ReadMaxRows(9))
    assert len(read(other, START, theirs)) == 3
    back = reader(source, server.url)
    with pytest.raises(EntriesLost, match="claim 1 of lease 'l' on queue 'q' is no longer open"):
        back.partitions(START, end)
    for each in (back, other):
        each.stop()


def test_a_lease_is_forgotten_with_all_it_had(source: str, server: Server, leases: Leases) -> None:
    stopped = reader(source, server.url)
    stopped.latestOffset(stopped.initialOffset(), ReadMaxRows(2))
    stopped.stop()
    with pytest.raises(QueueError, match="has claim 1 open"):
        leases.forget("q", "l")
    assert leases.forget("q", "l", give_back=True)
    assert not leases.forget("q", "l")
    assert leases.of("q") == []
    new = reader(source, server.url)
    assert new.initialOffset() == START
    end = new.latestOffset(START, ReadMaxRows(9))
    assert len(read(new, START, end)) == 3
    new.stop()


def test_a_query_that_is_seen_to_be_dead_need_not_be_waited_for(
    source: str, server: Server, leases: Leases
) -> None:
    killed = reader(source, server.url)
    killed.latestOffset(killed.initialOffset(), ReadMaxRows(2))
    holder: Any = killed._held
    die(killed)
    with Popen(["true"]) as ended:
        ended.wait()
    killed_holder = holder.request.holder
    dead_holder = re.sub(r"process \d+", f"process {ended.pid}", killed_holder)
    request = structs.replace(holder.request, owner="other", holder=dead_holder)
    store = Store(server.url)
    assert store.run(LEASED[source].ops.attach(request, dead_holder=killed_holder)).acquired
    store.close()
    assert [(each.state, each.size) for each in leases.of("q")] == [("away", 2)]
    assert leases.release("q", "l") == 2
    assert [each.state for each in leases.of("q")] == ["free"]
    assert leases.forget("q", "l")


def test_leases_of_an_unknown_source_are_refused() -> None:
    with pytest.raises(SettingsError, match="source must be one of rsmq, chasqui, gomq, not 'x'"):
        Leases("x")
