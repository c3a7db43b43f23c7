"""What leaves a queue by a migration is told there, once, wherever the command is killed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.gomq import wire as gomq_wire
from tambomq.gomq.recorded import push_recorded
from tambomq.journal.recording import Recording
from tambomq.pipeline.address import address
from tambomq.pipeline.migrate import Place, Report, end_of, migrate, move_name
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.journal.looking import records
from tests.pipeline.dying import dies_after
from tests.servers import Server

HOUR = 3600


def move(store: Store, url: str, source: str) -> Report:
    here, there = Place(address(source), url), Place(address("rsmq:b"), url)
    ends = end_of(store, here), end_of(store, there)
    return migrate(*ends, move_name(here, there), wait_s=0.0)


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
    store.run(push_recorded(Recording("gomq", ("a",)), {"a": elements}))
    return ["x", "y", "z"]


def told(db: redis.Redis, url: str, protocol: str) -> list[str]:
    """Return the ids of all that were moved from ``a``, as it tells."""
    if protocol != "chasqui":
        return [each.id for each in records(url, protocol, "a") if each.event == "moved"]
    found: Any = db.xrange(ChasquiKeys("a").events)
    return [fields[b"id"].decode() for _, fields in found if fields[b"e"] == b"moved"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["rsmq", "chasqui", "gomq"])
def test_a_migration_that_is_killed_anywhere_tells_once_who_has_left(
    store: Store, server: Server, db: redis.Redis, protocol: str
) -> None:
    for trips in range(1, 40):
        db.flushall()
        ids = fill(store, server.url, protocol)
        work = partial(move, store, server.url, f"{protocol}:a")
        killed = dies_after(trips, work)
        left = told(db, server.url, protocol)
        assert left == ids[: len(left)], trips
        work()
        assert told(db, server.url, protocol) == ids, trips
        if not killed:
            assert trips > 6
            return
    pytest.fail("it takes more trips than are tried")
