"""A server that replaces another one and lacks some of its features.

The tests replace the features that were detected by those of the other server.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.chasqui.worker import consumer_group
from tambomq.store.call import Plan
from tambomq.store.features import Features
from tests.chasqui import stored
from tests.chasqui.conftest import Connect, Work
from tests.chasqui.working import completed
from tests.servers import eventually_async

ALL = Features(xackdel=True, idmp=True, claim=True)


def as_the_first_said() -> Plan[Features]:
    yield ()
    return ALL


async def test_a_worker_learns_what_the_next_server_can_do(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(job: Job) -> Any:
        if job.data == "dead":
            raise UnrecoverableError("no")
        if job.data == "fails":
            raise ValueError("not now")
        return 5 if job.data == "returns" else None

    monkeypatch.setattr(consumer_group, "features", as_the_first_said)
    for data in ("plain", "returns", "dead", "fails"):
        await queue.add("n", data, backoff=3_600_000)
    async with work(handler, store_results=True) as working:
        await completed(working, 2)
        await eventually_async(lambda: (working.stats.buried, working.stats.retried) == (1, 1))
    assert working.stats.lost == 0
    assert db.xlen(keys.stream) == 0
    assert (db.zcard(keys.delayed), db.xlen(keys.dlq)) == (1, 1)


def test_a_producer_learns_what_the_next_server_can_do(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    def informed(**options: Any) -> BlockingQueue:
        queue = connect(**options)
        queue._producer._features = ALL
        return queue

    informed().add("n", 1)
    informed().add("n", 2, job_id="a")
    batch = [{"name": "n", "data": 3, "job_id": "b"}, {"name": "n", "data": 4}]
    informed(announce=True).add_bulk(batch)
    found = [decode_payload(envelope.payload) for _, envelope in stored.jobs(db, keys)]
    assert sorted(found) == [1, 2, 3, 4]
