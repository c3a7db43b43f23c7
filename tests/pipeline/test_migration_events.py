"""A migration journals each departure once at the source, also if it is killed and resumed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.gomq import wire as gomq_wire
from tambomq.gomq.ops.journal import push_recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer.migrate import (
    MigrationReport,
    QueueLocation,
    endpoint_of,
    migrate,
    move_name,
)
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.journal.looking import records
from tests.pipeline.dying import dies_after
from tests.servers import Server

HOUR = 3600


def move(store: Store, url: str, source: str) -> MigrationReport:
    source_queue, target_queue = (
        QueueLocation(address(source), url),
        QueueLocation(address("rsmq:b"), url),
    )
    ends = endpoint_of(store, source_queue), endpoint_of(store, target_queue)
    return migrate(*ends, move_name(source_queue, target_queue), wait_s=0.0)


def fill(store: Store, url: str, protocol: str) -> list[str]:
    """Fill queue ``a``, also with what is delayed; return the ids."""
    if protocol == "rsmq":
        with Rsmq(url, journal=("a",)) as client:
            client.create_queue("a")
            ids = client.send_messages("a", [b"1", b"2"])
            return [*ids, client.send_message("a", b"3", delay=HOUR)]
    if protocol == "chasqui":
        with BlockingQueue("a", redis_url=url) as queue:
            jobs = [queue.add("n", 1), queue.add("n", 2), queue.add("n", 3, delay_ms=HOUR * 1000)]
            return [job.id for job in jobs]
    elements = [gomq_wire.encode(id, "today", b"x") for id in ("x", "y", "z")]
    store.run(push_recorded(JournalPolicy("gomq", ("a",)), {"a": elements}))
    return ["x", "y", "z"]


def journalled_ids(db: redis.Redis, url: str, protocol: str) -> list[str]:
    """Return the ids in the ``moved`` events of queue ``a``."""
    if protocol != "chasqui":
        return [each.id for each in records(url, protocol, "a") if each.event == "moved"]
    found: Any = db.xrange(ChasquiKeys("a").events)
    return [fields[b"id"].decode() for _, fields in found if fields[b"e"] == b"moved"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["rsmq", "chasqui", "gomq"])
def test_a_killed_migration_journals_each_departed_message_once(
    store: Store, server: Server, db: redis.Redis, protocol: str
) -> None:
    for round_trips in range(1, 40):
        db.flushall()
        ids = fill(store, server.url, protocol)
        work = partial(move, store, server.url, f"{protocol}:a")
        killed = dies_after(round_trips, work)
        left = journalled_ids(db, server.url, protocol)
        assert left == ids[: len(left)], round_trips
        work()
        assert journalled_ids(db, server.url, protocol) == ids, round_trips
        if not killed:
            assert round_trips > 6
            return
    pytest.fail("the migration took more round trips than were tried")
