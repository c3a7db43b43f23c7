"""Tasks that end only when their rows are durable: one wait for each, and none is written twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import redis

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import DurabilityUnsupported, NotDurable, SettingsError
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.sink import durable
from tambomq.store.durability.level import Durability
from tambomq.store.sync import Store
from tests.servers import Server, eventually
from tests.servers.pair import Pair, running_pair
from tests.spark.sinking import BODY, SINKS, sink, stream, table

LENGTH = {
    "rsmq": ("ZCARD", "rsmq:q"),
    "chasqui": ("XLEN", ChasquiKeys("q").stream),
    "gomq": ("LLEN", "QUEUE_q"),
    "tambo": ("XLEN", JournalKeys("rsmq", "q").journal),
}


@pytest.fixture(scope="module")
def one_pair() -> Iterator[Pair]:
    """A primary and its replica, for all tests of this module."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def pair(one_pair: Pair) -> Pair:
    """The pair, with one empty queue of RSMQ, whose sink creates none."""
    one_pair.ask("FLUSHALL")
    with Rsmq(one_pair.primary.url) as client:
        client.create_queue("q")
    eventually(one_pair.follows, within_s=30)
    return one_pair


def rows(source: str, count: int = 2500) -> pa.Table:
    # ChasquiMQ's payloads must be MessagePack.
    bodies = [msgspec.msgpack.encode(str(n)) for n in range(count)]
    columns = {BODY[source]: (bodies, pa.binary())}
    return table(**columns, **({"name": ["job"] * count} if source == "chasqui" else {}))


def length(client: redis.Redis, source: str) -> Any:
    """How many rows the queue has."""
    ask: Any = client.execute_command
    return ask(*LENGTH[source])


def waits(pair: Pair) -> int:
    with redis.Redis.from_url(pair.primary.url) as client:
        return int(client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))


@pytest.mark.parametrize("source", SINKS)
def test_a_task_waits_once_for_all_its_chunks(source: str, pair: Pair) -> None:
    options: dict[str, Any] = {"url": pair.primary.url, "queue": "q", "durable": "replicas:1"}
    before = waits(pair)
    done = stream(source, rows(source), **options, durableTimeoutSeconds="30")
    assert done.written == 2500
    # One asks whether the server can wait at all.
    assert waits(pair) - before == 2
    with redis.Redis.from_url(pair.replica.url) as replica:
        assert length(replica, source) == 2500


@pytest.mark.parametrize("source", SINKS)
def test_a_task_that_is_not_confirmed_fails_and_its_retry_writes_nothing_twice(
    source: str, pair: Pair
) -> None:
    options: dict[str, Any] = {"url": pair.primary.url, "queue": "q", "durable": "replicas:1"}
    with (
        pair.frozen_replica(),
        pytest.raises(NotDurable, match=r"0 of 1 replicas .*its retry writes no row twice"),
    ):
        stream(source, rows(source), **options, durableTimeoutSeconds="1")
    done = stream(source, rows(source), **options, durableTimeoutSeconds="30")
    assert (done.written, done.repeated) == (0, 2500)
    assert pair.ask(*LENGTH[source]) == 2500


def test_rows_that_the_disk_has_survive_a_crash(private_server: Server) -> None:
    stream("gomq", rows("gomq"), url=private_server.url, queue="q", durable="disk")
    private_server.kill()
    private_server.restart()
    with redis.Redis.from_url(private_server.url) as client:
        assert client.llen("QUEUE_q") == 2500


@pytest.mark.parametrize("source", SINKS)
def test_a_level_that_the_server_cannot_confirm_is_refused_before_anything_is_written(
    source: str, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    made = sink(source, rows(source, 1), url=server.url, queue="q", durable="disk")
    with pytest.raises(DurabilityUnsupported, match="it keeps no append-only file"):
        made.checked()
    assert length(db, source) == 0


@pytest.mark.parametrize("source", SINKS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durable": "disc"}, "durable must be memory, disk, or replicas:N"),
        ({"durable": "disk", "durableTimeoutSeconds": "0"}, "durableTimeoutSeconds must be"),
        ({"durableTimeoutSeconds": "3601"}, "durableTimeoutSeconds must be"),
    ],
)
def test_options_that_are_no_levels_are_refused(
    source: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        sink(source, rows(source, 1), queue="q", **options)


def test_a_server_that_lacks_a_chunk_has_confirmed_nothing(pair: Pair) -> None:
    fence, level = RsmqKeys().fence("q", "query"), Durability("replicas:1", 1, 30)
    stream("rsmq", rows("rsmq", 1), url=pair.primary.url, queue="q")
    store = Store(pair.primary.url)
    durable.confirm(store, level, {fence: ["0/0/0"]})
    with pytest.raises(NotDurable, match="replaced by one that lacks them"):
        durable.confirm(store, level, {fence: ["0/0/0", "0/0/1"]})
    store.close()


def test_a_task_without_rows_waits_for_nothing(pair: Pair) -> None:
    before = waits(pair)
    with pair.frozen_replica():
        stream("rsmq", rows("rsmq", 0), url=pair.primary.url, queue="q", durable="replicas:1")
    assert waits(pair) == before
